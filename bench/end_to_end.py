#!/usr/bin/env python3
"""Time per token of whole models, and the share that attention has in it.

    python3 bench/end_to_end.py --json results.json          # on a GPU, at most 8 minutes
    python3 bench/end_to_end.py --device cpu --models tiny --prompts 256 --json results.json
    python3 bench/end_to_end_plot.py results.json            # figures

needs torch, Transformers 5 and the Python package. docs/end_to_end.md says what is measured.
"""

import argparse
import datetime
import gc
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import torch
import transformers

import end_to_end_attention as attention
import end_to_end_model as models
import end_to_end_read as read
import end_to_end_timing as timing

ROOM = 64  # tokens behind the prompt in the static cache
PER_TURN = 8
# Errors allowed, in those of a plain implementation at the same type.
ALLOWED_ERRORS = 4.0
GRAPH_BYTES = 3e9  # that a graph of attention or reads alone reads, at least
PREFILLED = ("sdpa", "leanattn")
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
FAILURES = (RuntimeError, ValueError, TypeError, ImportError, KeyError, AttributeError,
            NotImplementedError, AssertionError)


def relative_error(value, wanted):
    """||value - wanted|| / ||wanted||"""
    wanted = wanted.float()
    return float((value.float() - wanted).norm() / wanted.norm())


