"""Arrays for results and workspaces, where the caller gives none."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, ContextManager, Optional, Tuple, Union

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


def _where(place: _core.Place) -> str:
    """What an array of ``place`` is called in a sentence."""
    library, device = place
    named = "an array" if library == "other" else f"an array of {library}"
    return f"{named} in {'host memory' if device is None else f'memory of device {device}'}"


@lru_cache(maxsize=64)
def _of_torch(dtype: str, device: Optional[int]) -> Tuple[Any, Any]:
    """torch's type and device of these names."""
    torch = sys.modules["torch"]
    where = torch.device("cpu") if device is None else torch.device("cuda", device)
    return getattr(torch, dtype), where


def empty(place: _core.Place, shape: Tuple[int, ...], dtype: str) -> Any:
    """An array of the library and in the memory of ``place``, or of numpy in host memory."""
    library, device = place
    if library == "torch":
        torch_dtype, where = _of_torch(dtype, device)
        return sys.modules["torch"].empty(shape, dtype=torch_dtype, device=where)
    if device is None:
        return np.empty(shape, numpy_dtype(dtype))
    if library == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device):
            return cupy.empty(shape, numpy_dtype(dtype))
    raise RuntimeError(
        f"q is {_where(place)}, where leanattn allocates with torch and CuPy only; out, and what "
        "is wanted of lse, lengths and a workspace, must be given as arrays of that device"
    )


def allocates(place: _core.Place) -> bool:
    """Whether ``empty`` has memory of ``place``."""
    return place[1] is None or place[0] in ("torch", "cupy")


def working_in(place: _core.Place, stream: int) -> ContextManager[Any]:
    """Makes the library of ``place`` allocate what is free in ``stream``, a handle."""
    library, device = place
    if library not in ("torch", "cupy") or device is None:
        return nullcontext()
    cuda = sys.modules[library].cuda
    context: ContextManager[Any]
    if library == "torch":
        context = cuda.stream(cuda.ExternalStream(stream, device=device))
    else:
        context = cuda.ExternalStream(stream, device)
    return context


def _lengths(call: _core.Call) -> Any:
    """As many keys as the cache has room for, for every sequence."""
    lengths = empty(call.place, (call.batch,), "int64")
    fill = lengths.fill_ if call.place[0] == "torch" else lengths.fill
    fill(call.capacity)
    return lengths


def _run(plan: _core.Plan, call: _core.Call, out: Any, lse: Any, workspace: Any) -> Result:
    place = call.place
    if call.lacks_lengths:
        call.set_lengths(_lengths(call))
    if out is None:
        out = empty(place, call.out_shape, plan.out_dtype)
    if lse is True:
        lse = empty(place, call.out_shape[:-1], "float32")
    elif lse is False:
        lse = None
    fresh = workspace is None and place[1] is not None and allocates(place)
    if fresh and plan.workspace_bytes > 0:
        workspace = empty(place, (plan.workspace_bytes,), "uint8")
    _core.run(plan, call, out, lse, workspace, fresh)
    return out if lse is None else (out, lse)


def run(plan: _core.Plan, call: _core.Call, out: Any, lse: Any, workspace: Any) -> Result:
    """Runs ``plan`` and returns ``out``, or ``(out, lse)`` where lse was asked for.

    workspace None: as the library of q allocates, or else the backend, and made ready.
    """
    if not call.stream_given:
        return _run(plan, call, out, lse, workspace)
    with working_in(call.place, call.stream):
        return _run(plan, call, out, lse, workspace)
