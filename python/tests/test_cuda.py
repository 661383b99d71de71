"""What only a GPU shows: streams, graphs, workspaces, refusals, arrays of CuPy and JAX."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reference import batch_attention  # noqa: E402
from torch_arrays import HAS_CUDA, assert_near, make_tensors, tensor  # noqa: E402

import leanattn  # noqa: E402

if not HAS_CUDA:
    pytest.skip("needs a GPU, and a build with CUDA", allow_module_level=True)

CYCLES = 200_000_000  # about a tenth of a second


@pytest.fixture
def batch():
    return make_tensors("cuda", capacity=700, lengths=[700, 1, 300])


def expected_of(data):
    return batch_attention(data.q, data.k, data.v, data.lengths)[0]


def test_nothing_waits(batch):
    data, tensors = batch
    plan = leanattn.plan(*tensors)
    workspace = plan.make_workspace()
    calls = [lambda: leanattn.decode(*tensors), lambda: leanattn.decode(*tensors[:3]),
             lambda: plan.run(*tensors), lambda: plan.run(*tensors, workspace=workspace)]
    for call in calls:
        call()
        torch.cuda.synchronize()
        torch.cuda._sleep(CYCLES)
        out = call()
        assert not torch.cuda.current_stream().query()
    assert_near(out, expected_of(data))


def test_the_current_stream_is_taken(batch):
    data, tensors = batch
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(CYCLES)
        out = leanattn.decode(*tensors)
        assert not side.query() and torch.cuda.default_stream().query()
    side.synchronize()
    assert_near(out, expected_of(data))


class Stream:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.mark.parametrize("form", [
    lambda s: s, lambda s: s.cuda_stream, lambda s: Stream(ptr=s.cuda_stream),
    lambda s: Stream(__cuda_stream__=lambda: (0, s.cuda_stream)),
    lambda s: Stream(__cuda_stream__=(0, s.cuda_stream)),
])
def test_a_given_stream_is_taken(batch, form):
    data, tensors = batch
    side = torch.cuda.Stream()
    plan = leanattn.plan(*tensors)
    workspace = plan.make_workspace(stream=form(side))
    torch.cuda.synchronize()
    for call in (leanattn.decode, plan.run, lambda *x, **y: plan.run(*x, workspace=workspace, **y)):
        with torch.cuda.stream(side):
            torch.cuda._sleep(CYCLES)
        out = call(*tensors, stream=form(side))
        assert not side.query() and torch.cuda.current_stream().query()
        side.synchronize()
        assert_near(out, expected_of(data))


def captured(call):
    """A graph of `call`, and what it returns."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


@pytest.mark.parametrize("how", ["decode", "no lengths", "plan", "plan and workspace"])
def test_graphs(batch, how):
    data, (q, k, v, lengths) = batch
    plan = leanattn.plan(q, k, v)
    workspace = plan.make_workspace()
    call = {"decode": lambda: leanattn.decode(q, k, v, lengths),
            "no lengths": lambda: leanattn.decode(q, k[:, :1], v[:, :1]),
            "plan": lambda: plan.run(q, k, v, lengths),
            "plan and workspace": lambda: plan.run(q, k, v, lengths, workspace=workspace)}[how]
    graph, out = captured(call)
    for new in ([700, 1, 300], [3, 0, 200], [0, 0, 0], [700, 1, 299]):
        data.lengths = np.array([1, 1, 1] if how == "no lengths" else new, np.int32)
        lengths.copy_(tensor(data.lengths, "cuda"))
        out.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert_near(out, expected_of(data))
        assert torch.equal(out, call())


def test_a_graph_of_a_planned_run_is_its_kernels_alone(batch, tmp_path):
    _, (q, k, v, lengths) = batch
    plan = leanattn.plan(q, k, v, partition="stream_k")
    workspace, out = plan.make_workspace(), torch.empty_like(q)
    plan.run(q, k, v, lengths, out=out, workspace=workspace)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    graph.enable_debug_mode()
    with torch.cuda.graph(graph):
        plan.run(q, k, v, lengths, out=out, workspace=workspace)
    graph.instantiate()
    file = tmp_path / "graph.dot"
    graph.debug_dump(str(file))
    text = file.read_text()
    assert "MEMSET" not in text and "MEMCPY" not in text and text.count("KERNEL") >= 1
    assert "clear" not in text  # the kernel that makes counters 0


def test_workspaces_of_the_caller(batch):
    data, tensors = batch
    plan = leanattn.plan(*tensors, partition="stream_k")
    workspace = torch.full((plan.workspace_bytes + 64,), 255, dtype=torch.uint8, device="cuda")
    plan.initialise(workspace)
    for _ in range(3):
        assert_near(plan.run(*tensors, workspace=workspace), expected_of(data))
    with pytest.raises(ValueError, match="this plan needs at least"):
        plan.run(*tensors, workspace=workspace[: plan.workspace_bytes - 1])
    with pytest.raises(ValueError, match="not a multiple of 64 bytes"):
        plan.initialise(workspace[1:])
    with pytest.raises(TypeError, match="workspace lies in other memory than q"):
        plan.run(*tensors, workspace=workspace.cpu())


