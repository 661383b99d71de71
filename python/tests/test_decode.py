"""decode against the definition: types, layouts, caches and rules."""

import numpy as np
import pytest
from conftest import make_batch, make_pages
from reference import assert_close, attention, batch_attention

import leanattn


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (8, 2), (7, 1)])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_contiguous(dtype, layout, heads, kv_heads):
    data = make_batch(heads=heads, kv_heads=kv_heads, dtype=dtype)
    k, v = data.k, data.v
    if layout == "HND":
        k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (k, v))
    out, lse = leanattn.decode(data.q, k, v, data.lengths, lse=True, layout=layout)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths)
    assert out.dtype == dtype and out.shape == expected.shape
    assert lse.dtype == np.float32 and lse.shape == expected_lse.shape
    assert_close(out, expected, dtype)
    assert_close(lse, expected_lse, dtype)


def test_strides_instead_of_copies():
    data = make_batch()
    both = np.stack([data.k, data.v], axis=2)  # K and V of a token beside each other
    out = leanattn.decode(data.q, both[:, :, 0], both[:, :, 1], data.lengths)
    swapped = np.ascontiguousarray(data.k.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    backwards = data.q[::-1].copy()[::-1]
    expected = batch_attention(data.q, data.k, data.v, data.lengths)[0]
    assert_close(out, expected)
    assert_close(leanattn.decode(backwards, swapped, data.v, data.lengths), expected)


@pytest.mark.parametrize("page_size", [1, 16, 37])
@pytest.mark.parametrize("as_csr", [False, True])
def test_pages(dtype, page_size, as_csr):
    data = make_batch(dtype=dtype, lengths=[150, 0, 33], v_dim=48)
    k, v, tables = make_pages(data, page_size, as_csr=as_csr)
    out = leanattn.decode(data.q, k, v, data.lengths, **tables)
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths)[0], dtype)
    k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (k, v))
    hnd = leanattn.decode(data.q, k, v, data.lengths, layout="HND", **tables)
    assert_close(hnd, batch_attention(data.q, data.k, data.v, data.lengths)[0], dtype)


def test_cache_rows():
    data = make_batch(batch=3)
    rows = np.array([2, 0, 1], np.int64)
    k, v = np.empty_like(data.k), np.empty_like(data.v)
    k[rows], v[rows] = data.k, data.v
    out = leanattn.decode(data.q, k, v, data.lengths, cache_rows=rows)
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths)[0])


@pytest.mark.parametrize("rules", [
    {"causal": True}, {"window": (20, -1)}, {"window": (20, 0)}, {"window": [0, 5]},
    {"softcap": 3.0}, {"scale": 0.5}, {"scale": 0}, {"causal": True, "window": (7, -1)},
])
def test_rules(rules):
    data = make_batch(q_len=3)
    out, lse = leanattn.decode(data.q, data.k, data.v, data.lengths, lse=True, **rules)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths, **rules)
    assert_close(out, expected)
    assert_close(lse, expected_lse)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_sinks_and_slopes(kind):
    data = make_batch(q_len=2)
    sinks = data.rng.standard_normal(8).astype(kind)
    slopes = (2.0 ** -np.arange(1, 9)).astype(kind)
    out, lse = leanattn.decode(data.q, data.k, data.v, data.lengths, lse=True, causal=True,
                               sinks=sinks, alibi_slopes=slopes)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths, causal=True,
                                             sinks=sinks, slopes=slopes)
    assert_close(out, expected)
    assert_close(lse, expected_lse)


@pytest.mark.parametrize("as_bool", [False, True])
@pytest.mark.parametrize("broadcast", [False, True])
def test_bias(as_bool, broadcast):
    data = make_batch(q_len=2)
    shape = (3, 8, 2, 150)
    bias = data.rng.standard_normal((1, 1, 2, 150) if broadcast else shape).astype(np.float32)
    bias = np.broadcast_to(bias > 0 if as_bool else bias, shape)
    out = leanattn.decode(data.q, data.k, data.v, data.lengths, bias=bias)
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths, bias=bias)[0])


def test_tree_mask():
    data = make_batch(q_len=4)
    tree = np.tril(data.rng.random((3, 4, 4)) < 0.5) | np.eye(4, dtype=bool)
    out = leanattn.decode(data.q, data.k, data.v, data.lengths, tree_mask=tree)
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths, tree=tree)[0])


