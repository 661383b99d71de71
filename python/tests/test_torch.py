"""Tensors of torch, on the CPU and on a GPU: layouts, caches and rules, results, refusals."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import make_pages  # noqa: E402
from reference import attention, batch_attention  # noqa: E402
from torch_arrays import HALF, assert_near, make_tensors, on_devices, tensor  # noqa: E402

import leanattn  # noqa: E402


@on_devices
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_contiguous(device, dtype, dim, layout):
    data, (q, k, v, lengths) = make_tensors(device, dtype, dim=dim)
    if layout == "HND":
        k, v = k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()
    out, lse = leanattn.decode(q, k, v, lengths, lse=True, layout=layout)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths)
    assert out.dtype == dtype and out.device == q.device and lse.device == q.device
    assert_near(out, expected, dtype)
    assert_near(lse, expected_lse, dtype)


@on_devices
@pytest.mark.parametrize("as_csr", [False, True])
def test_pages(device, as_csr):
    data, (q, _, _, lengths) = make_tensors(device, lengths=[150, 0, 33])
    k, v, tables = make_pages(data, 16, as_csr=as_csr)
    tables = {name: tensor(x, device) for name, x in tables.items()}
    out = leanattn.decode(q, tensor(k, device), tensor(v, device), lengths, **tables)
    assert_near(out, batch_attention(data.q, data.k, data.v, data.lengths)[0])


@on_devices
@pytest.mark.parametrize("rules", [
    {"causal": True}, {"window": (20, 0)}, {"softcap": 3.0}, {"scale": 0.5},
    {"partition": "one_tile"}, {"partition": "fixed_split", "num_splits": 3},
    {"partition": "stream_k", "num_workers": 5}, {"batch_invariant": True}, {"checked": True},
])
def test_rules_and_options(device, rules):
    data, tensors = make_tensors(device, q_len=3, capacity=700)
    out = leanattn.decode(*tensors, **rules)
    rules = {key: x for key, x in rules.items() if key in ("causal", "window", "softcap", "scale")}
    assert_near(out, batch_attention(data.q, data.k, data.v, data.lengths, **rules)[0])


@on_devices
def test_arrays_of_rules(device):
    data, tensors = make_tensors(device, q_len=4)
    sinks = data.rng.standard_normal(8).astype(np.float32)
    slopes = (2.0 ** -np.arange(1, 9)).astype(np.float32)
    bias = data.rng.standard_normal((1, 1, 4, 150)).astype(np.float32)
    tree = np.tril(data.rng.random((3, 4, 4)) < 0.5) | np.eye(4, dtype=bool)
    on = {"sinks": sinks, "alibi_slopes": slopes, "bias": bias, "tree_mask": tree}
    out, lse = leanattn.decode(*tensors, lse=True, **{k: tensor(x, device) for k, x in on.items()})
    expected, expected_lse = batch_attention(
        data.q, data.k, data.v, data.lengths, sinks=sinks, slopes=slopes, tree=tree,
        bias=np.broadcast_to(bias, (3, 8, 4, 150)))
    assert_near(out, expected)
    assert_near(lse, expected_lse)


@on_devices
def test_ragged_queries(device):
    data, (_, k, v, lengths) = make_tensors(device, batch=4, lengths=[9, 150, 70, 5])
    offsets = np.array([0, 3, 3, 8, 9], np.int32)
    q = data.rng.standard_normal((9, 8, 64)).astype(np.float16)
    out = leanattn.decode(tensor(q, device), k, v, lengths, q_offsets=tensor(offsets, device),
                          causal=True)
    for b in range(4):
        own = slice(offsets[b], offsets[b + 1])
        expected = attention(q[own], data.k[b], data.v[b], data.lengths[b], causal=True)[0]
        assert_near(out[own], expected)


@on_devices
def test_without_lengths_all_keys_count(device):
    data, (q, k, v, _) = make_tensors(device, lengths=[150] * 3)
    expected = batch_attention(data.q, data.k, data.v, data.lengths)[0]
    assert_near(leanattn.decode(q, k, v), expected)
    assert_near(leanattn.plan(q, k, v).run(q, k, v), expected)


@on_devices
def test_results(device):
    data, (q, k, v, lengths) = make_tensors(device)
    expected = leanattn.decode(q, k, v, lengths)
    out = torch.full((3, 1, 16, 64), torch.nan, dtype=q.dtype, device=device)
    lse = torch.empty(3, 1, 8, device=device)
    same, same_lse = leanattn.decode(q, k, v, lengths, out=out[:, :, ::2], lse=lse)
    assert same.data_ptr() == out.data_ptr() and same_lse is lse
    assert torch.equal(same, expected) and out[:, :, 1::2].isnan().all()
    for name in ("float32", torch.float32, np.float32):
        assert leanattn.decode(q, k, v, lengths, out_dtype=name).dtype == torch.float32
    none = leanattn.decode(q[:0], k, v, lengths[:0])
    assert none.shape == (0, 1, 8, 64) and none.device == q.device


@on_devices
def test_a_plan_runs_many_times(device):
    data, (q, k, v, lengths) = make_tensors(device, capacity=3000)
    plan = leanattn.plan(q, k, v, max_kv_len=3000)
    assert plan.backend == device
    workspace = plan.make_workspace()
    assert len(workspace) == plan.workspace_bytes
    for new in (data.lengths, np.minimum(data.lengths, 100), np.zeros(3, np.int32)):
        out = plan.run(q, k, v, tensor(new, device), workspace=workspace)
        assert_near(out, batch_attention(data.q, data.k, data.v, new)[0])
        assert torch.equal(out, plan.run(q, k, v, tensor(new, device)))


@on_devices
@pytest.mark.parametrize("error, sentence, change", [
    (TypeError, "lengths is float32; it must be int32 or int64",
     lambda x: {"lengths": x.lengths.float()}),
    (ValueError, "q has stride 2 in its last dimension",
     lambda x: {"q": x.q.repeat_interleave(2, -1)[..., ::2]}),
    (ValueError, "sinks has shape [7]; it must be [8]", lambda x: {"sinks": x.q[0, 0, :7, 0]}),
    (TypeError, "out is f32; it must be f16",
     lambda x: {"lse": x.q.new_empty(3, 1, 8, dtype=torch.float32), "plan": True,
                "out": x.q.float()}),
    (TypeError, "lse is f16; it must be f32", lambda x: {"lse": x.q[..., 0]}),
    (TypeError, "q is float64", lambda x: {"q": x.q.double()}),
    (TypeError, "q is complex64", lambda x: {"q": x.q.to(torch.complex64)}),
    (TypeError, "k is ",  # newer versions of torch let it out by DLPack
     lambda x: {"k": x.k.to(torch.float8_e5m2)}),
    (TypeError, "lengths is a Tensor of torch.int32; it must be an array of numbers",
     lambda x: {"lengths": x.lengths.to_sparse()}),
    (TypeError, "tree_mask is f16; it must be bool", lambda x: {"tree_mask": x.q[:, :, :1, 0]}),
    (ValueError, "num_splits is 2 but the partition is auto", lambda x: {"num_splits": 2}),
    (TypeError, "a call takes no argument called scal", lambda x: {"scal": 2}),
])
def test_refusals(device, error, sentence, change):
    from types import SimpleNamespace

    _, tensors = make_tensors(device)
    call = dict(zip("q k v lengths".split(), tensors))
    change = change(SimpleNamespace(**call))
    plan = leanattn.plan(**call) if change.pop("plan", False) else None
    with pytest.raises(error) as raised:
        (plan.run if plan else leanattn.decode)(**{**call, **change})
    assert sentence in str(raised.value)


def test_the_plans_options_are_not_a_runs():
    _, (q, k, v, lengths) = make_tensors("cpu")
    with pytest.raises(TypeError, match="a run of a plan takes no argument called causal"):
        leanattn.plan(q, k, v).run(q, k, v, lengths, causal=True)


def test_a_stream_is_for_devices():
    _, tensors = make_tensors("cpu")
    with pytest.raises(ValueError, match="stream is given, but q lies in host memory"):
        leanattn.decode(*tensors, stream=0)
    for stream, sentence in [("s", "stream is a str; it must be None, an integer, or have"),
                             (True, "stream is True; a handle must be an integer")]:
        with pytest.raises(TypeError, match=sentence):
            leanattn.decode(*tensors, stream=stream)
    with pytest.raises(ValueError, match="stream is -1; a handle must be at least 0"):
        leanattn.decode(*tensors, stream=-1)
