"""Batches of conftest.py as tensors of torch, on every device that there is."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import make_batch  # noqa: E402

import leanattn  # noqa: E402

HAS_CUDA = torch.cuda.is_available() and "cuda" in leanattn.info()["backends"]
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="needs a GPU, and a build with CUDA")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
HALF = [torch.float16, torch.bfloat16]
on_devices = pytest.mark.parametrize("device", DEVICES)


def tensor(array, device):
    """`array` of numpy, and bfloat16 of ml_dtypes, as a tensor on `device`."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def numpy(out):
    """A tensor in numpy's float32."""
    return out.float().cpu().numpy()


def make_tensors(device, dtype=torch.float16, **sizes):
    """The batch in numpy, and q, k, v, lengths on `device`."""
    name = "float16" if dtype == torch.float16 else "bfloat16"
    numpy_type = np.float16
    if name == "bfloat16":
        import ml_dtypes

        numpy_type = ml_dtypes.bfloat16
    data = make_batch(dtype=numpy_type, **sizes)
    return data, [tensor(x, device) for x in (data.q, data.k, data.v, data.lengths)]


def assert_near(out, expected, dtype=torch.float16):
    """Within the rounding of `dtype`, of inputs and output."""
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(numpy(out), expected, rtol=4 * eps, atol=max(2 * eps, 4e-6))
