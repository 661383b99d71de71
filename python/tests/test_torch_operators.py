"""torch.ops.leanattn: schemas, tracing, compilation, capture and refusals."""

import pytest

torch = pytest.importorskip("torch")

from torch_arrays import DEVICES, make_tensors, needs_cuda, on_devices  # noqa: E402

import leanattn  # noqa: E402
import leanattn.torch  # noqa: E402

ops = torch.ops.leanattn


def options_of(device):
    """Arguments of every kind that a schema has, for the batch of make_tensors."""
    heads = torch.arange(8, device=device, dtype=torch.float32)
    keep = torch.ones(1, 1, 2, 150, dtype=torch.bool, device=device)
    tree = torch.ones(3, 2, 2, dtype=torch.bool, device=device)
    return [{}, {"causal": True, "window": [9, -1], "scale": 0.25, "out_dtype": torch.float32},
            {"sinks": heads, "alibi_slopes": heads / 16, "bias": keep, "tree_mask": tree},
            {"partition": "fixed_split", "num_splits": 2}, {"softcap": 2.0, "layout": "NHD"}]


@on_devices
@pytest.mark.parametrize("which", range(5))
def test_they_are_decode(device, which):
    _, tensors = make_tensors(device, q_len=2)
    options = options_of(device)[which]
    out, lse = leanattn.decode(*tensors, lse=True, **options)
    assert torch.equal(ops.decode(*tensors, **options), out)
    both = ops.decode_with_lse(*tensors, **options)
    assert torch.equal(both[0], out) and torch.equal(both[1], lse)
    options.pop("out_dtype", None)
    written = [torch.full_like(x, torch.nan) for x in (out, lse)]
    assert ops.decode_out(*tensors, out=written[0], lse=written[1], **options) is None
    assert torch.equal(written[0], out) and torch.equal(written[1], lse)


@on_devices
@pytest.mark.parametrize("which", range(3))
def test_opcheck(device, which):
    _, tensors = make_tensors(device, q_len=2)
    for tensor in tensors[1:3]:  # opcheck calls x != x a difference
        tensor.nan_to_num_()
    options = options_of(device)[which]
    for op in (ops.decode, ops.decode_with_lse):
        torch.library.opcheck(op, tuple(tensors), options)
    options.pop("out_dtype", None)
    out, lse = torch.empty_like(tensors[0]), torch.empty(3, 2, 8, device=device)
    torch.library.opcheck(ops.decode_out, tuple(tensors), {**options, "out": out})
    torch.library.opcheck(ops.decode_out, tuple(tensors), {**options, "out": out, "lse": lse})


def test_meta_tensors():
    q, k = torch.empty(5, 1, 8, 64, device="meta"), torch.empty(5, 9, 2, 64, device="meta")
    out, lse = ops.decode_with_lse(q, k, k[..., :32])
    assert out.shape == (5, 1, 8, 32) and out.device.type == "meta" and out.dtype == q.dtype
    assert lse.shape == (5, 1, 8) and lse.dtype == torch.float32
    offsets = torch.empty(6, dtype=torch.int32, device="meta")
    ragged = ops.decode(q[:, 0], k, k, q_offsets=offsets, out_dtype=torch.float32)
    assert ragged.shape == (5, 8, 64) and ragged.dtype == torch.float32


def step(q, k, v, lengths, out):
    ops.decode_out(q * 2, k, v, lengths, out=out)
    return ops.decode(q * 2, k.transpose(1, 2), v.transpose(1, 2), lengths, layout="HND") + out


@pytest.mark.parametrize("device, backend", [
    ("cpu", "aot_eager"), ("cpu", "inductor"), pytest.param("cuda", "inductor", marks=needs_cuda),
])
def test_compiled_in_one_graph(device, backend):
    _, tensors = make_tensors(device)
    outs = [torch.empty_like(tensors[0]) for _ in range(2)]
    expected = step(*tensors, outs[0])
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    assert torch.equal(compiled(*tensors, outs[1]), expected) and torch.equal(*outs)


@on_devices
def test_captured_step(device):
    if device == "cpu":
        pytest.skip("only a GPU captures")
    _, tensors = make_tensors(device)
    tensors[3].fill_(3)
    out = torch.empty_like(tensors[0])
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for call in (step, compiled):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(*tensors, out)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            both = call(*tensors, out)
        for new in (1, 0, 2):
            tensors[3].fill_(new)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(both, step(*tensors, torch.empty_like(out)))


@on_devices
def test_gradients_are_refused(device):
    _, (q, k, v, lengths) = make_tensors(device)
    sentence = "k has requires_grad True; it must be False, because leanattn computes no gradients"
    k = k.requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(ops.decode, fullgraph=True, backend="aot_eager")
    for call in (ops.decode, compiled):
        with pytest.raises(RuntimeError, match=sentence):
            call(q, k, v, lengths)
        with torch.no_grad():
            assert not call(q, k, v, lengths).requires_grad
    with torch.inference_mode():
        ops.decode(q, k, v, lengths)


@pytest.mark.parametrize("device", DEVICES)
def test_refusals_are_those_of_decode(device):
    _, (q, k, v, lengths) = make_tensors(device)
    with pytest.raises(ValueError, match="partition is two_tile; allowed are auto"):
        ops.decode(q, k, v, lengths, partition="two_tile")
    with pytest.raises(TypeError, match="lengths is float32; it must be int32 or int64"):
        ops.decode(q, k, v, lengths.float())
    if device == "cuda":
        with pytest.raises(TypeError, match="lengths lies in host memory; it must lie in memory"):
            ops.decode(q, k, v, lengths.cpu())


def test_the_package_does_not_import_torch():
    import subprocess
    import sys

    code = "import leanattn, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
