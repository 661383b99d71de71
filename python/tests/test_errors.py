"""Every refusal is one sentence that names the argument, its value and what is allowed."""

import ml_dtypes
import numpy as np
import pytest
from conftest import make_batch, make_pages

import leanattn

DATA = make_batch()
LENGTHS = DATA.lengths


def refuse(error, sentence, *arrays, **options):
    arrays = arrays or (DATA.q, DATA.k, DATA.v, LENGTHS)
    with pytest.raises(error) as raised:
        leanattn.decode(*arrays, **options)
    message = str(raised.value)
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize("error, sentence, options", [
    (ValueError, "partition is two_tile; allowed are auto, one_tile", {"partition": "two_tile"}),
    (ValueError, "backend is tpu; this build has", {"backend": "tpu"}),
    (ValueError, "layout is DHN; allowed are NHD and HND", {"layout": "DHN"}),
    (ValueError, "num_splits is 2 but the partition is auto", {"num_splits": 2}),
    (ValueError, "num_threads is -1; allowed are 0", {"num_threads": -1}),
    (ValueError, "softcap is -1; it must be finite", {"softcap": -1}),
    (ValueError, "window.left is -2; it must be from 0", {"window": (-2, 0)}),
    (ValueError, "scale is nan; it must be finite", {"scale": float("nan")}),
    (TypeError, "window is 3; it must be two integers", {"window": 3}),
    (TypeError, "num_splits is 'a'; it must be an integer", {"num_splits": "a"}),
    (TypeError, "causal is None; it must be True or False", {"causal": None}),
    (TypeError, "softcap is 'x'; it must be a number", {"softcap": "x"}),
    (TypeError, "out_dtype is float64; it must be float32", {"out_dtype": np.float64}),
    (TypeError, "out_type is f16; it must be f32 or q_type", {"out_dtype": "float16"}),
])
def test_options(error, sentence, options):
    refuse(error, sentence, **options)


@pytest.mark.parametrize("error, sentence, options", [
    (TypeError, "sinks is a list; it must be an array", {"sinks": [0.0] * 8}),
    (ValueError, "sinks has shape [7]; it must be [8]", {"sinks": np.zeros(7, np.float32)}),
    (ValueError, "sinks has 2 dimensions; it must have 1", {"sinks": np.zeros((1, 8), "f4")}),
    (TypeError, "alibi_slopes is float64; it must be float32", {"alibi_slopes": np.zeros(8)}),
    (TypeError, "tree_mask is f32; it must be bool", {"tree_mask": np.zeros((3, 1, 1), "f4")}),
    (ValueError, "bias has extent 10 in dimension 3", {"bias": np.zeros((3, 8, 1, 10), "f4")}),
    (TypeError, "cache_rows is uint8; it must be int32 or int64",
     {"cache_rows": np.zeros(3, np.uint8)}),
    (ValueError, "cache_rows[1] is 3; it must be at least 0 and below 3",
     {"cache_rows": np.array([0, 3, 1])}),
    (ValueError, "cache_rows has stride 2", {"cache_rows": np.arange(6)[::2]}),
    (TypeError, "lse is f16; it must be f32", {"lse": np.zeros((3, 1, 8), np.float16)}),
    (TypeError, "lse is a int", {"lse": 1}),
    (TypeError, "out is float64; it must be float32", {"out": np.zeros((3, 1, 8, 64))}),
    (ValueError, "out has shape [3, 1, 8, 63]", {"out": np.zeros((3, 1, 8, 63), "f4")}),
    (ValueError, "out_dtype is float32, but out is given",
     {"out": np.zeros((3, 1, 8, 64), "f4"), "out_dtype": "float32"}),
    (ValueError, "out has stride 0 in dimension 0",
     {"out": np.lib.stride_tricks.as_strided(np.zeros((1, 1, 8, 64), "f4"), (3, 1, 8, 64),
                                             (0, 2048, 256, 4))}),
])
def test_arrays(error, sentence, options):
    refuse(error, sentence, **options)


