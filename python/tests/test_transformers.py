"""Models of Transformers, small and random, with leanattn and with eager attention."""

import inspect

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

from leanattn.integrations.transformers import attention, mask, register  # noqa: E402

register()

SIZES = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
             max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=None)
LAYERS = ["sliding_attention", "full_attention"]
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(
        **SIZES, num_attention_heads=4, num_key_value_heads=2),
    "mistral": lambda: transformers.MistralConfig(
        **SIZES, num_attention_heads=4, num_key_value_heads=2, sliding_window=16),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=32, sliding_window=16,
        layer_types=LAYERS, attn_logit_softcapping=2.0, query_pre_attn_scalar=8, tie_word_embeddings=False),
    "qwen2": lambda: transformers.Qwen2Config(
        **{**SIZES, "hidden_size": 112}, num_attention_heads=7, num_key_value_heads=1),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **SIZES, num_attention_heads=8, num_key_value_heads=2, head_dim=16, sliding_window=16,
        layer_types=LAYERS, num_local_experts=4, num_experts_per_tok=2),
    "opt": lambda: transformers.OPTConfig(
        **{**SIZES, "word_embed_proj_dim": 64}, num_attention_heads=4, ffn_dim=96,
        do_layer_norm_before=True),
}


@pytest.fixture(params=sorted(CONFIGS))
def models(request):
    """The same model twice, with eager attention and with leanattn."""
    torch.manual_seed(1)
    make = transformers.AutoModelForCausalLM.from_config
    eager = make(CONFIGS[request.param](), attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weights in eager.named_parameters():
            if weights.ndim > 1 or "sinks" in name:  # far from uniform attention
                weights.normal_(0, 0.3 if weights.ndim > 1 else 1.0)
    ours = make(CONFIGS[request.param](), attn_implementation="leanattn").eval()
    ours.load_state_dict(eager.state_dict())
    return eager, ours


def prompts(batch=1, length=40):
    return torch.randint(3, 97, (batch, length), generator=torch.Generator().manual_seed(2))


def close(actual, expected, eps=2e-5):
    torch.testing.assert_close(actual, expected, rtol=eps, atol=eps * expected.abs().max().item())


@torch.no_grad()
def test_prefill(models):
    eager, ours = models
    close(ours(prompts(2)).logits, eager(prompts(2)).logits)


@torch.no_grad()
def test_chunked_prefill_and_decode(models):
    eager, ours = models
    ids = prompts(2, 60)
    whole = eager(ids).logits
    cache = transformers.DynamicCache(config=ours.config)
    parameters = inspect.signature(type(ours).forward).parameters
    name = "cache" if "cache" in parameters else "past_key_values"
    begin = 0
    for length in (20, 15, 1, 1, 23):
        chunk = ours(ids[:, begin : begin + length], **{name: cache}).logits
        close(chunk, whole[:, begin : begin + length])
        begin += length


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(models, side):
    eager, ours = models
    ids, real = prompts(2), torch.ones(2, 40, dtype=torch.long)
    padding = slice(0, 9) if side == "left" else slice(31, 40)
    ids[1, padding], real[1, padding] = 0, 0
    kept = real.bool()
    close(ours(ids, attention_mask=real).logits[kept],
          eager(ids, attention_mask=real).logits[kept])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_greedy_tokens(models, cache):
    options = dict(max_new_tokens=64, do_sample=False, cache_implementation=cache,
                   disable_compile=True)
    ids, real = prompts(2), torch.ones(2, 40, dtype=torch.long)
    ids[1, :7], real[1, :7] = 0, 0
    eager, ours = (m.generate(ids, attention_mask=real, **options) for m in models)
    assert eager.shape == (2, 104) and len(eager[0, 40:].unique()) > 1
    assert torch.equal(ours, eager)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(models, dtype):
    eager, ours = models
    if "GptOss" in type(ours).__name__:
        pytest.skip("its experts, chosen by rounded scores, may be others")
    exact = eager(prompts()).logits
    errors = [(m.to(dtype)(prompts()).logits.float() - exact).pow(2).mean().sqrt()
              for m in (eager, ours)]
    assert errors[1] <= 1.25 * errors[0]  # root mean squares over 3880 logits


def test_masks_are_left_out_where_causal_says_it_all():
    rest = dict(q_length=4, kv_length=9, q_offset=5)
    assert mask(2, **rest) is None
    assert mask(2, **rest, attention_mask=torch.ones(2, 9, dtype=torch.bool)) is None
    padded = torch.tensor([[False] + [True] * 8])
    assert mask(1, **rest, attention_mask=padded).shape == (1, 1, 4, 9)
    assert mask(1, q_length=4, kv_length=9, q_offset=6).shape == (1, 1, 4, 9)
    assert mask(1, **rest, local_size=3).shape == (1, 1, 4, 9)
    assert mask(1, **rest, allow_is_causal_skip=False).shape == (1, 1, 4, 9)
    assert mask(1, **rest, mask_function=lambda b, h, i, j: j < i).shape == (1, 1, 4, 9)


def test_masks_are_lengths_where_keys_are_still_to_come():
    step = dict(q_length=1, kv_length=9, q_offset=torch.tensor(5), allow_is_causal_skip=False)
    for rest in (dict(q_length=4, kv_length=9, q_offset=2), step):
        lengths = mask(2, **rest)
        assert lengths.dtype == torch.int32 and lengths.tolist() == 2 * [[[[6, 6]]]]
        with pytest.raises(RuntimeError):  # for a model that takes it for a mask
            torch.zeros(2, 4, rest["q_length"], 9) + lengths
    unread = torch.ones(2, 9, dtype=torch.bool)
    assert mask(2, **step, attention_mask=unread).shape == (2, 1, 1, 9)


def test_what_is_refused(models):
    with pytest.raises(RuntimeError, match="requires_grad True"):
        models[1](prompts())
    module = models[1].train()
    q = torch.zeros(1, 4, 2, 16)
    for sentence, options in [("dropout is 0.1; it must be 0", {"dropout": 0.1}),
                              ("output_attentions is True", {"output_attentions": True}),
                              ("position_bias is given", {"position_bias": q})]:
        with pytest.raises(ValueError, match=sentence):
            attention(module, q, q, q, None, **options)
