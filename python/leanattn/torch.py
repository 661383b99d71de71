"""Operators of PyTorch, which torch.compile, export and CUDA graphs take as they are.

    import leanattn.torch

    out = torch.ops.leanattn.decode(q, k, v, lengths, causal=True)
    out, lse = torch.ops.leanattn.decode_with_lse(q, k, v, lengths)
    torch.ops.leanattn.decode_out(q, k, v, lengths, out=out, lse=lse)

Their arguments are those of ``leanattn.decode`` but ``stream``: the work is in PyTorch's current
one. The last writes ``out``, and ``lse`` if it is given, and returns nothing. They compute no
gradients: RuntimeError where one would be wanted, so call them under torch.no_grad() or
torch.inference_mode(). Tested with PyTorch 2.9 and 2.11.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch

from . import _core
from ._decode import decode

_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? lengths=None, *, bool causal=False, "
    "int[2] window=[-1, -1], float softcap=0.0, float? scale=None, Tensor? sinks=None, "
    "Tensor? alibi_slopes=None, Tensor? bias=None, Tensor? tree_mask=None, "
    "Tensor? page_table=None, Tensor? page_ids=None, Tensor? page_indptr=None, "
    "Tensor? cache_rows=None, Tensor? q_offsets=None, str layout='NHD', str backend='auto', "
    "str partition='auto', int num_splits=0, int num_workers=0, int num_threads=0, "
    "bool batch_invariant=False, bool checked=False"
)


def _with_lse(q: Any, k: Any, v: Any, lengths: Any = None, **options: Any) -> Any:
    return decode(q, k, v, lengths, lse=True, **options)


def _out(q: Any, k: Any, v: Any, lengths: Any = None, **options: Any) -> None:
    decode(q, k, v, lengths, **options)


def _check_no_gradient(**arguments: Any) -> None:
    """Refuses while tracing what the kernels refuse when they run."""
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            _core.check_no_gradient(name, value)


def _fake(
    q: Any, k: Any, v: Any, lengths: Any = None, *, out_dtype: Any = None, **options: Any
) -> Any:
    _check_no_gradient(q=q, k=k, v=v, **options)
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=out_dtype or q.dtype)


def _fake_with_lse(
    q: Any, k: Any, v: Any, lengths: Any = None, **options: Any
) -> Tuple[Any, Any]:
    out = _fake(q, k, v, lengths, **options)
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


def _fake_out(q: Any, k: Any, v: Any, lengths: Any = None, **options: Any) -> None:
    _check_no_gradient(q=q, k=k, v=v, **options)


def _define() -> Any:
    library = torch.library.Library("leanattn", "DEF")
    # Caches have strides that the compiler must not exchange for others.
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    for name, rest, kernel, fake in (
        ("decode", ", ScalarType? out_dtype=None) -> Tensor", decode, _fake),
        ("decode_with_lse", ", ScalarType? out_dtype=None) -> (Tensor, Tensor)", _with_lse,
         _fake_with_lse),
        ("decode_out", ", Tensor(a!) out, Tensor(b!)? lse=None) -> ()", _out, _fake_out),
    ):
        library.define(f"{name}({_ARGUMENTS}{rest}", tags=tags)
        for device in ("CPU", "CUDA"):
            library.impl(name, kernel, device)
        torch.library.register_fake(f"leanattn::{name}", fake, lib=library)
    return library


_library = _define()  # the operators are there as long as this is