@pytest.mark.parametrize("error, sentence, arrays", [
    (TypeError, "k is None; it must be an array", (DATA.q, None, DATA.v, LENGTHS)),
    (TypeError, "q is a str; it must be an array", ("q", DATA.k, DATA.v, LENGTHS)),
    (TypeError, "lengths is float32; it must be int32 or int64",
     (DATA.q, DATA.k, DATA.v, LENGTHS.astype("f4"))),
    (ValueError, "lengths[0] is 151; it must be from 0 to 150",
     (DATA.q, DATA.k, DATA.v, np.array([151, 1, 1]))),
    (ValueError, "lengths is 1 by 2; it must be 1 by 3", (DATA.q, DATA.k, DATA.v, LENGTHS[:2])),
    (ValueError, "q has 3 dimensions; it must have 4: [batch, q_len, heads, head_dim]",
     (DATA.q[0], DATA.k, DATA.v, LENGTHS)),
    (ValueError, "q has stride 2 in its last dimension; it must be 1",
     (DATA.q[..., ::2], DATA.k[..., ::2].copy(), DATA.v, LENGTHS)),
    (ValueError, "num_q_heads is 7 and num_kv_heads is 2",
     (DATA.q[:, :, :7], DATA.k, DATA.v, LENGTHS)),
    (TypeError, "q is int64", (DATA.q.astype(int), DATA.k, DATA.v, LENGTHS)),
    (TypeError, "q is uint16", (DATA.q.astype(np.uint16), DATA.k, DATA.v, LENGTHS)),
    (TypeError, "k is complex64", (DATA.q, DATA.k.astype("c8"), DATA.v, LENGTHS)),
    (TypeError, "q is a ndarray of >f4; it must be an array of numbers",
     (DATA.q.astype(">f4"), DATA.k, DATA.v, LENGTHS)),
    (TypeError, "k is a ndarray of float8_e5m2; it must be",
     (DATA.q, DATA.k.astype(ml_dtypes.float8_e5m2), DATA.v, LENGTHS)),
    (TypeError, "lengths is a ndarray of int32; it must be",
     (DATA.q, DATA.k, DATA.v, np.zeros(3, [("a", "u1"), ("n", "<i4")])["n"])),
    (TypeError, "q_type is bool", (DATA.q > 0, DATA.k, DATA.v, LENGTHS)),
])
def test_inputs(error, sentence, arrays):
    refuse(error, sentence, *arrays)


def test_pages():
    k, v, tables = make_pages(DATA, 16)
    refuse(ValueError, "lengths is None; with a paged cache", DATA.q, k, v, None, **tables)
    table = tables["page_table"].copy()
    table[1, 0] = 10**6
    refuse(ValueError, "entry 0 of sequence 1 in page_table is 1000000", DATA.q, k, v, LENGTHS,
           page_table=table)
    refuse(ValueError, "page_table is given, but the layout is paged (CSR)", DATA.q, k, v, LENGTHS,
           page_table=table, page_ids=np.zeros(1, int), page_indptr=np.zeros(4, int))
    refuse(ValueError, "cache_rows is given, but the layout is paged", DATA.q, k, v, LENGTHS,
           cache_rows=np.zeros(3, int), **tables)


def test_read_only_out_is_left_alone():
    out = np.full((3, 1, 8, 64), 7, np.float32)
    out.setflags(write=False)
    refuse(ValueError, "out is read-only; it must be writable", out=out)
    assert (out == 7).all()


def test_read_only_inputs_are_read():
    arrays = [x.copy() for x in (DATA.q, DATA.k, DATA.v, LENGTHS)]
    for array in arrays:
        array.setflags(write=False)
    expected = leanattn.decode(DATA.q, DATA.k, DATA.v, LENGTHS)
    assert np.array_equal(leanattn.decode(*arrays), expected)


def test_nothing_is_written_when_refused():
    out = np.full((3, 1, 8, 64), 7, np.float32)
    refuse(ValueError, "lengths[2]", DATA.q, DATA.k, DATA.v, np.array([1, 1, 151]), out=out)
    assert (out == 7).all()


def test_gradients_are_refused():
    class Parameter(np.ndarray):
        requires_grad = True

    refuse(RuntimeError, "k has requires_grad True; it must be False", DATA.q,
           DATA.k.view(Parameter), DATA.v, LENGTHS)


def test_supports():
    assert leanattn.supports(DATA.q, DATA.k, DATA.v, LENGTHS) is None
    with pytest.raises(ValueError, match="num_q_heads is 7"):
        leanattn.supports(DATA.q[:, :, :7], DATA.k, DATA.v, LENGTHS)
