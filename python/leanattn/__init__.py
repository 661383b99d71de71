"""Exact attention for the decode phase of transformers (https://arxiv.org/abs/2405.10480).

``decode`` computes one call; ``plan`` decides once what a shape needs, and the plan runs
many times. Arrays are numpy's, or whatever speaks DLPack or the buffer protocol; they
are read where they lie. What the numbers mean is docs/semantics.md of the project.

Errors are raised before anything is written: ValueError for a value that makes no sense,
TypeError for an element type, a kind of memory or something that is no array, RuntimeError
for what the backend does not compute; each with one sentence that names the argument, its
value and what is allowed.
"""

from ._cache import append_kv
from ._core import __version__ as __version__
from ._core import info
from ._decode import decode, supports
from ._plan import Plan, plan
from ._states import merge_states

__all__ = ["Plan", "append_kv", "decode", "info", "merge_states", "plan", "supports"]
