"""One row of bench/end_to_end.py: a model behind a prompt, its columns checked and timed."""

import gc
import time

import torch

import end_to_end_attention as attention
import end_to_end_model as models
import end_to_end_read as read
import end_to_end_timing as timing

ROOM = 64  # tokens behind the prompt in the static cache
PER_TURN = 8
# Errors allowed, in those of a plain implementation at the same type.
ALLOWED_ERRORS = 4.0
ALLOWED_PREFILL = 0.1  # ||logits - SDPA's|| / ||SDPA's||
GRAPH_BYTES = 3e9  # that a graph of attention or reads alone reads, at least
PREFILLED = ("sdpa", "leanattn")
PREFILL_SECONDS = 20.0  # that one prefill may take


def relative_error(value, wanted):
    """||value - wanted|| / ||wanted||"""
    wanted = wanted.double()
    return float((value.double() - wanted).norm() / wanted.norm())


def require(error, allowed, what):
    """Raises for errors above what is allowed, and for NaN."""
    if not error <= allowed:
        raise ValueError(f"WRONG ANSWER: {what} off by {error:.2e}; allowed are {allowed:.2e}")
    return error


def free(device):
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()  # raises where the device is lost
        torch.cuda.empty_cache()


class Row:
    """Fills `result`, and calls `save` after each part; `say` shows progress."""

    def __init__(self, model, prompt, columns, result, save, say):
        self.model, self.prompt, self.visible = model, prompt, prompt + 1
        self.device, self.shape = model.device, models.Shape(model.config)
        self.result, self.save, self.say = result, save, say
        self.columns = {name: {"column": name} for name in columns}
        self.runs = {}
        result.update(
            layers=self.shape.layers, heads=self.shape.heads, kv_heads=self.shape.kv_heads,
            head_dim=self.shape.head_dim, columns=list(self.columns.values()),
            kv_bytes=self.shape.bytes_of(self.visible, model.dtype),
            weight_bytes=sum(p.numel() * p.dtype.itemsize for p in model.parameters()),
        )
        on_gpu = self.device.type == "cuda"
        self.repeats = max(1, round(GRAPH_BYTES / result["kv_bytes"])) if on_gpu else 1

    def prefill(self, generator, shorter):
        """Seconds to a prompt's last logits, with a dynamic cache, as generate() begins.

        shorter: label -> (prompt, seconds) of a shorter prompt, by which ones that would take
        too long are left out; it is updated.
        """
        self.result["prefill"] = entries = []
        tokens = torch.randint(5, 500, (1, self.prompt), device=self.device, generator=generator)
        wanted = None
        for name in PREFILLED:
            if name not in self.columns:
                continue
            entry = {"column": name}
            entries.append(entry)
            self.say(f"prefill, {name}")
            try:
                require_time(name, self.prompt, shorter)
                attention.register_column(name)
                self.model.set_attn_implementation(name)
                seconds, logits = timed_prefill(self.model, tokens)
                wanted = logits if wanted is None else wanted
                entry["difference"] = require(
                    relative_error(logits, wanted), ALLOWED_PREFILL, "logits are, from SDPA's,")
                entry.update(seconds=min(seconds), runs=len(seconds))
                shorter[name] = self.prompt, min(seconds)
            except Exception as error:
                entry["why_not"] = timing.why(error)
            free(self.device)
            self.save()

    def decode(self, generator, replays, deadline):
        """Checks all columns, and times them in turn with reads and the step without attention."""
        self.decoder = models.Decoder(self.model, self.prompt, ROOM, generator)
        attention.register_helpers(self.visible, self.model.dtype)
        self.find_allowed()
        self.result["without_attention"] = {"logit_error": self.capture_step(attention.NOTHING)}
        for name, row in self.columns.items():
            self.say(f"capturing {name}")
            try:
                self.prepare(name, row)
            except Exception as error:
                row["why_not"] = timing.why(error)
                for kind in ("step", "alone"):
                    self.runs.pop((kind, name), None)
            free(self.device)
        self.save()
        self.say("capturing reads")
        self.capture_reads()
        self.say("timing")
        times = timing.in_turns(self.runs, replays, PER_TURN, self.device, deadline)
        self.report(times)
        self.save()

    def capture_reads(self):
        """The ways to read as many bytes; one that fails is left out."""
        for label, make in read.reads(self.decoder.cache.layers, self.visible).items():
            try:
                run = timing.captured(make(), self.device, None, self.repeats)
                self.runs["read", label] = run
            except Exception as error:
                self.result.setdefault("reads_left_out", {})[label] = timing.why(error)

    def find_allowed(self):
        """The exact answers, and the errors that a plain implementation makes."""
        wide = attention.exact_type(self.model.dtype)
        self.exact, plain = (attention.direct(self.visible, kind) for kind in (wide, None))
        calls, self.exact_logits = attention.calls_of_step(self.decoder, attention.EXACT)
        self.allowed_layer = ALLOWED_ERRORS * self.layer_error(
            [plain(*arguments, **keywords)[0] for arguments, keywords in calls], calls)
        _, logits = attention.calls_of_step(self.decoder, attention.PLAIN)
        self.allowed_logits = ALLOWED_ERRORS * relative_error(logits, self.exact_logits)
        self.result["allowed_error"] = {"layer": self.allowed_layer, "logits": self.allowed_logits}

    def layer_error(self, outs, calls):
        """The largest error of a layer's attention."""
        return max(relative_error(out, self.exact(*arguments, **keywords)[0])
                   for out, (arguments, keywords) in zip(outs, calls))

    def capture_step(self, name):
        """Captures a step, and returns the error of its logits."""
        self.decoder.use(name, attention.takes_mask(name))
        run = timing.captured(self.decoder.step, self.device, self.decoder.start)
        self.runs["step", name] = run
        return relative_error(timing.once(run, self.device), self.exact_logits)

    def prepare(self, name, row):
        """Captures a column's attention alone and its step, and checks both."""
        if name in attention.SDPA_BY_HAND:
            row["way"], row["ways_us"] = self.quickest_by_hand(name)
        else:
            attention.register_column(name)
        calls, _ = attention.calls_of_step(self.decoder, name)
        alone = attention.all_layers(attention.ALL_ATTENTION_FUNCTIONS[name], calls)
        run = timing.captured(alone, self.device, None, self.repeats)
        row["layer_error"] = self.layer_error(timing.once(run, self.device), calls)
        require(row["layer_error"], self.allowed_layer, "a layer is")
        self.runs["alone", name] = run
        row["logit_error"] = self.capture_step(name)
        require(row["logit_error"], self.allowed_logits, "logits are")

    def quickest_by_hand(self, name):
        """Registers the quickest way to call SDPA for this column: its label, the times of all."""
        attention.register_by_hand(name, attention.rounded(self.exact))
        calls, _ = attention.calls_of_step(self.decoder, name)
        grouped = self.shape.heads != self.shape.kv_heads
        ways = attention.ways_by_hand(name, self.visible, grouped, self.device)
        runs, refused = {}, []
        for label, way in ways.items():
            try:
                alone = attention.all_layers(way, calls)
                runs[label] = timing.captured(alone, self.device, None, self.repeats)
            except Exception as error:
                refused.append(f"{label}: {timing.why(error)}")
        if not runs:
            raise ValueError("; ".join(refused))
        times = timing.in_turns(runs, 5, 5, self.device, time.monotonic() + 10)
        medians = {label: value["median_us"] for label, value in times.items()}
        best = min(medians, key=medians.get)
        attention.register_by_hand(name, ways[best])
        return best, medians

    def report(self, times):
        """Fills the columns from the times of all runs."""
        nothing = times["step", attention.NOTHING]
        reads = {label: value for (kind, label), value in times.items() if kind == "read"}
        best = min(value["median_us"] for value in reads.values())
        self.result["without_attention"].update(nothing)
        self.result.update(
            reads=reads, best_read_us=best, floor_us=nothing["median_us"] + best,
            read_bytes_per_second=self.result["kv_bytes"] / best * 1e6,
        )
        for name, row in self.columns.items():
            if ("step", name) not in times:
                continue
            row.update(times["step", name])
            row["attention_us"] = row["median_us"] - nothing["median_us"]
            row["share"] = row["attention_us"] / row["median_us"]
            row["alone"] = times["alone", name]
            row["of_floor"] = row["median_us"] / self.result["floor_us"]


def require_time(name, prompt, shorter):
    """Raises where a prompt would take too long, by the square of its length."""
    if name not in shorter:
        return
    before, seconds = shorter[name]
    expected = seconds * (prompt / before) ** 2
    if before >= 4096 and expected > PREFILL_SECONDS:
        raise ValueError(f"left out: {before} tokens took {seconds:.2f} s, so that {prompt} may "
                         f"take {expected:.0f} s; allowed are {PREFILL_SECONDS:.0f} s")


def timed_prefill(model, tokens):
    """Seconds of as many prefills as fit in 3, at most 3; and the last logits."""
    def call(some):
        logits = model(input_ids=some, use_cache=True, logits_to_keep=1).logits
        if some.is_cuda:
            torch.cuda.synchronize()
        return logits

    call(tokens[:, :2048])
    seconds = []
    while len(seconds) < 3 and sum(seconds) < 3:
        begin = time.perf_counter()
        logits = call(tokens)
        seconds.append(time.perf_counter() - begin)
    return seconds, logits
