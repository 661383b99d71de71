"""Attention planned once and run many times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from . import _core
from ._results import Result, dtype_name, empty, run, working_in

if TYPE_CHECKING:
    from ._options import Arrays, Options, Unpack


class Plan:
    """What a problem needs, decided once; ``plan`` makes it.

    Threads may run one plan at the same time, each with a workspace of its own.
    """

    def __init__(self, plan: _core.Plan, layout: str, place: _core.Place) -> None:
        self._plan = plan
        self._layout = layout
        self._place = place

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace that a run needs."""
        return self._plan.workspace_bytes

    @property
    def backend(self) -> str:
        """The backend that runs it: "cpu" or "cuda"."""
        return self._plan.backend

    @property
    def kernel(self) -> str:
        """The kernel that it runs, such as "cuda bf16 128, 8 rows"."""
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
        """Threads that these workers run on; on a device there are as many as workers."""
        return self._plan.num_threads

    def explain(self) -> str:
        """One sentence: what was chosen, and why."""
        return self._plan.explain()

    def __repr__(self) -> str:
        return f"<leanattn.Plan on {self.backend}, {self.kernel}: {self.explain()}>"

    def make_workspace(self, *, stream: Any = None) -> Any:
        """Memory for runs of this plan, uint8 [workspace_bytes], aligned and made ready.

        Of numpy in host memory; on a device of torch or CuPy, whichever q of the plan belonged
        to, made ready in ``stream``; see ``decode``. Raises RuntimeError for other libraries.
        """
        if self._plan.on_host:
            alignment = _core.WORKSPACE_ALIGNMENT
            memory = np.empty(self.workspace_bytes + alignment, np.uint8)
            begin = -memory.ctypes.data % alignment
            return memory[begin : begin + self.workspace_bytes]
        if stream is None:
            workspace = empty(self._place, (self.workspace_bytes,), "uint8")
        else:
            with working_in(self._place, _core.stream_handle(stream)):
                workspace = empty(self._place, (self.workspace_bytes,), "uint8")
        _core.initialise(self._plan, workspace, stream)
        return workspace

    def initialise(self, workspace: Any, *, stream: Any = None) -> None:
        """Makes memory of the caller's ready for runs of this plan, whatever it held before.

        Once is enough, as every run leaves it ready for the next; memory from make_workspace
        and in host memory needs it not. It is work in ``stream``; see ``decode``. Raises
        ValueError or TypeError for what ``run`` would not take.
        """
        _core.initialise(self._plan, workspace, stream)

    def run(
        self, q: Any, k: Any, v: Any, lengths: Any = None, *, out: Any = None, lse: Any = False,
        workspace: Any = None, stream: Any = None, **arrays: Unpack[Arrays],
    ) -> Result:
        """Computes attention of arrays that are as planned; see ``decode`` for each.

        The same optional arrays are given as to ``plan``, with the same shapes but for the
        rows and the capacity of the cache; lengths are up to max_kv_len.

        workspace: uint8 [workspace_bytes or more] in the memory that q lies in, writable and
        aligned to 64 bytes, of no other run at the same time; make_workspace gives one, or, on
        a device, ``initialise`` makes one ready. None: allocated in this call, and on a device
        made ready, which is one operation more in the stream.

        Same inputs and plan give the same bits. Returns and raises as ``decode``.
        """
        call = _core.Call(q, k, v, lengths, stream, arrays, self._layout)
        return run(self._plan, call, out, lse, workspace)


def plan(
    q: Any, k: Any, v: Any, lengths: Any = None, *, max_kv_len: Optional[int] = None,
    max_q_len: Optional[int] = None, out_dtype: Any = None, **options: Unpack[Options],
) -> Plan:
    """Decides kernel, partition, workers and workspace for calls with arrays like these.

    Takes the arguments of ``decode``: the arrays of a first call, of which shapes and types
    are looked at, and q_offsets in host memory. Beside them:

        max_kv_len: most keys that a sequence of a later call has; None: those that the
            cache, or its page table, has room for.
        max_q_len: with q_offsets, most queries of one sequence; None: those of q_offsets, or
            on a device as many as q has.

    Raises ValueError for numbers that make no sense, TypeError for wrong types and
    RuntimeError with the backend's sentence for what it does not compute.
    """
    call = _core.Call(q, k, v, lengths, None, options, None)
    most = call.capacity if max_kv_len is None else max_kv_len
    made = _core.plan(call, None, dtype_name(out_dtype), max_q_len, most)
    return Plan(made, call.layout, call.place)
