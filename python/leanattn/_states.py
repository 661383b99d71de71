"""Merging of finished results."""

from __future__ import annotations

from typing import Any, Tuple

from . import _core
from ._results import dtype_name, empty


def _like(name: str, array: Any, *, parts: bool, dtype: Any = "float32") -> Any:
    """An empty array as `array`, or as one of the parts in it."""
    shape = getattr(array, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is a {type(array).__name__}; it must be an array")
    place = (_core.library_name(array), None)
    return empty(place, tuple(shape)[1 if parts else 0 :], dtype_name(dtype) or "float32")


def merge_states(
    out_a: Any, lse_a: Any, out_b: Any = None, lse_b: Any = None, *,
    out: Any = None, lse: Any = None,
) -> Tuple[Any, Any]:
    """Merges results over disjoint keys of the same queries into that over all of them.

    merge_states(out_a, lse_a, out_b, lse_b) merges two; merge_states(outs, lses) any
    number, in order, which stand along the first dimension of both.

    Arguments:
        out_a, out_b: real [rows, heads, v_head_dim] or [batch, q_len, heads, v_head_dim];
            outs likewise with [parts, …] in front.
        lse_a, lse_b: float32, shaped as these without their last dimension: the natural
            log of the denominators, as ``decode`` returns it. -inf, or +inf, marks a result
            of no keys, which changes no bit of the other and is not read.
        out, lse: arrays to write; may be out_a and lse_a themselves. None: allocated, torch's
            if out_a is, else numpy's, out with the type of out_a.

    Host memory. Formula: softmax re-scaling as reduction, arXiv 2405.10480.
    Returns (out, lse). Raises ValueError or TypeError before anything is written.
    """
    if (out_b is None) != (lse_b is None):
        missing, given = ("out_b", "lse_b") if out_b is None else ("lse_b", "out_b")
        raise ValueError(f"{missing} is None; it must be given, because {given} is")
    parts = out_b is None
    if out is None:
        dtype = getattr(out_a, "dtype", None)
        out = _like("outs" if parts else "out_a", out_a, parts=parts, dtype=dtype)
    if lse is None:
        lse = _like("lses" if parts else "lse_a", lse_a, parts=parts)
    if parts:
        _core.merge_parts({"outs": out_a, "lses": lse_a, "out": out, "lse": lse})
    else:
        _core.merge_two({
            "out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b,
            "out": out, "lse": lse,
        })
    return out, lse
