#!/usr/bin/env python3
"""Figures and a table of what bench/end_to_end.py measured.

    python3 bench/end_to_end_plot.py results.json [--prefix results] [--format svg] > table.md

writes PREFIX-time (time per token), PREFIX-share (attention's share of it), PREFIX-phases (the
share of prefill and decode by prompt:output ratio, the paper's figure 3) and PREFIX-speed (how
many times as quickly as one_tile a prompt and its output are done, the paper's figure 10).

The last two are sums: measured prefill, and the time per token that lies on straight lines
between the contexts that were measured, and beyond the last on the last of them.
"""

import argparse
import json
import sys

COLOURS = {
    "leanattn": "#1f5fa8", "leanattn_one_tile": "#d9822b", "leanattn_fixed_split": "#8c564b",
    "sdpa": "#7f7f7f", "sdpa_masked": "#a6a6a6", "sdpa_sliced": "#c9c9c9",
}
RATIOS = (256, 64, 16, 4, 1)  # prompt tokens per output token
OUTPUTS = (1024, 4096, 16384, 65536)
BASE = "leanattn_one_tile"


class Model:
    """All rows of one model, by prompt."""

    def __init__(self, name, rows):
        self.name = name
        self.rows = {row["prompt"]: row for row in rows if "floor_us" in row}
        self.prompts = sorted(self.rows)

    def column(self, prompt, label):
        """The column where it was measured, or None."""
        for column in self.rows[prompt]["columns"]:
            if column["column"] == label and "median_us" in column:
                return column
        return None

    def labels(self):
        found = [c["column"] for row in self.rows.values() for c in row["columns"]
                 if "median_us" in c]
        return list(dict.fromkeys(found))

    def prefill_seconds(self, prompt, label):
        """With the attention of the column: leanattn's for its schedules, SDPA's for SDPA's."""
        wanted = "sdpa" if label.startswith("sdpa") else "leanattn"
        for entry in self.rows[prompt].get("prefill", []):
            if entry["column"] == wanted and "seconds" in entry:
                return entry["seconds"]
        return None

    def decode_seconds(self, label, prompt, outputs):
        """Of so many tokens behind the prompt, or None where less than two contexts are known."""
        points = [(p, self.column(p, label)) for p in self.prompts]
        points = [(p, column["median_us"]) for p, column in points if column]
        if len(points) < 2:
            return None

        def token_us(context):
            some = [i for i in range(len(points) - 1) if points[i][0] <= context]
            (a, at_a), (b, at_b) = points[some[-1] if some else 0:][:2]
            return at_a + (at_b - at_a) * (context - a) / (b - a)

        # Midpoints of straight lines; kinks are few.
        parts = min(outputs, 512)
        each = outputs / parts
        total = sum(token_us(prompt + (i + 0.5) * each) for i in range(parts))
        return total * each * 1e-6

    def phases(self, label, prompt, outputs):
        """(prefill, decode) in seconds, or None."""
        prefill = self.prefill_seconds(prompt, label)
        decode = self.decode_seconds(label, prompt, outputs)
        return None if prefill is None or decode is None else (prefill, decode)


def models_of(results):
    names = list(dict.fromkeys(row["model"] for row in results))
    models = [Model(name, [row for row in results if row["model"] == name]) for name in names]
    return [model for model in models if model.rows]


def grouped(axes, model, values_of, labels):
    """Bars side by side for each prompt; values_of gives stacked (height, alpha)."""
    width = 0.8 / max(len(labels), 1)
    for i, label in enumerate(labels):
        for x, prompt in enumerate(model.prompts):
            column = model.column(prompt, label)
            if column is None:
                continue
            bottom = 0.0
            for height, alpha in values_of(model.rows[prompt], column):
                axes.bar(x - 0.4 + (i + 0.5) * width, height, width * 0.94, bottom, alpha=alpha,
                         color=COLOURS.get(label, "#444444"))
                bottom += height
        axes.bar(0, 0, color=COLOURS.get(label, "#444444"), label=label)
    axes.set_xticks(range(len(model.prompts)), [f"{p:,}" for p in model.prompts])
    axes.set_xlabel("prompt, tokens")
    axes.set_title(model.name)


def draw_time(axes, model):
    """Milliseconds per token: everything but attention pale, attention above it."""
    def stack(row, column):
        rest = row["without_attention"]["median_us"] / 1e3
        return [(rest, 0.45), (max(column["median_us"] / 1e3 - rest, 0.0), 1.0)]

    grouped(axes, model, stack, model.labels())
    for x, prompt in enumerate(model.prompts):
        floor = model.rows[prompt]["floor_us"] / 1e3
        axes.hlines(floor, x - 0.42, x + 0.42, colors="black", linewidth=1,
                    label="floor" if x == 0 else None)
    axes.set_ylabel("ms per token (pale: all but attention)")


def draw_share(axes, model):
    def stack(row, column):
        share = min(max(column["share"], 0.0), 1.0) * 100
        return [(share, 1.0), (100 - share, 0.3)]

    grouped(axes, model, stack, model.labels())
    axes.set_ylabel("share of a token's time, % (pale: the rest)")