class Row:
    """One model behind one prompt: its columns are checked, and then timed in turn."""

    def __init__(self, model, prompt, options, device, generator, result, save):
        self.options, self.device, self.result, self.save = options, device, result, save
        self.model, self.prompt, self.visible = model, prompt, prompt + 1
        self.shape, self.generator = models.Shape(model.config), generator
        self.columns = {name: {"column": name} for name in options.columns}
        result["columns"] = list(self.columns.values())
        self.runs = {}

    def attempt(self, column, action):
        """Does it, or writes down why not."""
        row = self.columns[column]
        if "why_not" in row:
            return None
        try:
            return action()
        except FAILURES as error:
            row["why_not"] = timing.why(error)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize()  # raises where the device is lost
        return None

    def prefill(self):
        """Seconds until the first token, with a dynamic cache, as generate() begins."""
        self.result["prefill"] = prefills = []
        tokens = torch.randint(5, 500, (1, self.prompt), device=self.device,
                               generator=self.generator)
        for name in PREFILLED:
            if name not in self.columns:
                continue
            entry = {"column": name}
            prefills.append(entry)
            try:
                attention.register_column(name)
                self.model.set_attn_implementation(name)
                entry.update(timed_prefill(self.model, tokens, self.device))
            except FAILURES as error:
                entry["why_not"] = timing.why(error)
            self.save()
            print_prefill(entry)

    def decode(self, deadline):
        self.decoder = models.Decoder(self.model, self.prompt, ROOM, self.generator)
        attention.register_helpers(self.visible)
        repeats = max(1, round(GRAPH_BYTES / self.result["kv_bytes"]))
        self.repeats = repeats if self.device.type == "cuda" else 1
        self.find_allowed()
        self.capture_step(attention.NOTHING)
        for name in self.columns:
            self.attempt(name, lambda name=name: self.prepare(name))
        self.save()
        layers = self.decoder.cache.layers
        for label, way in read.reads(layers, self.visible).items():
            self.runs["read", label] = timing.captured(way, self.device, None, self.repeats)
        times = timing.in_turns(self.runs, self.options.replays, PER_TURN, self.device, deadline)
        self.report(times)

    def find_allowed(self):
        """The exact answers, and the errors that a plain implementation makes."""
        calls, logits = attention.calls_of_step(self.decoder, attention.EXACT)
        self.exact_logits = logits.clone()
        self.exact = attention.direct(self.visible, torch.float32)
        plain = attention.direct(self.visible, None)
        self.allowed_layer = ALLOWED_ERRORS * max(
            relative_error(plain(*a, **k)[0], self.exact(*a, **k)[0]) for a, k in calls
        )
        _, logits = attention.calls_of_step(self.decoder, attention.PLAIN)
        self.allowed_logits = ALLOWED_ERRORS * relative_error(logits, self.exact_logits)
        self.result["allowed_error"] = {"layer": self.allowed_layer, "logits": self.allowed_logits}

    def capture_step(self, name):
        self.decoder.use(name, attention.takes_mask(name))
        run = timing.captured(self.decoder.step, self.device, self.decoder.start)
        self.runs["step", name] = run
        return relative_error(timing.once(run, self.device), self.exact_logits)

    def prepare(self, name):
        """Captures a column's step and its attention alone, and checks both."""
        row = self.columns[name]
        if name in attention.SDPA_BY_HAND:
            row["way"] = self.quickest_by_hand(name)
        else:
            attention.register_column(name)
        calls, _ = attention.calls_of_step(self.decoder, name)
        function = attention.ALL_ATTENTION_FUNCTIONS[name]

        def alone():
            return [function(*arguments, **keywords)[0] for arguments, keywords in calls]

        run = timing.captured(alone, self.device, None, self.repeats)
        row["layer_error"] = max(
            relative_error(out, self.exact(*arguments, **keywords)[0])
            for out, (arguments, keywords) in zip(timing.once(run, self.device), calls)
        )
        if not row["layer_error"] <= self.allowed_layer:
            raise ValueError(f"WRONG ANSWER: a layer is off by {row['layer_error']:.2e}; allowed "
                             f"are {self.allowed_layer:.2e}")
        row["logit_error"] = self.capture_step(name)
        if not row["logit_error"] <= self.allowed_logits:
            del self.runs["step", name]
            raise ValueError(f"WRONG ANSWER: logits are off by {row['logit_error']:.2e}; allowed "
                             f"are {self.allowed_logits:.2e}")
        self.runs["alone", name] = run
        progress(f"{name} captured")

    def quickest_by_hand(self, name):
        """Registers the quickest way to call SDPA for this column, and says which."""
        attention.register_by_hand(name, attention.exact_in_model(self.visible))
        calls, _ = attention.calls_of_step(self.decoder, name)
        grouped = self.shape.heads != self.shape.kv_heads
        ways = attention.ways_by_hand(name, self.visible, grouped, self.device)
        runs, refused = {}, []
        for label, way in ways.items():
            def alone(way=way):
                return [way(*arguments, **keywords)[0] for arguments, keywords in calls]
            try:
                runs[label] = timing.captured(alone, self.device)
            except FAILURES as error:
                refused.append(f"{label}: {timing.why(error)}")
        if not runs:
            raise ValueError("; ".join(refused))
        times = timing.in_turns(runs, 5, 5, self.device, time.monotonic() + 10)
        best = min(times, key=lambda label: times[label]["median_us"])
        attention.register_by_hand(name, ways[best])
        self.columns[name]["ways_us"] = {k: v["median_us"] for k, v in times.items()}
        return best

    def report(self, times):
        """Fills the columns from the times of all runs."""
        nothing = times["step", attention.NOTHING]
        reads = {label: value for (kind, label), value in times.items() if kind == "read"}
        best = min(value["median_us"] for value in reads.values())
        floor = nothing["median_us"] + best
        self.result.update(no_attention=nothing, reads=reads, best_read_us=best, floor_us=floor,
                           read_bytes_per_second=self.result["kv_bytes"] / best * 1e6)
        for name, row in self.columns.items():
            if ("step", name) not in times or "why_not" in row:
                continue
            row.update(times["step", name])
            row["attention_us"] = row["median_us"] - nothing["median_us"]
            row["share"] = row["attention_us"] / row["median_us"]
            row["alone"] = times["alone", name]
            row["of_floor"] = row["median_us"] / floor


def timed_prefill(model, tokens, device):
    """Median of as many prefills as fit in 3 seconds, at most 3."""
    def call(some):
        logits = model(input_ids=some, use_cache=True, logits_to_keep=1).logits
        if device.type == "cuda":
            torch.cuda.synchronize()
        return logits

    call(tokens[:, :2048])
    seconds = []
    while len(seconds) < 3 and sum(seconds) < 3:
        begin = time.perf_counter()
        call(tokens)
        seconds.append(time.perf_counter() - begin)
    times = timing.times_of(seconds)
    return {"seconds": times["median_us"] * 1e-6, "runs": times["replays"]}


