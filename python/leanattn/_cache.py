"""Appending to a cache."""

from __future__ import annotations

from typing import Any

from . import _core


def append_kv(
    k: Any, v: Any, lengths: Any, k_cache: Any, v_cache: Any, *, offsets: Any = None,
    page_table: Any = None, page_ids: Any = None, page_indptr: Any = None,
    cache_rows: Any = None, layout: str = "NHD",
) -> None:
    """Writes new keys and values at the end of each sequence of a cache, in place.

    Arguments:
        k, v: real [batch, new_len, kv_heads, dim]; with offsets [num_new, kv_heads, dim].
            Converted to the types of the cache.
        lengths: index [batch], keys of each sequence before the call; the caller adds to
            them afterwards.
        k_cache, v_cache: writable, with ``layout`` and tables as k and v of ``decode``.
        offsets: index [batch + 1], where each sequence's new keys begin.

    Host memory. Raises ValueError or TypeError before anything is written, naming the
    sequence if one would outgrow its row or its pages.
    """
    _core.append(layout, {
        "k": k, "v": v, "lengths": lengths, "offsets": offsets,
        "k_cache": k_cache, "v_cache": v_cache, "page_table": page_table,
        "page_ids": page_ids, "page_indptr": page_indptr, "cache_rows": cache_rows,
    })
