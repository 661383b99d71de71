"""Decode steps of Transformers' models with static caches: compiled, captured, never waiting."""

import inspect

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

from torch_arrays import needs_cuda, on_devices  # noqa: E402

from leanattn.integrations.transformers import register  # noqa: E402

PROMPT, TOTAL = 10, 16
SIZES = dict(vocab_size=97, hidden_size=256, intermediate_size=96, num_hidden_layers=2,
             max_position_embeddings=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
             pad_token_id=0, bos_token_id=1, eos_token_id=None)
LAYERS = ["sliding_attention", "full_attention"]
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES, sliding_window=8, layer_types=LAYERS, attn_logit_softcapping=2.0,
        tie_word_embeddings=False),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **SIZES, sliding_window=8, layer_types=LAYERS, num_local_experts=2, num_experts_per_tok=2),
}
register()
on_models = pytest.mark.parametrize("name", sorted(CONFIGS))


class Steps:
    """A model with random weights, the logits of its `TOTAL` tokens by eager attention, and its
    decode steps over a static cache, each one token of a fixed buffer."""

    def __init__(self, name, device, attention="leanattn"):
        torch.manual_seed(3)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self.model = transformers.AutoModelForCausalLM.from_config(
            CONFIGS[name](), attn_implementation="eager", dtype=dtype).to(device).eval()
        with torch.no_grad():
            for weights in self.model.parameters():  # far from uniform attention
                weights.normal_(0, 0.1 if weights.ndim > 1 else 1.0)
        self.ids = torch.randint(3, 97, (2, TOTAL), device=device)
        self.eps = 2e-5 if device == "cpu" else 0.1
        with torch.no_grad():
            self.expected = self.model(self.ids).logits
        self.model.set_attn_implementation(attention)
        names = inspect.signature(type(self.model).forward).parameters
        self.name = "cache" if "cache" in names else "past_key_values"
        self.token = self.ids[:, :1].clone()
        self.prefill()

    def forward(self, ids, **options):
        return self.model(ids, **{self.name: self.cache}, **options).logits

    def prefill(self):
        self.cache = transformers.StaticCache(config=self.model.config, max_cache_len=TOTAL + 8)
        self.close(self.forward(self.ids[:, :PROMPT]), range(PROMPT))

    def step(self):
        return self.forward(self.token)

    def padded_step(self):
        return self.forward(self.token, attention_mask=self.mask)

    def close(self, logits, positions):
        expected = self.expected[:, positions].float()
        torch.testing.assert_close(logits.float(), expected, rtol=self.eps,
                                   atol=self.eps * expected.abs().max().item())

    def check(self, call):
        """Steps by `call` from the prompt to the last token."""
        for i in range(PROMPT, TOTAL):
            self.token.copy_(self.ids[:, i : i + 1])
            self.mask = torch.ones(2, i + 1, dtype=torch.long, device=self.ids.device)
            self.close(call(), [i])


@torch.no_grad()
@on_devices
@on_models
def test_compiled_in_one_graph(name, device):
    steps = Steps(name, device)
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    steps.check(torch.compile(steps.step, fullgraph=True, backend=backend))
    # One for all lengths; Transformers counts the tokens of windows in Python, and once again.
    assert len(graphs) == (1 if name == "llama" else 2)
    assert all("leanattn.decode" in graph.code for graph in graphs)


@torch.no_grad()
@on_devices
@on_models
def test_with_a_mask_of_padding(name, device):
    steps = Steps(name, device)
    steps.check(steps.padded_step)


@torch.no_grad()
@needs_cuda
# Transformers' caches of windows wait for the device, as its experts do.
@pytest.mark.parametrize("name", ["llama"])
def test_captured(name):
    steps = Steps(name, "cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        steps.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    steps.prefill()
    with torch.cuda.graph(graph):
        logits = steps.step()
    steps.check(lambda: graph.replay() or logits)


@torch.no_grad()
@needs_cuda
@pytest.mark.parametrize("name", ["llama"])
@pytest.mark.parametrize("padded", [False, True])
def test_no_step_waits(name, padded):
    steps = Steps(name, "cuda")
    step = steps.padded_step if padded else steps.step

    def unsynchronised():
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    steps.check(unsynchronised)


@torch.no_grad()
@on_devices
@on_models
def test_greedy_tokens_with_a_compiled_step(name, device):
    steps = Steps(name, device)
    options = dict(max_new_tokens=6, do_sample=False, cache_implementation="static",
                   disable_compile=True)
    first = steps.model.generate(steps.ids, **options)
    config = transformers.CompileConfig(fullgraph=True, dynamic=False, backend="aot_eager",
                                        mode=None)
    config._compile_all_devices = True
    options.update(disable_compile=False, compile_config=config)
    torch._dynamo.reset()
    assert torch.equal(steps.model.generate(steps.ids, **options), first)


@torch.no_grad()
def test_names_with_options_of_their_own():
    register("leanattn_splits", partition="fixed_split", num_splits=2)
    register("leanattn_invariant", batch_invariant=True)
    for attention in ("leanattn_splits", "leanattn_invariant"):
        steps = Steps("llama", "cpu", attention)
        steps.check(steps.step)
    register("leanattn_wrong", partition="halves")
    with pytest.raises(ValueError, match="partition is halves; allowed are auto, one_tile"):
        Steps("llama", "cpu", "leanattn_wrong")
