"""Attention in one call."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from . import _core
from ._results import Result, dtype_name, run


def decode(
    q: Any, k: Any, v: Any, lengths: Any = None, *,
    out: Any = None, lse: Any = False, out_dtype: Any = None,
    causal: bool = False, window: Tuple[int, int] = (-1, -1), softcap: float = 0.0,
    scale: Optional[float] = None, sinks: Any = None, alibi_slopes: Any = None,
    bias: Any = None, tree_mask: Any = None,
    page_table: Any = None, page_ids: Any = None, page_indptr: Any = None,
    cache_rows: Any = None, q_offsets: Any = None, layout: str = "NHD",
    backend: str = "auto", partition: str = "auto", num_splits: int = 0,
    num_workers: int = 0, num_threads: int = 0, batch_invariant: bool = False,
) -> Result:
    """Attention of a batch of queries over a cache of keys and values.

    Query i of m sits at position p = n - m + i among the n keys of its sequence:

        s = scale * (q . k);  softcap c: s = c * tanh(s / c);  ALiBi: s -= slope * (p - j)
        s += bias;  hidden keys leave;  softmax, sinks in the denominator only;  out = p . v

    in float32, whatever the types. A query that sees no key gets 0, and an lse of -inf or
    the sink. Nothing is copied; the GIL is released while computing.

    Types: "real" is float32, float16 or bfloat16 (numpy's by ml_dtypes), "index" int32 or
    int64. The last dimension of q, k, v and out is contiguous; others have any stride.

    Arguments:
        q: real [batch, q_len, heads, dim]; with q_offsets [num_queries, heads, dim].
        k, v: real [rows, capacity, kv_heads, dim] for layout "NHD", [rows, kv_heads,
            capacity, dim] for "HND"; paged [num_pages, page_size, kv_heads, dim] likewise.
            v's dim may differ; heads is a multiple of kv_heads.
        lengths: index [batch], keys of each sequence; None: the capacity of the rows.
        out: array to write, shaped as q with v's dim, of q's type or float32.
        lse: True: also return the natural log of the denominator, float32, shaped as out
            without its last dimension; or the array to write it to.
        out_dtype: of the array that is allocated: q's (None) or "float32".
        causal, window: keep keys j <= p; keep p - left <= j <= p + right, -1: no bound.
        softcap, scale: see above; 0: none, None: 1 / sqrt(dim).
        sinks, alibi_slopes: real [heads]; sinks are natural logits.
        bias: [batch, heads, q_len, kv_len], real: added, or bool: keys to keep.
            numpy.broadcast_to makes it of something smaller without a copy.
        tree_mask: bool [batch, q_len, q_len]: which of the newest q_len keys a query sees.
        page_table: index [batch, width], page ids; or page_ids: index [num_ids], with
            page_indptr: index [batch + 1], where each sequence's ids begin.
        cache_rows: index [batch], the row of each sequence in a cache without pages.
        q_offsets: index [batch + 1], where each sequence's queries begin.
        backend: "auto", or one of info()["backends"].
        partition: "auto", "one_tile", "fixed_split" (num_splits per output tile) or
            "stream_k" (over num_workers). 0 everywhere: as suits the machine.
        batch_invariant: bits depend on a row's own query, keys, values and length only.

    Returns out, or (out, lse) where lse was asked for.

    Raises ValueError, TypeError or RuntimeError (unsupported, or q, k, v … that require a
    gradient) with a sentence, before anything is written.
    """
    call = _core.Call(layout, {
        "q": q, "k": k, "v": v, "lengths": lengths, "sinks": sinks,
        "alibi_slopes": alibi_slopes, "bias": bias, "tree_mask": tree_mask,
        "page_table": page_table, "page_ids": page_ids, "page_indptr": page_indptr,
        "cache_rows": cache_rows, "q_offsets": q_offsets,
    })
    plan = _core.plan(call, {
        "causal": causal, "window": window, "softcap": softcap, "scale": scale,
        "backend": backend, "partition": partition, "num_splits": num_splits,
        "num_workers": num_workers, "num_threads": num_threads,
        "batch_invariant": batch_invariant, "out": out, "out_dtype": dtype_name(out_dtype),
        "max_q_len": None, "max_kv_len": None,
    })
    return run(plan, call, out, lse, None)


def supports(
    q: Any, k: Any, v: Any, lengths: Any = None, *, out_dtype: Any = None,
    causal: bool = False, window: Tuple[int, int] = (-1, -1), softcap: float = 0.0,
    scale: Optional[float] = None, sinks: Any = None, alibi_slopes: Any = None,
    bias: Any = None, tree_mask: Any = None,
    page_table: Any = None, page_ids: Any = None, page_indptr: Any = None,
    cache_rows: Any = None, q_offsets: Any = None, layout: str = "NHD",
    backend: str = "auto", partition: str = "auto", num_splits: int = 0,
    num_workers: int = 0, num_threads: int = 0, batch_invariant: bool = False,
) -> Optional[str]:
    """Whether the backend computes what ``decode`` would be asked for.

    Takes the arguments of ``decode``. Returns None for yes, or the sentence that says why
    not. Raises ValueError or TypeError where the arguments make no sense at all.
    """
    call = _core.Call(layout, {
        "q": q, "k": k, "v": v, "lengths": lengths, "sinks": sinks,
        "alibi_slopes": alibi_slopes, "bias": bias, "tree_mask": tree_mask,
        "page_table": page_table, "page_ids": page_ids, "page_indptr": page_indptr,
        "cache_rows": cache_rows, "q_offsets": q_offsets,
    })
    return _core.why_not(call, {
        "causal": causal, "window": window, "softcap": softcap, "scale": scale,
        "backend": backend, "partition": partition, "num_splits": num_splits,
        "num_workers": num_workers, "num_threads": num_threads,
        "batch_invariant": batch_invariant, "out": None, "out_dtype": dtype_name(out_dtype),
        "max_q_len": None, "max_kv_len": None,
    })
