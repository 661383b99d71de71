"""What the tests share: a batch of sequences, as arrays of any type."""

import sys
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.fixture(params=sorted(DTYPES))
def dtype(request):
    return np.dtype(DTYPES[request.param])


def make_batch(
    *, batch=3, q_len=1, heads=8, kv_heads=2, dim=64, v_dim=None, capacity=150, dtype=np.float32,
    seed=0, lengths=None,
):
    """Queries, a contiguous NHD cache that is NaN past each length, and lengths."""
    rng = np.random.default_rng(seed)
    v_dim = dim if v_dim is None else v_dim
    q = rng.standard_normal((batch, q_len, heads, dim)).astype(dtype)
    k = rng.standard_normal((batch, capacity, kv_heads, dim)).astype(dtype)
    v = rng.standard_normal((batch, capacity, kv_heads, v_dim)).astype(dtype)
    if lengths is None:
        lengths = rng.integers(q_len, capacity + 1, batch)
    lengths = np.asarray(lengths, np.int32)
    for b, n in enumerate(lengths):
        k[b, n:] = np.nan
        v[b, n:] = np.nan
    return SimpleNamespace(q=q, k=k, v=v, lengths=lengths, rng=rng)


def make_pages(data, page_size, *, spare=3, as_csr=False):
    """The cache of `data` in pages in random order; all else is NaN, unused ids absurd."""
    batch, capacity = data.k.shape[:2]
    needed = [-(-int(n) // page_size) for n in data.lengths]
    num_pages = sum(needed) + spare
    order = data.rng.permutation(num_pages)
    shape = (num_pages, page_size, data.k.shape[2])
    k = np.full((*shape, data.k.shape[3]), np.nan, data.k.dtype)
    v = np.full((*shape, data.v.shape[3]), np.nan, data.v.dtype)
    table = np.full((batch, -(-capacity // page_size)), -(2**30), np.int32)
    used = 0
    for b in range(batch):
        for i in range(needed[b]):
            page = order[used]
            used += 1
            rows = slice(i * page_size, min((i + 1) * page_size, capacity))
            k[page, : rows.stop - rows.start] = data.k[b, rows]
            v[page, : rows.stop - rows.start] = data.v[b, rows]
            table[b, i] = page
    if not as_csr:
        return k, v, {"page_table": table}
    ids = np.concatenate([table[b, : needed[b]] for b in range(batch)]).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(needed)]).astype(np.int64)
    return k, v, {"page_ids": ids, "page_indptr": indptr}
