"""Arrays for results, where the caller gives none."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import numpy as np

from . import _core

Result = Union[Any, Tuple[Any, Any]]


def dtype_name(dtype: Any) -> Optional[str]:
    """The name of ``dtype``, which is a name, a type of numpy or torch, or None."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    text = str(dtype)
    return text[len("torch.") :] if text.startswith("torch.") else np.dtype(dtype).name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype called ``name``; that of bfloat16 is ml_dtypes'."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise TypeError(
            "out would be bfloat16, which numpy has only with ml_dtypes; install ml_dtypes, "
            "or give out or out_dtype='float32'"
        ) from None
    dtype: np.dtype[Any] = np.dtype(bfloat16)
    return dtype


def check_mutable(name: str, array: Any) -> None:
    """JAX lets its immutable arrays out as if they could be written."""
    if type(array).__module__.split(".")[0] in ("jax", "jaxlib"):
        raise ValueError(f"{name} is a JAX array, which is immutable; it must be writable")


def run(plan: _core.Plan, call: _core.Call, out: Any, lse: Any, workspace: Any) -> Result:
    """Runs ``plan`` and returns ``out``, or ``(out, lse)`` where lse was asked for."""
    if not call.on_host and (out is None or lse is True):
        raise RuntimeError(
            "q lies in device memory, where leanattn allocates nothing for Python; out, and lse "
            "if wanted, must be given as arrays of that device"
        )
    if out is None:
        out = np.empty(call.out_shape, numpy_dtype(plan.out_dtype))
    else:
        check_mutable("out", out)
    if lse is True:
        lse = np.empty(call.out_shape[:-1], np.float32)
    elif lse is False:
        lse = None
    else:
        check_mutable("lse", lse)
    _core.run(plan, call, {"out": out, "lse": lse, "workspace": workspace})
    return out if lse is None else (out, lse)
