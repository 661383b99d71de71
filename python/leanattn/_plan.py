"""Attention planned once and run many times."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np
import numpy.typing as npt

from . import _core
from ._results import Result, dtype_name, run


class Plan:
    """What a problem needs, decided once; ``plan`` makes it.

    Threads may run one plan at the same time, each with a workspace of its own.
    """

    def __init__(self, plan: _core.Plan, layout: str) -> None:
        self._plan = plan
        self._layout = layout

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace that a run needs."""
        return self._plan.workspace_bytes

    @property
    def backend(self) -> str:
        """The backend that runs it: "cpu"."""
        return self._plan.backend

    @property
    def kernel(self) -> str:
        """The kernel that it runs, such as "avx512 f16·f16"."""
        return self._plan.kernel

    @property
    def partition(self) -> str:
        """ "one_tile", "fixed_split" or "stream_k"."""
        return self._plan.partition

    @property
    def num_workers(self) -> int:
        """Workers that the keys are dealt to."""
        return self._plan.num_workers

    @property
    def num_threads(self) -> int:
        """Threads that these workers run on."""
        return self._plan.num_threads

    def explain(self) -> str:
        """One sentence: what was chosen, and why."""
        return self._plan.explain()

    def __repr__(self) -> str:
        return f"<leanattn.Plan on {self.backend}, {self.kernel}: {self.explain()}>"

    def make_workspace(self) -> npt.NDArray[np.uint8]:
        """Host memory for runs of this plan, uint8 [workspace_bytes], aligned as they need."""
        alignment = _core.WORKSPACE_ALIGNMENT
        memory = np.empty(self.workspace_bytes + alignment, np.uint8)
        begin = -memory.ctypes.data % alignment
        return memory[begin : begin + self.workspace_bytes]

    def run(
        self, q: Any, k: Any, v: Any, lengths: Any = None, *,
        out: Any = None, lse: Any = False, workspace: Any = None,
        sinks: Any = None, alibi_slopes: Any = None, bias: Any = None, tree_mask: Any = None,
        page_table: Any = None, page_ids: Any = None, page_indptr: Any = None,
        cache_rows: Any = None, q_offsets: Any = None,
    ) -> Result:
        """Computes attention of arrays that are as planned; see ``decode`` for each.

        The same optional arrays are given as to ``plan``, with the same shapes but for the
        rows and the capacity of the cache; lengths are up to max_kv_len.

        workspace: uint8 [workspace_bytes or more], writable and aligned to 64 bytes, of no
        other run at the same time; make_workspace gives one. None: allocated in this call.

        Same inputs and plan give the same bits. Returns and raises as ``decode``.
        """
        call = _core.Call(self._layout, {
            "q": q, "k": k, "v": v, "lengths": lengths, "sinks": sinks,
            "alibi_slopes": alibi_slopes, "bias": bias, "tree_mask": tree_mask,
            "page_table": page_table, "page_ids": page_ids, "page_indptr": page_indptr,
            "cache_rows": cache_rows, "q_offsets": q_offsets,
        })
        return run(self._plan, call, out, lse, workspace)


def plan(
    q: Any, k: Any, v: Any, lengths: Any = None, *, max_kv_len: Optional[int] = None,
    max_q_len: Optional[int] = None, out_dtype: Any = None,
    causal: bool = False, window: Tuple[int, int] = (-1, -1), softcap: float = 0.0,
    scale: Optional[float] = None, sinks: Any = None, alibi_slopes: Any = None,
    bias: Any = None, tree_mask: Any = None,
    page_table: Any = None, page_ids: Any = None, page_indptr: Any = None,
    cache_rows: Any = None, q_offsets: Any = None, layout: str = "NHD",
    backend: str = "auto", partition: str = "auto", num_splits: int = 0,
    num_workers: int = 0, num_threads: int = 0, batch_invariant: bool = False,
) -> Plan:
    """Decides kernel, partition, workers and workspace for calls with arrays like these.

    Takes the arguments of ``decode``: the arrays of a first call, of which shapes and types
    are looked at, and q_offsets. Beside them:

        max_kv_len: most keys that a sequence of a later call has; None: those that the
            cache, or its page table, has room for.
        max_q_len: with q_offsets, most queries of one sequence; None: those of q_offsets.

    Raises ValueError for numbers that make no sense, TypeError for wrong types and
    RuntimeError with the backend's sentence for what it does not compute.
    """
    call = _core.Call(layout, {
        "q": q, "k": k, "v": v, "lengths": lengths, "sinks": sinks,
        "alibi_slopes": alibi_slopes, "bias": bias, "tree_mask": tree_mask,
        "page_table": page_table, "page_ids": page_ids, "page_indptr": page_indptr,
        "cache_rows": cache_rows, "q_offsets": q_offsets,
    })
    made = _core.plan(call, {
        "causal": causal, "window": window, "softcap": softcap, "scale": scale,
        "backend": backend, "partition": partition, "num_splits": num_splits,
        "num_workers": num_workers, "num_threads": num_threads,
        "batch_invariant": batch_invariant, "out": None, "out_dtype": dtype_name(out_dtype),
        "max_q_len": max_q_len,
        "max_kv_len": call.capacity if max_kv_len is None else max_kv_len,
    })
    return Plan(made, layout)