def test_plans_are_kept(batch):
    _, tensors = batch
    plan = leanattn.plan(*tensors)._plan
    assert leanattn.plan(*tensors)._plan is plan
    for other in ({"causal": True}, {"max_kv_len": 8}, {"partition": "one_tile"}, {"scale": 1.0}):
        assert leanattn.plan(*tensors, **other)._plan is not plan


@pytest.mark.parametrize("error, sentence, change", [
    (TypeError, "k lies in host memory; it must lie in memory of device 0", {"k": "cpu"}),
    (TypeError, "lengths lies in host memory; it must lie in memory", {"lengths": "cpu"}),
    (TypeError, "k lies in memory of device 0; it must lie in host memory",
     {"q": "cpu", "lengths": "cpu"}),
])
def test_mixed_memory(batch, error, sentence, change):
    tensors = dict(zip("q k v lengths".split(), batch[1]))
    for name, device in change.items():
        tensors[name] = tensors[name].to(device)
    with pytest.raises(error, match=sentence):
        leanattn.decode(**tensors)


def test_a_plan_is_of_one_memory(batch):
    data, (q, k, v, lengths) = batch
    host = [x.cpu() for x in (q, k, v, lengths)]
    with pytest.raises(TypeError, match="q lies in host memory; it must lie in memory of device 0"):
        leanattn.plan(q, k, v).run(*host)
    with pytest.raises(TypeError, match="q lies in memory of device 0; it must lie in host memory"):
        leanattn.plan(*host[:3]).run(q, k, v, lengths)
    assert_near(leanattn.decode(q, k, v, lengths, stream=0), expected_of(data))


def test_refusals(batch):
    _, (q, k, v, lengths) = batch
    with pytest.raises(TypeError, match="out lies in host memory; it must lie in memory of device"):
        leanattn.decode(q, k, v, lengths, out=torch.empty_like(q, device="cpu"))
    sentence = "backend cuda computes with f16 and bf16; q_type is f32"
    with pytest.raises(RuntimeError, match=sentence):
        leanattn.decode(q.float(), k, v, lengths)
    assert leanattn.supports(q.float(), k, v, lengths) == sentence
    with pytest.raises(ValueError, match="num_threads is 2 but backend cuda has no threads"):
        leanattn.decode(q, k, v, lengths, num_threads=2)
    with pytest.raises(RuntimeError, match="backend cpu reads host memory"):
        leanattn.decode(q, k, v, lengths, backend="cpu")
    with pytest.raises(ValueError, match=r"lengths\[1\] is 701; it must be from 0 to 700"):
        leanattn.decode(q, k, v, tensor(np.array([1, 701, 1]), "cuda"), checked=True)
    out, lse = leanattn.decode(q, k, v, lengths, lse=True)
    with pytest.raises(TypeError, match="out_a lies in memory of device 0; it must lie in host"):
        leanattn.merge_states(out, lse, out, lse)
    with pytest.raises(TypeError, match="lies in memory of device 0; it must lie in host memory"):
        leanattn.append_kv(k[:, :1], v[:, :1], lengths, k, v)


def test_cupy(batch):
    cupy = pytest.importorskip("cupy")
    data, tensors = batch
    q, k, v, lengths = (cupy.asarray(x) for x in (data.q, data.k, data.v, data.lengths))
    cupy.cuda.runtime.deviceSynchronize()
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        plan = leanattn.plan(q, k, v, partition="stream_k")
        with stream:
            outs = [leanattn.decode(q, k, v, lengths), plan.run(q, k, v, lengths),
                    plan.run(q, k, v, lengths, workspace=plan.make_workspace())]
            out, lse = leanattn.decode(q, k, v, lengths, lse=True)
        outs += [out, leanattn.decode(q, k, v, lengths, stream=stream)]
        stream.synchronize()
        assert isinstance(lse, cupy.ndarray) and lse.dtype == np.float32
        for out in outs:
            assert isinstance(out, cupy.ndarray)
            assert_near(torch.from_dlpack(out), expected_of(data))
    mixed = leanattn.decode(tensors[0], k, v, lengths)
    assert_near(mixed, expected_of(data))


def test_jax(batch):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError:
        pytest.skip("JAX here has no GPU")
    data, _ = batch
    arrays = [jax.device_put(x, device) for x in (data.q, data.k, data.v, data.lengths)]
    out = torch.full(data.q.shape, torch.nan, dtype=torch.float16, device="cuda")
    assert leanattn.decode(*arrays, out=out) is out
    assert_near(out, expected_of(data))
    with pytest.raises(RuntimeError, match="q is an array of jax in memory of device 0"):
        leanattn.decode(*arrays)
    with pytest.raises(ValueError, match="out is a JAX array, which is immutable"):
        leanattn.decode(*arrays, out=arrays[0])
