#!/usr/bin/env python3
"""Merges what leanattn_bench_gpu and peers.py measured into one Markdown table.

    python3 bench/gpu/compare.py ours.json peers.json > table.md

Both were measured on one machine, at best one after the other; the plain read of each run
stands beside its times, so that a machine that changed its speed in between is seen.
"""

import argparse
import json
import math


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def key_of(row):
    return row["group"], row["name"], row["type"]


def median_of(columns, label):
    """Microseconds of a column, or None where it was not measured."""
    for column in columns:
        if column["column"] == label:
            return column.get("median_us")
    return None


def best_of(columns):
    """(label, microseconds) of the quickest column, or None."""
    times = [(c["median_us"], c["column"]) for c in columns if "median_us" in c]
    if not times:
        return None
    seconds, label = min(times)
    return label, seconds


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def text_of(value, form=".2f"):
    return "–" if value is None else format(value, form)


def ratio(above, below):
    return above / below if above is not None and below is not None else None


class Row:
    """A case in both files; peers' numbers are None where it is missing from theirs."""

    def __init__(self, ours, peers):
        self.name, self.megabytes = ours["name"], ours["read_bytes"] / 1e6
        self.group, self.q_len = ours["group"], ours["q_len"]
        reads = ours.get("reads", {})
        self.plain = reads.get("plain", {}).get("median_us")
        self.best_read = ours.get("best_read_us")
        self.ours = median_of(ours["columns"], "auto")
        self.overlap = median_of(ours["columns"], "overlap")
        self.one_tile = median_of(ours["columns"], "one_tile")
        self.fixed_split = median_of(ours["columns"], "fixed_split")
        self.flops = next((c.get("flops_per_second") for c in ours["columns"]
                           if c["column"] == "auto"), None)
        peer = peers or {"columns": []}
        self.peer_plain = peer.get("plain_read", {}).get("median_us")
        self.peer_times = {c["column"]: c.get("median_us") for c in peer["columns"]}
        self.best_peer = best_of(peer["columns"])
        self.over_peer = ratio(self.ours, self.best_peer[1] if self.best_peer else None)
        # As multiples of the plain read of their own run.
        self.over_peer_by_read = ratio(
            ratio(self.ours, self.plain),
            ratio(self.best_peer[1] if self.best_peer else None, self.peer_plain),
        )


def print_table(rows, labels):
    heads = ["case", "MB", "best read", "plain read", "ours", "overlap", "one_tile",
             "fixed_split", "plain read (peers)", *labels, "ours / best peer", "by plain read"]
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for row in rows:
        peers = [text_of(row.peer_times.get(label)) for label in labels]
        cells = [row.name, f"{row.megabytes:.1f}", text_of(row.best_read), text_of(row.plain),
                 text_of(row.ours), text_of(row.overlap), text_of(row.one_tile),
                 text_of(row.fixed_split), text_of(row.peer_plain), *peers,
                 text_of(row.over_peer, ".3f"), text_of(row.over_peer_by_read, ".3f")]
        print("| " + " | ".join(cells) + " |")
    print()


def print_means(rows, labels):
    def mean(values):
        values = [v for v in values if v is not None]
        text = text_of(geometric_mean(values), ".3f")
        return f"{text} ({len(values)} rows)"

    print(f"- ours / plain read: {mean(ratio(r.ours, r.plain) for r in rows)}")
    print(f"- ours / best read: {mean(ratio(r.ours, r.best_read) for r in rows)}")
    for label in labels:
        print(f"- {label} / plain read of its run: "
              f"{mean(ratio(r.peer_times.get(label), r.peer_plain) for r in rows)}")
        print(f"- ours / {label}: {mean(ratio(r.ours, r.peer_times.get(label)) for r in rows)}")
    print(f"- ours / best peer of each row: {mean(r.over_peer for r in rows)}; "
          f"both by their plain reads: {mean(r.over_peer_by_read for r in rows)}")
    compared = [r for r in rows if r.over_peer is not None]
    quicker = [r for r in compared if r.over_peer <= 1]
    print(f"- ours is as quick as the best peer, or quicker, on {len(quicker)} of {len(compared)} rows")
    for row in compared:
        if row.over_peer > 1:
            print(f"  - not on {row.name}: {row.ours:.2f} µs, {row.best_peer[0]} {row.best_peer[1]:.2f}")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ours", help="JSON of leanattn_bench_gpu")
    parser.add_argument("peers", help="JSON of peers.py")
    options = parser.parse_args()
    ours, peers = load(options.ours), load(options.peers)
    by_key = {key_of(row): row for row in peers["results"]}
    rows = [Row(row, by_key.get(key_of(row))) for row in ours["results"] if row["group"] != "paper"]
    for name, report in (("ours", ours), ("peers", peers)):
        print(f"- {name}: {report['date']}, commit {report['commit']}, `{report['command']}`, "
              f"{json.dumps(report['machine'])}")
    print("\nµs per call, medians.\n")
    for title, some in (("One query, shapes of the peers' table", [r for r in rows if r.group == "peers"]),
                        ("Features", [r for r in rows if r.group == "features"])):
        if not some:
            continue
        labels = sorted({label for r in some for label in r.peer_times})
        print(f"## {title}\n")
        print_table(some, labels)
        print_means([r for r in some if r.q_len == 1], labels)
        for row in some:
            if row.q_len > 1 and row.flops and row.ours:
                line = f"- {row.name}: ours {row.flops / 1e12:.1f} TFLOP/s"
                for label, time in row.peer_times.items():
                    if time:
                        line += f", {label} {row.flops * row.ours / time / 1e12:.1f}"
                print(line)


if __name__ == "__main__":
    main()
