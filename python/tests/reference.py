"""Attention by its definition, in numpy's float64: what every test compares with."""

import numpy as np

BFLOAT16_EPS = 2.0**-8


def attention(
    q, k, v, length, *, causal=False, window=(-1, -1), softcap=0.0, scale=None,
    sinks=None, slopes=None, bias=None, tree=None,
):
    """One sequence: q [m, heads, dim], k and v [capacity, kv_heads, dim], bias [heads, m, n].

    Returns out [m, heads, v_dim] and lse [m, heads], in float64.
    """
    m, heads, dim = q.shape
    n, group = int(length), heads // k.shape[1]
    q = q.astype(np.float64)
    k = np.repeat(k[:n].astype(np.float64), group, axis=1)
    v = np.repeat(v[:n].astype(np.float64), group, axis=1)
    s = np.einsum("ihd,jhd->hij", q, k) * (dim**-0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    p = (n - m + np.arange(m))[:, None]
    j = np.arange(n)[None, :]
    if slopes is not None:
        s = s - slopes.astype(np.float64)[:, None, None] * (p - j)
    if bias is not None:
        part = bias[:, :m, :n]
        s = np.where(part, s, -np.inf) if part.dtype == bool else s + part
    seen = (j <= p) if causal else np.ones((m, n), bool)
    if window[0] >= 0:
        seen = seen & (j >= p - window[0])
    if window[1] >= 0:
        seen = seen & (j <= p + window[1])
    if tree is not None:
        newest = j >= n - m
        seen = seen & (~newest | tree[:, np.clip(j[0] - (n - m), 0, m - 1)])
    s = np.where(seen, s, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        sink = np.full(heads, -np.inf) if sinks is None else sinks.astype(np.float64)
        top = np.maximum(s.max(axis=2, initial=-np.inf), sink[:, None])
        safe = np.where(np.isinf(top), 0.0, top)
        e = np.exp(s - safe[:, :, None])
        total = e.sum(axis=2) + np.exp(sink[:, None] - safe)
        lse = (safe + np.log(total)).T
        weights = np.where(total[:, :, None] > 0, e / total[:, :, None], 0.0)
    return np.einsum("hij,jhd->ihd", weights, v), lse


def batch_attention(q, k, v, lengths, *, bias=None, tree=None, **rules):
    """Every sequence: q [batch, m, heads, dim], k and v [batch, capacity, kv_heads, dim]."""
    results = [
        attention(
            q[b], k[b], v[b], lengths[b],
            bias=None if bias is None else bias[b],
            tree=None if tree is None else tree[b], **rules,
        )
        for b in range(len(lengths))
    ]
    return np.stack([out for out, _ in results]), np.stack([lse for _, lse in results])


def assert_close(actual, expected, inputs_dtype=np.float32):
    """Within the rounding of the output's type, and that of float32 sums before."""
    eps = BFLOAT16_EPS if actual.dtype.name == "bfloat16" else np.finfo(actual.dtype).eps
    # Rounded probabilities: bf16 products may take bf16 weights.
    if np.dtype(inputs_dtype).name == "bfloat16":
        eps = max(eps, BFLOAT16_EPS)
    elif np.dtype(inputs_dtype) == np.float16:
        eps = max(eps, np.finfo(np.float16).eps)
    np.testing.assert_allclose(
        actual.astype(np.float64), expected, rtol=4 * eps, atol=max(2 * eps, 4e-6)
    )
