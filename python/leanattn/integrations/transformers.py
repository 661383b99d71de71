"""Hugging Face Transformers with leanattn for its attention, on CPUs and GPUs.

    leanattn.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="leanattn")

for inference: call models under torch.no_grad(), as generate() does. With a static cache, a step
can be compiled in one graph and captured in a CUDA graph: nothing of it waits for the device.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, sdpa_mask

from .. import torch as _operators  # noqa: F401  (defines torch.ops.leanattn)


def register(
    name: str = "leanattn", *, partition: str = "auto", num_splits: int = 0,
    batch_invariant: bool = False,
) -> None:
    """Makes ``attn_implementation=name`` known; may be called again, also with other names.

    It serves decoders and encoders, static and dynamic caches, padding, windows, softcap and
    sinks. The options are those of ``leanattn.decode``, of every call under this name. Raises
    ImportError, on import of this module, without torch or Transformers 5.
    """
    options = dict(partition=partition, num_splits=num_splits, batch_invariant=batch_invariant)

    def attend(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **others: Any
    ) -> Tuple[Any, None]:
        return attention(module, query, key, value, attention_mask, options=options, **others)

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, mask)


def _may_look(attention_mask: Any, q_offset: Any) -> bool:
    """Whether their values may decide: not while tracing, nor of a static cache, whose steps
    nothing should wait for."""
    if isinstance(q_offset, torch.Tensor) or torch.compiler.is_compiling():
        return False
    on_cuda = attention_mask is not None and attention_mask.is_cuda
    return not (on_cuda and torch.cuda.is_current_stream_capturing())


def mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
    mask_function: Any = causal_mask_function, attention_mask: Any = None,
    local_size: Optional[int] = None, allow_is_causal_skip: bool = True, device: Any = "cpu",
    **rest: Any,
) -> Any:
    """The keys that queries see: bool [batch, 1, q_length, kv_length], lengths, or None.

    None where "causal" says it all: the queries stand at the end of the keys, none of which
    are padding. Lengths, int32 [batch, 1, 1, 2], the number of keys up to the last query twice,
    where "causal" says it but for the keys of a static cache that are still to come: a shape that
    models which join masks of their own to it cannot take for a mask.

    Arguments are those of Transformers' mask functions. ``allow_is_causal_skip`` is False where a
    model wants a mask to see, and for one query of a static cache, whose ``q_offset`` is a tensor.
    """
    counted = isinstance(q_offset, torch.Tensor)
    plain = mask_function is causal_mask_function and local_size is None
    plain = plain and (allow_is_causal_skip or (counted and q_length == 1))
    if plain and attention_mask is not None:
        plain = _may_look(attention_mask, q_offset) and bool(attention_mask.all())
    if plain and (counted or q_offset + q_length <= kv_offset + kv_length):
        if not counted and q_offset + q_length == kv_offset + kv_length:
            return None
        lengths = torch.full((2, batch_size), q_length - kv_offset, dtype=torch.int32,
                             device=device)
        return lengths.add_(q_offset).T[:, None, None]
    return sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function,
        attention_mask=attention_mask, local_size=local_size, allow_is_causal_skip=False,
        device=device, **rest,
    )


def _refuse(module: Any, dropout: float, others: Dict[str, Any]) -> None:
    """Raises for what attention here does not do and would otherwise leave out."""
    if dropout and module.training:
        raise ValueError(f"dropout is {dropout}; it must be 0: leanattn is for inference")
    if others.get("output_attentions"):
        raise ValueError(
            "output_attentions is True; it must be False, because leanattn keeps no weights"
        )
    if others.get("position_bias") is not None:
        raise ValueError("position_bias is given; leanattn takes none from Transformers")


def _counts_keys(attention_mask: Any) -> bool:
    """Whether it holds lengths, as ``mask`` gives them."""
    if attention_mask is None or attention_mask.dtype != torch.int32:
        return False
    return tuple(attention_mask.shape[1:]) == (1, 1, 2)


def _num_visible(seen: Any) -> Any:
    """int32 [batch], how many keys there are up to the last that a query sees."""
    rows = seen.flatten(1, 2)
    by_any = rows[:, 0] if rows.shape[1] == 1 else rows.any(dim=1)
    ends = torch.arange(1, seen.shape[-1] + 1, dtype=torch.int32, device=seen.device)
    return (by_any * ends).amax(dim=1)


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float = 0.0,
    scaling: Optional[float] = None, is_causal: Optional[bool] = None,
    softcap: Optional[float] = None, sliding_window: Optional[int] = None, s_aux: Any = None,
    options: Optional[Mapping[str, Any]] = None, **others: Any,
) -> Tuple[Any, None]:
    """Attention as the models of Transformers call it.

    Arguments:
        query: float32, float16 or bfloat16 [batch, heads, q_len, dim].
        key, value: likewise [batch, kv_heads, kv_len, dim], of which static caches fill a part.
        attention_mask: bool or additive [batch or 1, heads or 1, q_len, kv_len], lengths as
            ``mask`` gives them, or None: causal with the queries at the end of the keys if
            ``is_causal``, or the module, says so.
        softcap, s_aux: see ``leanattn.decode`` (sinks); sliding_window: keys that a query sees
            with its own, which a mask already says.
        options: of ``leanattn.decode``; see ``register``.

    Returns (out [batch, q_len, heads, dim], None). Raises as ``leanattn.decode``, and
    ValueError for dropout, output_attentions and position_bias.
    """
    _refuse(module, dropout, others)
    rules: Dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    lengths = None
    counts = _counts_keys(attention_mask)
    if attention_mask is None or counts:
        if is_causal is None or counts:
            is_causal = counts or getattr(module, "is_causal", True)
        if counts:
            lengths = attention_mask[:, 0, 0, 0].contiguous()
        rules["causal"] = is_causal
        if sliding_window is not None and is_causal:
            rules["window"] = (sliding_window - 1, -1)
    else:
        rules["bias"] = attention_mask[..., : key.shape[2]]
        if attention_mask.dtype == torch.bool:
            lengths = _num_visible(rules["bias"]).expand(query.shape[0]).contiguous()
    out = torch.ops.leanattn.decode(
        query.transpose(1, 2), key, value, lengths, layout="HND", **rules, **(options or {})
    )
    return out, None
