"""The columns of bench/end_to_end.py: attention functions that Transformers knows by name."""

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NOTHING, EXACT, PLAIN = "no_attention", "exact", "plain"
# Our schedules: name -> options of leanattn.integrations.transformers.register().
OURS = {
    "leanattn": {},
    "leanattn_one_tile": {"partition": "one_tile"},
    "leanattn_fixed_split": {"partition": "fixed_split"},
}
# PyTorch's: as Transformers calls it, and twice as quickly as it can be called by hand, over
# the whole static cache with a mask, and over the keys there are without one. Of the last a
# captured graph serves one length only.
SDPA_BY_HAND = ("sdpa_masked", "sdpa_sliced")
COLUMNS = (*OURS, "sdpa", *SDPA_BY_HAND)


def no_mask(*_, **__):
    """The mask of functions that read none."""


def no_attention(module, query, key, value, attention_mask, **_):
    """Zeros: what is left of a step is everything but attention."""
    batch, heads, q_len, _ = query.shape
    return query.new_zeros(batch, q_len, heads, value.shape[-1]), None


def direct(visible, dtype):
    """Attention of one query over the first `visible` keys by its definition, in `dtype`.

    Head by head, so that no copy of a cache is made; softmax in float32 at least. None: in the
    type of the query, which is the plain implementation that errors are measured by.
    """

    def attention(module, query, key, value, attention_mask, scaling=None, **_):
        _, heads, q_len, dim = query.shape
        kv_heads, kind = key.shape[1], dtype or query.dtype
        packed = query.view(kv_heads, heads // kv_heads, dim).to(kind)
        out = query.new_empty(kv_heads, heads // kv_heads, value.shape[-1], dtype=kind)
        for head in range(kv_heads):
            k, v = (x[0, head, :visible].to(kind) for x in (key, value))
            scores = (packed[head] @ k.T) * (dim**-0.5 if scaling is None else scaling)
            wide = torch.promote_types(kind, torch.float32)
            out[head] = torch.softmax(scores.to(wide), -1).to(kind) @ v
        return out.view(1, q_len, heads, -1), None

    return attention


def exact_type(dtype):
    """In which to compute what is exact beside a type."""
    return torch.float64 if dtype == torch.float32 else torch.float32


def rounded(attention):
    """With the result in the query's type, which a model goes on with."""
    def function(module, query, *rest, **others):
        return attention(module, query, *rest, **others)[0].to(query.dtype), None

    return function


def all_layers(function, calls):
    """A call of all layers' attention, which returns their results."""
    return lambda: [function(*arguments, **keywords)[0] for arguments, keywords in calls]


def by_hand(backend, packed, visible):
    """SDPA of one query with one backend (None: PyTorch's choice).

    packed: the query heads of a KV head as so many queries, else enable_gqa. visible: read so
    many keys, without a mask; None: read all, with it.
    """

    def attention(module, query, key, value, attention_mask, scaling=None, **_):
        batch, heads, q_len, dim = query.shape
        kv_heads = key.shape[1]
        if visible is not None:
            key, value, attention_mask = key[:, :, :visible], value[:, :, :visible], None
        if packed:
            query = query.reshape(batch, kv_heads, heads // kv_heads, dim)
        with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
            out = scaled_dot_product_attention(
                query, key, value, attn_mask=attention_mask, scale=scaling,
                enable_gqa=query.shape[1] != kv_heads,
            )
        return out.reshape(batch, heads, q_len, -1).transpose(1, 2).contiguous(), None

    return attention


def ways_by_hand(column, visible, grouped, device):
    """Label -> by_hand(), of all that may be the quickest for a column of SDPA_BY_HAND."""
    backends = {"default": None}
    if device.type == "cuda":
        backends.update(flash=SDPBackend.FLASH_ATTENTION, cudnn=SDPBackend.CUDNN_ATTENTION,
                        efficient=SDPBackend.EFFICIENT_ATTENTION)
    keys = visible if column == "sdpa_sliced" else None
    ways = {}
    for label, backend in backends.items():
        ways[label] = by_hand(backend, True, keys)
        if grouped:
            ways[label + ", enable_gqa"] = by_hand(backend, False, keys)
    return ways


def register(name, attention, mask=no_mask):
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


def register_column(name):
    """Makes a column's name known to Transformers; raises where the package lacks it."""
    if name in OURS:
        from leanattn.integrations import transformers as ours

        ours.register(**({"name": name, **OURS[name]} if OURS[name] else {}))


def register_helpers(visible, dtype):
    """Those that are not timed as columns, and are to see so many keys."""
    register(NOTHING, no_attention)
    register(EXACT, rounded(direct(visible, exact_type(dtype))))
    register(PLAIN, direct(visible, None))


def register_by_hand(column, attention):
    register(column, attention, sdpa_mask if column == "sdpa_masked" else no_mask)


def takes_mask(name):
    return name not in (NOTHING, EXACT, PLAIN, "sdpa_sliced")


def calls_of_step(decoder, name):
    """The (arguments, keywords) of each layer's attention in one step, and the logits."""
    original, calls = ALL_ATTENTION_FUNCTIONS[name], []

    def record(*arguments, **keywords):
        calls.append((arguments, keywords))
        return original(*arguments, **keywords)

    decoder.use(name, takes_mask(name))
    decoder.start()
    AttentionInterface.register(name, record)
    try:
        logits = decoder.step()
    finally:
        AttentionInterface.register(name, original)
    return calls, logits
