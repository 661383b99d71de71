"""A plan runs many times: other lengths, other caches, one workspace, several threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import make_batch, make_pages
from reference import assert_close, batch_attention

import leanattn


def test_steps_of_a_decoder():
    data = make_batch(lengths=[90, 10, 0])
    plan = leanattn.plan(data.q, data.k, data.v, data.lengths)
    workspace = plan.make_workspace()
    out = np.empty_like(data.q)
    lengths = data.lengths.copy()
    for step in range(4):
        new = data.rng.standard_normal((2, 3, 1, 2, 64)).astype(np.float32)
        leanattn.append_kv(new[0], new[1], lengths, data.k, data.v)
        lengths += 1
        assert plan.run(data.q, data.k, data.v, lengths, out=out, workspace=workspace) is out
        assert_close(out, batch_attention(data.q, data.k, data.v, lengths)[0])


def test_rules_and_tables_are_the_plans():
    data = make_batch(q_len=3)
    k, v, tables = make_pages(data, 16)
    sinks = np.zeros(8, np.float32)
    plan = leanattn.plan(data.q, k, v, data.lengths, causal=True, sinks=sinks, **tables)
    out, lse = plan.run(data.q, k, v, data.lengths, sinks=sinks, lse=True, **tables)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths, causal=True,
                                             sinks=sinks)
    assert_close(out, expected)
    assert_close(lse, expected_lse)
    with pytest.raises(ValueError, match="sinks is not given, but has_sinks"):
        plan.run(data.q, k, v, data.lengths, **tables)


def test_hnd_and_ragged():
    data = make_batch(batch=2, lengths=[40, 50])
    q = data.rng.standard_normal((3, 8, 64)).astype(np.float32)
    k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (data.k, data.v))
    plan = leanattn.plan(q, k, v, q_offsets=np.array([0, 1, 3]), max_q_len=3, layout="HND")
    for offsets in ([0, 1, 3], [0, 3, 3], [0, 0, 3]):
        offsets = np.array(offsets)
        out = plan.run(q, k, v, data.lengths, q_offsets=offsets)
        expected = leanattn.decode(q, data.k, data.v, data.lengths, q_offsets=offsets)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_many_threads_run_one_plan():
    data = make_batch(capacity=2000)
    plan = leanattn.plan(data.q, data.k, data.v, num_threads=2)
    expected = plan.run(data.q, data.k, data.v, data.lengths)

    def run(_):
        return plan.run(data.q, data.k, data.v, data.lengths, workspace=plan.make_workspace())

    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(run, range(40)):
            assert np.array_equal(out, expected)


def test_others_go_on_while_it_computes():
    q = np.zeros((1, 32, 32, 128), np.float32)
    k = np.zeros((1, 20000, 4, 128), np.float32)
    done = threading.Event()
    turns = 0
    with ThreadPoolExecutor(1) as pool:
        pool.submit(leanattn.decode, q, k, k, num_threads=1).add_done_callback(lambda _: done.set())
        while not done.wait(0.001):
            turns += 1
    assert turns >= 3  # with the GIL held: 0 or 1


def test_what_it_says():
    data = make_batch(capacity=5000, dtype=np.float16)
    plan = leanattn.plan(data.q, data.k, data.v, partition="stream_k", num_workers=3, num_threads=2)
    assert plan.backend == "cpu" and plan.partition == "stream_k" and plan.num_workers == 3
    assert plan.num_threads == 2 and "f16" in plan.kernel
    assert plan.explain().startswith("stream_k as asked: ")
    assert plan.explain() in repr(plan)
    assert plan.make_workspace().nbytes == plan.workspace_bytes > 0


def beside_alignment(size):
    memory = np.empty(size + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + 1
    return memory[begin : begin + size + 64]


@pytest.mark.parametrize("error, sentence, workspace", [
    (ValueError, "this plan needs at least", lambda w: w[:-1]),
    (ValueError, "not a multiple of 64 bytes", lambda w: beside_alignment(w.size)),
    (ValueError, "workspace has stride 2", lambda w: np.empty(2 * w.size, "u1")[::2]),
    (TypeError, "it must have bytes", lambda w: np.empty(w.size, "f4")),
    (ValueError, "workspace is read-only", lambda w: np.frombuffer(bytes(w.size), "u1")),
])
def test_wrong_workspaces(error, sentence, workspace):
    data = make_batch(capacity=3000)
    plan = leanattn.plan(data.q, data.k, data.v, partition="stream_k", num_workers=4)
    with pytest.raises(error, match=sentence):
        plan.run(data.q, data.k, data.v, data.lengths, workspace=workspace(plan.make_workspace()))


def test_what_was_not_planned_is_refused():
    data = make_batch()
    plan = leanattn.plan(data.q, data.k, data.v, max_kv_len=100)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 101; it must be at most max_kv_len"):
        plan.run(data.q, data.k, data.v, np.array([100, 101, 0]))
    with pytest.raises(TypeError, match="q is f16; it must be f32"):
        plan.run(data.q.astype(np.float16), data.k, data.v, data.lengths)
    with pytest.raises(ValueError, match=r"q has shape \[2, 1, 8, 64\]; it must be \[3, 1"):
        plan.run(data.q[:2], data.k, data.v, data.lengths)
    with pytest.raises(ValueError, match="max_q_len is 4; it must be None without q_offsets"):
        leanattn.plan(data.q, data.k, data.v, max_q_len=4)
    with pytest.raises(TypeError, match="max_kv_len is 1.5; it must be an integer or None"):
        leanattn.plan(data.q, data.k, data.v, max_kv_len=1.5)