def test_ragged_queries():
    data = make_batch(batch=4, lengths=[9, 150, 70, 5])
    offsets = np.array([0, 3, 3, 8, 9], np.int32)
    q = data.rng.standard_normal((9, 8, 64)).astype(np.float32)
    out, lse = leanattn.decode(q, data.k, data.v, data.lengths, q_offsets=offsets, causal=True,
                               lse=True)
    assert out.shape == (9, 8, 64) and lse.shape == (9, 8)
    for b in range(4):
        own = slice(offsets[b], offsets[b + 1])
        expected, expected_lse = attention(q[own], data.k[b], data.v[b], data.lengths[b],
                                           causal=True)
        assert_close(out[own], expected)
        assert_close(lse[own], expected_lse)


@pytest.mark.parametrize("options", [
    {"partition": "one_tile"}, {"partition": "fixed_split", "num_splits": 3},
    {"partition": "stream_k", "num_workers": 5}, {"num_threads": 1}, {"batch_invariant": True},
    {"backend": "cpu"},
])
def test_options(options):
    data = make_batch(capacity=700)
    out = leanattn.decode(data.q, data.k, data.v, data.lengths, **options)
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths)[0])


def test_without_lengths_all_keys_count():
    data = make_batch(lengths=[150, 150, 150])
    assert_close(leanattn.decode(data.q, data.k, data.v),
                 batch_attention(data.q, data.k, data.v, data.lengths)[0])


def test_no_keys():
    data = make_batch(lengths=[0, 0, 0])
    out = np.full((3, 1, 8, 64), np.nan, np.float32)
    same, lse = leanattn.decode(data.q, data.k, data.v, data.lengths, out=out, lse=True)
    assert same is out and not out.any() and np.all(np.isneginf(lse))
    sinks = np.arange(8, dtype=np.float32)
    _, lse = leanattn.decode(data.q, data.k, data.v, data.lengths, lse=True, sinks=sinks)
    np.testing.assert_allclose(lse[0, 0], sinks, rtol=1e-6, atol=1e-6)


def test_no_sequences_and_no_queries():
    data = make_batch()
    none = leanattn.decode(data.q[:0], data.k, data.v, data.lengths[:0])
    assert none.shape == (0, 1, 8, 64)
    assert leanattn.decode(data.q[:0], data.k, data.v).shape == (0, 1, 8, 64)
    out, lse = leanattn.decode(data.q[:, :0], data.k, data.v, data.lengths, lse=True)
    assert out.shape == (3, 0, 8, 64) and lse.shape == (3, 0, 8)
    q, offsets = data.q[0, :0], np.zeros(4, np.int64)
    out = leanattn.decode(q, data.k, data.v, data.lengths, q_offsets=offsets)
    assert out.shape == (0, 8, 64)


def test_given_results(dtype):
    data = make_batch(dtype=dtype)
    wide = np.full((3, 1, 16, 64), np.nan, dtype)
    lse = np.empty((3, 1, 8), np.float32)
    out, same_lse = leanattn.decode(data.q, data.k, data.v, data.lengths, out=wide[:, :, ::2],
                                    lse=lse)
    expected, expected_lse = batch_attention(data.q, data.k, data.v, data.lengths)
    assert same_lse is lse and np.shares_memory(out, wide)
    assert_close(wide[:, :, ::2], expected, dtype)
    assert_close(lse, expected_lse, dtype)
    assert np.isnan(wide[:, :, 1::2].astype(np.float32)).all()


@pytest.mark.parametrize("name", ["float32", np.float32, np.dtype("f4")])
def test_out_dtype(name):
    data = make_batch(dtype=np.float16)
    out = leanattn.decode(data.q, data.k, data.v, data.lengths, out_dtype=name)
    assert out.dtype == np.float32
    assert_close(out, batch_attention(data.q, data.k, data.v, data.lengths)[0], np.float16)


def test_types_may_differ(dtype):
    data = make_batch()
    k, v = data.k.astype(dtype), data.v.astype(np.float16)
    out = leanattn.decode(data.q, k, v, data.lengths)
    assert_close(out, batch_attention(data.q, k, v, data.lengths)[0], dtype)