def draw_phases(axes, model):
    """Shares of prefill and decode in whole answers, for SDPA and leanattn side by side."""
    ticks, at = [], 0.0
    for prompt in model.prompts:
        first = at
        for ratio in RATIOS:
            for i, label in enumerate(("sdpa", "leanattn")):
                seconds = model.phases(label, prompt, max(prompt // ratio, 1))
                if seconds is None:
                    continue
                prefill = 100 * seconds[0] / sum(seconds)
                x = at + 0.42 * i
                axes.bar(x, prefill, 0.38, color=COLOURS[label], alpha=0.35)
                axes.bar(x, 100 - prefill, 0.38, prefill, color=COLOURS[label])
            ticks.append((at + 0.21, f"{ratio}:1"))
            at += 1.0
        axes.text((first + at) / 2 - 0.3, 102, f"{prompt:,} tokens", ha="center", fontsize=8)
        at += 0.5
    for label in ("sdpa", "leanattn"):
        axes.bar(0, 0, color=COLOURS[label], label=label)
    axes.set_ylim(0, 110)
    axes.set_xticks([x for x, _ in ticks], [text for _, text in ticks], rotation=90, fontsize=7)
    axes.set_xlabel("prompt : output")
    axes.set_ylabel("share of time, % (pale: prefill)")
    axes.set_title(model.name)


def draw_speed(axes, model):
    """Prompt and output together, as many times as quickly as with one_tile."""
    prompt = model.prompts[-1]
    for label in model.labels():
        points = []
        for outputs in OUTPUTS:
            base, own = (model.phases(name, prompt, outputs) for name in (BASE, label))
            if base and own:
                points.append((outputs, sum(base) / sum(own)))
        if points:
            axes.plot(*zip(*points), marker="o", label=label, color=COLOURS.get(label))
    axes.set_xscale("log", base=2)
    axes.set_xlabel(f"output tokens behind a prompt of {prompt:,}")
    axes.set_ylabel("times one_tile's speed")
    axes.set_title(model.name)


def save(plt, models, draw, name, caption):
    figure, axes = plt.subplots(1, len(models), figsize=(5.2 * len(models), 4.4), squeeze=False)
    labels = {}
    for one, model in zip(axes[0], models):
        draw(one, model)
        handles, names = one.get_legend_handles_labels()
        labels.update(zip(names, handles))
    figure.legend(labels.values(), labels.keys(), loc="upper center", ncols=7, fontsize=7)
    figure.text(0.005, 0.005, caption, fontsize=6)
    figure.tight_layout(rect=(0, 0.02, 1, 0.94))
    figure.savefig(name, dpi=150)
    plt.close(figure)
    print(f"wrote {name}", file=sys.stderr)


def print_tables(models):
    """Markdown: a token's time, and whole answers."""
    print("| model | prompt | column | µs per token | attention, µs | share | attention alone, µs"
          " | of the floor |\n|---|---|---|---|---|---|---|---|")
    for model in models:
        for prompt in model.prompts:
            for label in model.labels():
                c = model.column(prompt, label)
                if c:
                    print(f"| {model.name} | {prompt} | {label} | {c['median_us']:.0f} "
                          f"| {c['attention_us']:.0f} | {c['share']:.1%} "
                          f"| {c['alone']['median_us']:.0f} | {c['of_floor']:.3f} |")
            row = model.rows[prompt]
            print(f"| {model.name} | {prompt} | floor | {row['floor_us']:.0f} "
                  f"| {row['best_read_us']:.0f} | | | |")
    print("\n| model | prompt | output | column | prefill, s | decode, s | decode's share |"
          "\n|---|---|---|---|---|---|---|")
    for model in models:
        for prompt in model.prompts:
            for ratio in RATIOS:
                for label in ("sdpa", "leanattn"):
                    outputs = max(prompt // ratio, 1)
                    seconds = model.phases(label, prompt, outputs)
                    if seconds:
                        print(f"| {model.name} | {prompt} | {outputs} | {label} | {seconds[0]:.3f} "
                              f"| {seconds[1]:.3f} | {seconds[1] / sum(seconds):.1%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", help="JSON of bench/end_to_end.py")
    parser.add_argument("--prefix", help="of the figures; as the results without .json if left out")
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    options = parser.parse_args()
    try:
        with open(options.results, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        parser.error(f"{options.results}: {error}")
    models = models_of(report["results"])
    if not models:
        parser.error(f"{options.results} has no finished row")
    print_tables(models)
    try:
        import matplotlib
    except ImportError:
        sys.exit("bench/end_to_end_plot.py: matplotlib is not installed; no figures")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    prefix = options.prefix or options.results.removesuffix(".json")
    machine = report["machine"]
    caption = (f"{machine.get('gpu', machine['platform'])}, driver {machine.get('driver', '–')}, "
               f"torch {machine['torch']}, Transformers {machine['transformers']}, "
               f"{report['date']}, commit {report['commit']}: {report['command']}")
    for label, draw in (("time", draw_time), ("share", draw_share), ("phases", draw_phases),
                        ("speed", draw_speed)):
        save(plt, models, draw, f"{prefix}-{label}.{options.format}", caption)


if __name__ == "__main__":
    main()
