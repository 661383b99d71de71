"""Models of bench/end_to_end.py: random weights of real shapes, and one decode step of them."""

import inspect

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig, StaticCache
from transformers.masking_utils import create_causal_mask


def opt(hidden, layers, heads, positions, vocab=50272):
    """An OPT whose learned positions reach as far as asked for."""
    return OPTConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        ffn_dim=4 * hidden, word_embed_proj_dim=hidden, vocab_size=vocab,
        max_position_embeddings=positions,
    )


def llama(hidden, layers, heads, kv_heads, intermediate, positions, vocab=128256):
    return LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=intermediate, vocab_size=vocab,
        max_position_embeddings=positions, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )


# Name -> the configuration with room for so many positions.
MODELS = {
    "opt-1.3b": lambda positions: opt(2048, 24, 32, positions),
    "opt-6.7b": lambda positions: opt(4096, 32, 32, positions),
    "llama-3-8b": lambda positions: llama(4096, 32, 32, 8, 14336, positions),
    "tiny-opt": lambda positions: opt(128, 3, 4, positions, 512),
    "tiny-llama": lambda positions: llama(256, 3, 8, 2, 512, positions, 512),
}


class Shape:
    """What a model's cache looks like."""

    def __init__(self, config):
        self.layers, self.heads = config.num_hidden_layers, config.num_attention_heads
        self.kv_heads = getattr(config, "num_key_value_heads", None) or self.heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads

    def bytes_of(self, keys, dtype):
        """Of the keys and values of so many tokens in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * keys * dtype.itemsize


def create(name, positions, dtype, device, generator):
    """The model with normal weights, made where it is to run."""
    config = MODELS[name](positions)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model.to_empty(device=device)
    model.tie_weights()
    for label, weight in model.named_parameters():
        if weight.ndim > 1:
            weight.data.normal_(0.0, 0.02, generator=generator)
        else:  # of a norm, or a bias
            weight.data.fill_(0.0 if label.endswith("bias") else 1.0)
    with torch.device(device):
        for module in model.modules():
            if hasattr(module, "inv_freq"):  # no weight: lost with the meta device
                module.__init__(model.config)
    return model.eval()


def given(function, **arguments):
    """The arguments that a function knows: names differ between versions of Transformers."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


class Decoder:
    """A model behind a prompt: a static cache of random keys and values, and the next token.

    step() is a whole decode step on the device alone: it makes the mask, computes the logits,
    appends to the cache, takes the likeliest token and moves on by one position. All that
    changes lies in the same tensors at every step, so that a captured step goes on from where
    the last one ended.
    """

    def __init__(self, model, prompt, room, generator):
        self.model, self.prompt, self.capacity = model, prompt, prompt + room
        self.device, dtype = model.device, model.dtype
        shape = Shape(model.config)
        self.cache = StaticCache(config=model.config, max_cache_len=self.capacity)
        self.cache.early_initialization(1, shape.kv_heads, shape.head_dim, dtype, self.device)
        for layer in self.cache.layers:
            # Keys so wide that few of them matter: errors of attention show in the logits.
            layer.keys.normal_(0.0, 3.0, generator=generator)
            layer.values.normal_(generator=generator)
        self.token = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        self.position = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        self.unmasked = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self.device)
        self.all_keys = torch.ones(1, self.capacity, dtype=torch.bool, device=self.device)
        self.start()

    def start(self):
        """Back to the end of the prompt."""
        self.token.fill_(7)
        self.position.fill_(self.prompt)
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.fill_(self.prompt)

    def use(self, implementation, takes_mask=True):
        self.model.set_attn_implementation(implementation)
        self.takes_mask = takes_mask

    def mask(self):
        """As generate() makes it ahead of a step over a static cache.

        A mask of 4 dimensions is passed on by models as it is. Where the implementation makes
        none, all keys are said to be no padding: OPT would ask the device for their number.
        """
        if not self.takes_mask:
            return self.unmasked
        embeds = torch.empty(1, 1, 0, dtype=self.model.dtype, device=self.device)
        made = create_causal_mask(**given(
            create_causal_mask, config=self.model.config, inputs_embeds=embeds,
            input_embeds=embeds, attention_mask=None, cache=self.cache,
            past_key_values=self.cache, cache_position=self.position[0],
            position_ids=self.position,
        ))
        if getattr(made, "ndim", 0) == 4:
            return made
        return self.all_keys if self.model.config.model_type == "opt" else None

    def step(self):
        """The logits [1, vocabulary] of the next token."""
        logits = self.model(**given(
            self.model.forward, input_ids=self.token, position_ids=self.position,
            attention_mask=self.mask(), use_cache=True, cache=self.cache,
            past_key_values=self.cache, cache_position=self.position[0],
        )).logits[:, -1]
        self.token.copy_(logits.argmax(-1, keepdim=True))
        self.position.add_(1)
        return logits
