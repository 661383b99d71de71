"""merge_states and append_kv."""

import numpy as np
import pytest
from conftest import make_batch, make_pages
from reference import assert_close, batch_attention

import leanattn


def parts_of(data, cuts):
    """Results over the keys [cuts[i], cuts[i + 1]) of full sequences."""
    return [
        leanattn.decode(data.q, data.k[:, a:b], data.v[:, a:b], lse=True)
        for a, b in zip(cuts, cuts[1:])
    ]


def test_two_parts_are_the_whole(dtype):
    data = make_batch(lengths=[150] * 3, q_len=2, dtype=dtype)
    (out_a, lse_a), (out_b, lse_b) = parts_of(data, [0, 40, 150])
    out, lse = leanattn.merge_states(out_a, lse_a, out_b, lse_b)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths)
    assert out.dtype == dtype
    assert_close(out, expected, dtype)
    assert_close(lse, expected_lse, dtype)
    row, _ = leanattn.merge_states(out_a[1], lse_a[1], out_b[1], lse_b[1])
    assert np.array_equal(row, out[1])


def test_many_parts_are_the_whole():
    data = make_batch(lengths=[150] * 3, q_len=2)
    parts = parts_of(data, [0, 3, 40, 41, 150])
    outs, lses = (np.stack(x) for x in zip(*parts))
    out, lse = leanattn.merge_states(outs, lses)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths)
    assert_close(out, expected)
    assert_close(lse, expected_lse)
    row, _ = leanattn.merge_states(outs[:, 2], lses[:, 2])
    assert np.array_equal(row, out[2])


@pytest.mark.parametrize("nothing", [np.inf, -np.inf])
def test_an_empty_part_changes_no_bit(nothing):
    data = make_batch(lengths=[150] * 3)
    out, lse = leanattn.decode(data.q, data.k, data.v, lse=True)
    empty = np.full_like(out, np.nan), np.full_like(lse, nothing)
    for states in ((out, lse, *empty), (*empty, out, lse)):
        merged = leanattn.merge_states(*states)
        assert np.array_equal(merged[0], out)
        np.testing.assert_allclose(merged[1], lse, rtol=1e-6)


def test_in_place():
    data = make_batch(lengths=[150] * 3)
    (out_a, lse_a), (out_b, lse_b) = parts_of(data, [0, 40, 150])
    expected = leanattn.merge_states(out_a, lse_a, out_b, lse_b)
    merged = leanattn.merge_states(out_a, lse_a, out_b, lse_b, out=out_a, lse=lse_a)
    assert merged[0] is out_a and merged[1] is lse_a
    assert np.array_equal(out_a, expected[0]) and np.array_equal(lse_a, expected[1])


def test_wrong_states():
    out, lse = np.zeros((2, 4, 8), "f4"), np.zeros((2, 4), "f4")
    with pytest.raises(ValueError, match=r"lse_b has shape \[1, 4\]; it must be \[2, 4\]"):
        leanattn.merge_states(out, lse, out, lse[:1])
    with pytest.raises(ValueError, match="out_b has 4 dimensions; it must have 3"):
        leanattn.merge_states(out, lse, out[None], lse)
    with pytest.raises(ValueError, match="lse_b is None; it must be given"):
        leanattn.merge_states(out, lse, out)
    with pytest.raises(TypeError, match="lse_a is f16; it must be f32"):
        leanattn.merge_states(out, lse.astype("f2"), out, lse)
    with pytest.raises(ValueError, match="out_b has 3 sequences; it must have 2"):
        leanattn.merge_states(out[None][[0, 0]], lse[None][[0, 0]], out[None][[0, 0, 0]],
                              lse[None][[0, 0]])
    with pytest.raises(TypeError, match="out_a is a list; it must be an array"):
        leanattn.merge_states([0.0], lse, out, lse)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_append(dtype, layout):
    data = make_batch(lengths=[0, 7, 148], dtype=dtype)
    new = data.rng.standard_normal((2, 3, 2, 2, 64)).astype(np.float32)
    k, v = data.k.copy(), data.v.copy()
    own = [x.transpose(0, 2, 1, 3) if layout == "HND" else x for x in (k, v)]
    leanattn.append_kv(new[0], new[1], data.lengths, *own, layout=layout)
    for b, n in enumerate(data.lengths):
        data.k[b, n : n + 2], data.v[b, n : n + 2] = new[:, b]
    assert np.array_equal(k, data.k, equal_nan=True) and np.array_equal(v, data.v, equal_nan=True)


@pytest.mark.parametrize("as_csr", [False, True])
def test_append_to_pages(as_csr):
    data = make_batch(lengths=[5, 16, 30])
    k, v, tables = make_pages(data, 16, as_csr=as_csr)
    new = data.rng.standard_normal((2, 3, 2, 64)).astype(np.float32)
    offsets = np.array([0, 2, 2, 3])
    leanattn.append_kv(new[0], new[1], data.lengths, k, v, offsets=offsets, **tables)
    data.k[0, 5:7], data.v[0, 5:7] = new[:, :2]
    data.k[2, 30], data.v[2, 30] = new[:, 2]
    lengths = data.lengths + np.diff(offsets).astype(np.int32)
    assert_close(leanattn.decode(data.q, k, v, lengths, **tables),
                 batch_attention(data.q, data.k, data.v, lengths)[0])


def test_append_refuses_what_does_not_fit():
    data = make_batch(lengths=[0, 149, 1])
    before = data.k.copy()
    new = np.zeros((3, 2, 2, 64), np.float32)
    with pytest.raises(ValueError, match="sequence 1 has 149 keys and is given 2 more"):
        leanattn.append_kv(new, new, data.lengths, data.k, data.v)
    assert np.array_equal(data.k, before, equal_nan=True)
    data.v.setflags(write=False)
    with pytest.raises(ValueError, match="v_cache is read-only; it must be writable"):
        leanattn.append_kv(new, new, data.lengths, data.k, data.v)
