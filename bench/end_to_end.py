#!/usr/bin/env python3
"""Time per token of whole models, and the share that attention has in it.

    python3 bench/end_to_end.py --json results.json          # on a GPU, at most 8 minutes
    python3 bench/end_to_end.py --device cpu --models tiny --prompts 256 --json results.json
    python3 bench/end_to_end_plot.py results.json            # figures

needs torch, Transformers 5 and the Python package. docs/end_to_end.md says what is measured.
"""

import argparse
import json
import os
import pathlib
import platform
import sys
import time
import warnings

import torch
import transformers

import end_to_end_attention as attention
import end_to_end_model as models
import end_to_end_timing as timing
from end_to_end_row import ROOM, Row, free
from report_header import output_of, report_header

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def progress(text):
    """What is being done: a line that the next one replaces, where someone watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K  {text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(f"  ... {text}", file=sys.stderr, flush=True)


def print_row(result):
    """What a row gave; also of one that broke off."""
    progress("")
    for entry in result.get("prefill", []):
        text = entry.get("why_not") or f"{entry['seconds']:.3f} s"
        print(f"  prefill, {entry['column']}: {text}")
    done = "floor_us" in result
    if done:
        print(f"  {'column':<22}{'us/token':>10}{'attention':>11}{'share':>7}{'alone':>10}"
              f"{'of floor':>10}  errors of layer, logits")
    for row in result.get("columns", []):
        if "median_us" not in row:
            print(f"  {row['column']:<22}{row.get('why_not', 'not measured')}")
            continue
        print(f"  {row['column']:<22}{row['median_us']:>10.1f}{row['attention_us']:>11.1f}"
              f"{row['share']:>7.1%}{row['alone']['median_us']:>10.1f}{row['of_floor']:>10.3f}"
              f"  {row['layer_error']:.1e}, {row['logit_error']:.1e}  {row.get('way', '')}")
    if done:
        rest = result["without_attention"]
        print(f"  {'floor':<22}{result['floor_us']:>10.1f}  all but attention "
              f"{rest['median_us']:.1f}, best read {result['best_read_us']:.1f} "
              f"({result['read_bytes_per_second'] / 1e12:.3f} TB/s); without attention the "
              f"logits are off by {rest['logit_error']:.1e}")
    if "why_not" in result:
        print(f"  {result['why_not']}")
    sys.stdout.flush()


def machine(device):
    """What it was measured on."""
    found = {"python": platform.python_version(), "torch": torch.__version__,
             "transformers": transformers.__version__, "platform": platform.platform()}
    try:
        import leanattn

        found["leanattn"] = leanattn.info()
    except Exception as error:
        found["leanattn"] = str(error)
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found.update(gpu=properties.name, num_sms=properties.multi_processor_count,
                     cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
                     driver=output_of(query))
    return found


def measure(options, report, save):
    """All rows, one model after another; each row may take its part of the time left."""
    device = torch.device(options.device)
    generator = torch.Generator(device).manual_seed(1)
    deadline = time.monotonic() + options.seconds
    rows = [(name, prompt) for name in options.models for prompt in options.prompts]
    model, model_name, shorter = None, None, {}
    for index, (name, prompt) in enumerate(rows):
        begin = time.monotonic()
        until = begin + (deadline - begin) / (len(rows) - index)
        print(f"{name}, {options.type}, prompt of {prompt} tokens", flush=True)
        result = {"model": name, "type": options.type, "prompt": prompt}
        report["results"].append(result)
        try:
            if begin > deadline:
                raise TimeoutError(f"the {options.seconds} s of --seconds are over")
            if name != model_name:
                model, model_name, shorter = None, name, {}
                free(device)
                progress("creating the model")
                model = models.create(name, max(options.prompts) + ROOM, TYPES[options.type],
                                      device, generator)
            row = Row(model, prompt, options.columns, result, save, progress)
            if options.prefill:
                row.prefill(generator, shorter)
            row.decode(generator, options.replays, until)
        except Exception as error:
            result["why_not"] = timing.why(error)
            model_name = name if model is not None else None
        row = None  # and with it caches and graphs
        result["seconds"] = round(time.monotonic() - begin, 2)
        save()
        print_row(result)
        try:
            free(device)
        except Exception as error:
            sys.exit(f"bench/end_to_end.py: the device is lost: {timing.why(error)}")


def tokens_of(text):
    """1024, or 1k for it."""
    number = text[:-1] if text[-1:] in ("k", "K") else text
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of tokens, such as 1024 or 1k")
    return int(number) * (1 if number == text else 1024)


def listed(known, tiny=()):
    """Parses a name of `known`, or "tiny" for those of it."""
    def parse(text):
        if text not in known and not (tiny and text == "tiny"):
            raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(known)}")
        return list(tiny) if text == "tiny" else [text]
    return parse


def positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no positive whole number")
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    tiny = [name for name in models.MODELS if name.startswith("tiny")]
    parser.add_argument("--models", nargs="+", type=listed(models.MODELS, tiny),
                        default=[[n] for n in models.MODELS if n not in tiny],
                        help=f"of {', '.join(models.MODELS)}; tiny: both of these")
    parser.add_argument("--prompts", nargs="+", type=tokens_of, default=[1024, 8192, 51200],
                        help="tokens, 1k for 1024")
    parser.add_argument("--columns", nargs="+", type=listed(attention.COLUMNS),
                        default=[[name] for name in attention.COLUMNS],
                        help=f"of {', '.join(attention.COLUMNS)}")
    parser.add_argument("--type", choices=TYPES, default="bf16")
    parser.add_argument("--replays", type=positive, default=40, help="of each column, or more")
    parser.add_argument("--seconds", type=positive, default=480, help="for all of it")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--no-prefill", dest="prefill", action="store_false")
    parser.add_argument("--json", help="the file to write, after every row")
    options = parser.parse_args()
    options.models = list(dict.fromkeys(name for some in options.models for name in some))
    options.columns = list(dict.fromkeys(name for some in options.columns for name in some))
    options.prompts = sorted(set(options.prompts))
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device is cuda, but torch finds no GPU; --device cpu runs without")
    if options.json and not pathlib.Path(options.json).resolve().parent.is_dir():
        parser.error(f"--json is '{options.json}', whose folder does not exist")
    return options


def main():
    options = arguments()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")  # PyTorch says at length why a backend is not used
    report = {
        **report_header(),
        "machine": machine(torch.device(options.device)),
        "results": [],
    }
    print(json.dumps(report["machine"]), flush=True)

    def save():
        if options.json:
            with open(options.json + ".part", "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
            os.replace(options.json + ".part", options.json)

    with torch.inference_mode():
        measure(options, report, save)


if __name__ == "__main__":
    main()
