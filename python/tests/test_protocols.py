"""Arrays of others: DLPack, the buffer protocol, torch; and what the package says of itself."""

import array
import ctypes
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_batch
from reference import assert_close, batch_attention

import leanattn

DATA = make_batch()
HOST, CUDA, ROCM = 1, 2, 10
INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Foreign:
    """A tensor of another library, over the memory of `base`; contiguous."""

    def __init__(self, base, *, code=FLOAT, device=HOST, index=0):
        self.base = np.ascontiguousarray(base)
        self.shape = self.base.shape
        self._shape = (ctypes.c_int64 * self.base.ndim)(*self.shape)
        tensor = DLTensor(self.base.ctypes.data, device, index, self.base.ndim, code,
                          8 * self.base.itemsize, 1, ctypes.addressof(self._shape), None, 0)
        self._managed = DLManagedTensor(tensor, None, None)
        self._device = (device, index)

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._managed), b"dltensor", None)


def test_dlpack(dtype):
    data = make_batch(dtype=dtype)
    code = BFLOAT if dtype.name == "bfloat16" else FLOAT
    tensors = [Foreign(x.view("u2") if code == BFLOAT else x, code=code)
               for x in (data.q, data.k, data.v)]
    out = leanattn.decode(*tensors, Foreign(data.lengths, code=INT))
    assert isinstance(out, np.ndarray) and out.dtype == dtype
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths)[0], dtype)
    mine = Foreign(np.zeros_like(DATA.q))
    assert leanattn.decode(DATA.q, DATA.k, DATA.v, DATA.lengths, out=mine) is mine
    assert np.array_equal(mine.base, leanattn.decode(DATA.q, DATA.k, DATA.v, DATA.lengths))


def test_device_memory_gets_the_librarys_answer():
    if "cuda" in leanattn.info()["backends"]:
        pytest.skip("this build reads device memory")
    tensors = [Foreign(x, device=CUDA) for x in (DATA.q, DATA.k, DATA.v)]
    lengths = Foreign(DATA.lengths, code=INT, device=CUDA)
    sentence = "the tensors are in device memory; this build has no backend that reads it"
    with pytest.raises(RuntimeError, match=sentence):
        leanattn.decode(*tensors, lengths)
    assert leanattn.supports(*tensors, lengths) == sentence
    with pytest.raises(TypeError, match="k lies in memory of device 0; it must lie in host memory"):
        leanattn.decode(DATA.q, *tensors[1:], DATA.lengths)
    plan = leanattn.plan(DATA.q, DATA.k, DATA.v)
    with pytest.raises(TypeError, match="workspace lies in other memory than q"):
        plan.run(DATA.q, DATA.k, DATA.v, DATA.lengths,
                 workspace=Foreign(plan.make_workspace(), code=UINT, device=CUDA))
    with pytest.raises(TypeError, match="q lies on a device of DLPack type 10"):
        leanattn.decode(Foreign(DATA.q, device=ROCM), DATA.k, DATA.v)


def test_buffers():
    q = memoryview(DATA.q)
    lengths = array.array("i", DATA.lengths)
    expected = leanattn.decode(DATA.q, DATA.k, DATA.v, DATA.lengths)
    assert np.array_equal(leanattn.decode(q, DATA.k, DATA.v, lengths), expected)
    out = np.empty_like(DATA.q)
    leanattn.decode(q, DATA.k, DATA.v, lengths, out=memoryview(out))
    assert np.array_equal(out, expected)
    with pytest.raises(ValueError, match="out is read-only"):
        leanattn.decode(q, DATA.k, DATA.v, lengths, out=memoryview(out).toreadonly())


def test_nothing_is_kept():
    counts = [sys.getrefcount(x) for x in (DATA.q, DATA.k, DATA.v, DATA.lengths)]
    for _ in range(3):
        plan = leanattn.plan(DATA.q, DATA.k, DATA.v, DATA.lengths)
        plan.run(DATA.q, DATA.k, DATA.v, DATA.lengths)
        with pytest.raises(TypeError):
            leanattn.decode(DATA.q, DATA.k, None)
    assert counts == [sys.getrefcount(x) for x in (DATA.q, DATA.k, DATA.v, DATA.lengths)]


def test_torch():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in (DATA.q, DATA.k, DATA.v))
    lengths = torch.from_numpy(DATA.lengths)
    expected = leanattn.decode(DATA.q, DATA.k, DATA.v, DATA.lengths)
    out = torch.empty_like(q)
    assert leanattn.decode(q, k, v, lengths, out=out) is out
    assert np.array_equal(out.numpy(), expected)
    q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))
    out, lse = leanattn.decode(q, k, v, lengths, lse=True)
    assert isinstance(out, torch.Tensor) and out.dtype == torch.bfloat16
    assert isinstance(lse, torch.Tensor) and lse.dtype == torch.float32 and lse.shape == (3, 1, 8)
    out = leanattn.decode(q, k, v, lengths, out_dtype=torch.float32)
    assert out.dtype == torch.float32
    whole, _ = leanattn.merge_states(out, lse, torch.full_like(out, torch.nan),
                                     torch.full_like(lse, -torch.inf))
    assert isinstance(whole, torch.Tensor) and torch.equal(whole, out)


def test_torch_gradients():
    torch = pytest.importorskip("torch")
    q, k, v, n = (torch.from_numpy(x) for x in (DATA.q, DATA.k, DATA.v, DATA.lengths))
    expected = leanattn.decode(q, k, v, n)
    for wanting in (q.clone().requires_grad_(), torch.nn.Parameter(q)):
        with pytest.raises(RuntimeError, match="q has requires_grad True; it must be False"):
            leanattn.decode(wanting, k, v, n)
        for without in (torch.no_grad(), torch.inference_mode()):
            with without:
                out = leanattn.decode(wanting, k, v, n)
            assert not out.requires_grad and torch.equal(out, expected)


def test_jax():
    jax = pytest.importorskip("jax")
    host = jax.devices("cpu")[0]
    arrays = [jax.device_put(x, host) for x in (DATA.q, DATA.k, DATA.v, DATA.lengths)]
    expected = leanattn.decode(DATA.q, DATA.k, DATA.v, DATA.lengths)
    assert np.array_equal(leanattn.decode(*arrays), expected)
    with pytest.raises(ValueError, match="out is a JAX array, which is immutable"):
        leanattn.decode(*arrays, out=arrays[0])


def test_info():
    info = leanattn.info()
    assert re.fullmatch(r"\d+\.\d+\.\d+", info["version"])
    assert info["version"] == leanattn.__version__
    assert "cpu" in info["backends"] and info["default"] in info["backends"]
    assert info["machine"]


def test_files_of_the_package():
    folder = Path(leanattn.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_core.pyi").exists()
    for name in leanattn.__all__:
        assert getattr(leanattn, name).__doc__, name
