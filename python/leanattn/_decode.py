"""Attention in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import _core
from ._results import Result, dtype_name, run

if TYPE_CHECKING:
    from ._options import Options, Unpack


def decode(
    q: Any, k: Any, v: Any, lengths: Any = None, *, out: Any = None, lse: Any = False,
    out_dtype: Any = None, stream: Any = None, **options: Unpack[Options],
) -> Result:
    """Attention of a batch of queries over a cache of keys and values.

    Query i of m sits at position p = n - m + i among the n keys of its sequence:

        s = scale * (q . k);  softcap c: s = c * tanh(s / c);  ALiBi: s -= slope * (p - j)
        s += bias;  hidden keys leave;  softmax, sinks in the denominator only;  out = p . v

    in float32, whatever the types. A query that sees no key gets 0, and an lse of -inf or
    the sink. Nothing is copied; the GIL is released while computing.

    Arrays lie all in host memory, or all in that of one CUDA device, where a call is work in
    a stream: it does not wait, and can be captured in a graph; lengths, offsets and tables
    are read when it executes.

    Types: "real" is float32, float16 or bfloat16 (numpy's by ml_dtypes), "index" int32 or
    int64. The last dimension of q, k, v and out is contiguous; others have any stride.

    Arguments:
        q: real [batch, q_len, heads, dim]; with q_offsets [num_queries, heads, dim].
        k, v: real [rows, capacity, kv_heads, dim] for layout "NHD", [rows, kv_heads,
            capacity, dim] for "HND"; paged [num_pages, page_size, kv_heads, dim] likewise.
            v's dim may differ; heads is a multiple of kv_heads.
        lengths: index [batch], keys of each sequence; None: the capacity of the rows.
        out: array to write, shaped as q with v's dim, of q's type or float32. None: one of
            torch or CuPy if q is, else numpy's.
        lse: True: also return the natural log of the denominator, float32, shaped as out
            without its last dimension; or the array to write it to.
        out_dtype: of the array that is allocated: q's (None) or "float32".
        stream: of CUDA: a handle as an integer, or an object with cuda_stream, ptr or
            __cuda_stream__, in which torch's arrays are ready. None: the stream in which torch
            or CuPy, whichever q belongs to, works now; else the default stream.

    Options, with their defaults:
        causal=False, window=(-1, -1): keep keys j <= p; keep p - left <= j <= p + right, -1:
            no bound.
        softcap=0, scale=None: see above; 0: none, None: 1 / sqrt(dim).
        sinks, alibi_slopes: real [heads]; sinks are natural logits.
        bias: [batch or 1, heads or 1, q_len, kv_len], real: added, or bool: keys to keep.
        tree_mask: bool [batch, q_len, q_len]: which of the newest q_len keys a query sees.
        page_table: index [batch, width], page ids; or page_ids: index [num_ids], with
            page_indptr: index [batch + 1], where each sequence's ids begin.
        cache_rows: index [batch], the row of each sequence in a cache without pages.
        q_offsets: index [batch + 1], where each sequence's queries begin.
        layout="NHD": or "HND"; see k, v.
        backend="auto": or one of info()["backends"].
        partition="auto": or "one_tile", "fixed_split" (num_splits per output tile) or
            "stream_k" (over num_workers). num_splits, num_workers, num_threads: 0, the
            default, as suits the machine.
        batch_invariant=False: bits depend on a row's own query, keys, values and length only.
        checked=False: on a device, wait for it, and refuse lengths and page ids that are out
            of range, as in host memory; else they must not be.

    Returns out, or (out, lse) where lse was asked for.

    Raises ValueError, TypeError or RuntimeError (unsupported, or q, k, v … for which torch
    would compute gradients) with a sentence, before anything is written.
    """
    call = _core.Call(q, k, v, lengths, stream, options, None)
    plan = _core.plan(call, out, dtype_name(out_dtype), None, None)
    return run(plan, call, out, lse, None)


def supports(
    q: Any, k: Any, v: Any, lengths: Any = None, *, out_dtype: Any = None,
    **options: Unpack[Options],
) -> Optional[str]:
    """Whether the backend computes what ``decode`` would be asked for.

    Takes the arguments of ``decode``. Returns None for yes, or the sentence that says why
    not. Raises ValueError or TypeError where the arguments make no sense at all.
    """
    call = _core.Call(q, k, v, lengths, None, options, None)
    return _core.why_not(call, dtype_name(out_dtype))
