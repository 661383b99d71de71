"""The arguments that calls of attention share, by keyword."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Tuple, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack


class Arrays(TypedDict, total=False):
    """Arrays beside q, k, v and lengths; see ``decode``."""

    sinks: Any
    alibi_slopes: Any
    bias: Any
    tree_mask: Any
    page_table: Any
    page_ids: Any
    page_indptr: Any
    cache_rows: Any
    q_offsets: Any


class Options(Arrays, total=False):
    """These, and what is decided when a call is planned; see ``decode``."""

    causal: bool
    window: Tuple[int, int]
    softcap: float
    scale: Optional[float]
    layout: str
    backend: str
    partition: str
    num_splits: int
    num_workers: int
    num_threads: int
    batch_invariant: bool
    checked: bool