def progress(text):
    """A line that the next one replaces, where someone watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K  {text}", end="", file=sys.stderr, flush=True)


def print_prefill(entry):
    text = entry.get("why_not") or f"{entry['seconds']:.3f} s"
    progress("")
    print(f"  prefill, {entry['column']}: {text}", flush=True)


def print_row(result):
    progress("")
    if "floor_us" in result:
        print(f"  {'column':<22}{'us/token':>10}{'attention':>11}{'share':>7}{'alone':>10}"
              f"{'of floor':>10}  errors of layer, logits")
    for row in result["columns"]:
        if "median_us" not in row:
            print(f"  {row['column']:<22}{row.get('why_not', 'not measured')}")
            continue
        print(f"  {row['column']:<22}{row['median_us']:>10.1f}{row['attention_us']:>11.1f}"
              f"{row['share']:>7.1%}{row['alone']['median_us']:>10.1f}{row['of_floor']:>10.3f}"
              f"  {row['layer_error']:.1e}, {row['logit_error']:.1e}  {row.get('way', '')}")
    if "floor_us" in result:
        print(f"  {'floor':<22}{result['floor_us']:>10.1f}: everything but attention "
              f"{result['no_attention']['median_us']:.1f}, best read {result['best_read_us']:.1f} "
              f"({result['read_bytes_per_second'] / 1e12:.3f} TB/s)")
    sys.stdout.flush()


def machine(device):
    """What it was measured on."""
    found = {"python": platform.python_version(), "torch": torch.__version__,
             "transformers": transformers.__version__, "platform": platform.platform()}
    try:
        import leanattn

        found["leanattn"] = leanattn.info()
    except ImportError as error:
        found["leanattn"] = str(error)
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found.update(gpu=properties.name, num_sms=properties.multi_processor_count,
                     cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
                     driver=output_of(query))
    return found


def output_of(command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20,
                             cwd=pathlib.Path(__file__).parent)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip().split("\n")[0]


def measure(options, report, save):
    device = torch.device(options.device)
    generator = torch.Generator(device).manual_seed(1)
    dtype = TYPES[options.type]
    rows = [(name, prompt) for name in options.models for prompt in options.prompts]
    deadline = time.monotonic() + options.seconds
    model = model_name = None
    for index, (name, prompt) in enumerate(rows):
        begin = time.monotonic()
        print(f"{name}, {options.type}, prompt of {prompt} tokens", flush=True)
        result = {"model": name, "type": options.type, "prompt": prompt}
        report["results"].append(result)
        if begin > deadline:
            result["why_not"] = f"out of the {options.seconds} s that --seconds gives"
            print(f"  {result['why_not']}")
            continue
        share = (deadline - begin) / (len(rows) - index)
        try:
            if name != model_name:
                model, model_name = None, name
                free(device)
                positions = max(options.prompts) + ROOM
                model = models.create(name, positions, dtype, device, generator)
            one_row(model, prompt, options, device, generator, result, save, begin + share)
        except FAILURES as error:
            result["why_not"] = timing.why(error)
            print(f"  {result['why_not']}", flush=True)
        result["seconds"] = round(time.monotonic() - begin, 2)
        free(device)
        save()


def one_row(model, prompt, options, device, generator, result, save, deadline):
    shape = models.Shape(model.config)
    result.update(
        layers=shape.layers, heads=shape.heads, kv_heads=shape.kv_heads,
        head_dim=shape.head_dim, kv_bytes=shape.bytes_of(prompt + 1, model.dtype),
        weight_bytes=sum(p.numel() * p.dtype.itemsize for p in model.parameters()),
    )
    row = Row(model, prompt, options, device, generator, result, save)
    if options.prefill:
        row.prefill()
        free(device)
    row.decode(deadline)
    print_row(result)


def free(device):
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


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
    commit = os.environ.get("LEANATTN_COMMIT")
    report = {
        "command": "python3 bench/end_to_end.py " + " ".join(sys.argv[1:]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit or output_of(["git", "rev-parse", "--short=12", "HEAD"]) or "unknown",
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
