"""Hugging Face Transformers with leanattn for its attention, in host memory.

    leanattn.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="leanattn")

for inference: call models under torch.no_grad(), as generate() does. Under torch.compile the
attention is a graph break.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from .._decode import decode

NAME = "leanattn"


def register() -> None:
    """Makes ``attn_implementation="leanattn"`` known; may be called again.

    It serves decoders and encoders, static and dynamic caches, padding, windows, softcap and
    sinks. Raises ImportError, on import of this module, without torch or Transformers 5.
    """
    AttentionInterface.register(NAME, torch.compiler.disable(attention))
    AttentionMaskInterface.register(NAME, mask)


def mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
    attention_mask: Any = None, local_size: Optional[int] = None,
    allow_is_causal_skip: bool = True, **rest: Any,
) -> Any:
    """The keys that queries see: bool [batch, 1, q_length, kv_length], or None.

    None where "causal" says it all: the queries stand at the end of the keys, none of which
    are padding. Arguments are those of Transformers' mask functions; ``allow_is_causal_skip``
    is False for patterns beside the causal one.
    """
    plain = allow_is_causal_skip and local_size is None
    if plain and int(q_offset) + q_length == kv_offset + kv_length:
        if attention_mask is None or bool(attention_mask.all()):
            return None
    return sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask=attention_mask,
        local_size=local_size, allow_is_causal_skip=False, **rest,
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


def _num_visible(seen: Any) -> Any:
    """int64 [batch], how many keys there are up to the last that a query sees."""
    any_query = seen.flatten(1, 2).any(dim=1)
    positions = torch.arange(1, seen.shape[-1] + 1, device=seen.device)
    return (any_query * positions).amax(dim=1)


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float = 0.0,
    scaling: Optional[float] = None, is_causal: Optional[bool] = None,
    softcap: Optional[float] = None, sliding_window: Optional[int] = None, s_aux: Any = None,
    **others: Any,
) -> Tuple[Any, None]:
    """Attention as the models of Transformers call it.

    Arguments:
        query: float32, float16 or bfloat16 [batch, heads, q_len, dim].
        key, value: likewise [batch, kv_heads, kv_len, dim], of which static caches fill a part.
        attention_mask: bool or additive [batch, 1 or heads, q_len, kv_len], or None: causal
            with the queries at the end of the keys if ``is_causal``, or the module, says so.
        softcap, s_aux: see ``leanattn.decode`` (sinks); sliding_window: keys that a query sees
            with its own, which a mask already says.

    Returns (out [batch, q_len, heads, dim], None). Raises as ``leanattn.decode``, and
    ValueError for dropout, output_attentions and position_bias.
    """
    _refuse(module, dropout, others)
    batch, heads, q_len, _ = query.shape
    rules: Dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0}
    lengths = None
    if attention_mask is None:
        rules["causal"] = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if sliding_window is not None and rules["causal"]:
            rules["window"] = (sliding_window - 1, -1)
    else:
        seen = attention_mask[..., : key.shape[2]]
        if seen.dtype == torch.bool:
            lengths = _num_visible(seen).expand(batch).contiguous()
        rules["bias"] = seen.expand(batch, heads, q_len, key.shape[2])
    if s_aux is not None:
        rules["sinks"] = s_aux.detach()
    out = query.new_empty(batch, q_len, heads, value.shape[-1])
    decode(query.transpose(1, 2), key, value, lengths, out=out, layout="HND", **rules)
    return out, None
