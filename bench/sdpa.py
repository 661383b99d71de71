#!/usr/bin/env python3
"""leanattn beside PyTorch's scaled_dot_product_attention on this CPU, one decode step.

    python3 bench/sdpa.py [--threads 2] [--seconds 1] [--json FILE]

needs the Python package and torch. SDPA is called as quickly as its users can: with
enable_gqa, and with the query heads of a KV head as so many queries, of which the quicker
counts. "read" is torch's sum of the cache as int64: what reading as many bytes takes.

All columns of a row take turns, over distinct caches (KV heads outside, HND) that fill
--gigabytes together, so that none is warm; medians over --seconds each. Answers are checked
against float64 first.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import leanattn
from report_header import report_header

# Heads, KV heads, head dim, keys.
SHAPES = [
    (32, 8, 128, 512), (32, 8, 128, 1024), (32, 8, 128, 8192), (32, 8, 128, 32768),
    (32, 32, 64, 8192), (7, 1, 128, 8192), (1, 1, 128, 65536),
]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def calls_of(heads, kv_heads, dim, keys, dtype, threads, gigabytes):
    """The columns: functions of (q, k, v), and the caches that they take turns with."""
    bytes_each = 2 * kv_heads * dim * keys * dtype.itemsize
    count = max(2, int(gigabytes * 1e9 / bytes_each))
    caches = [torch.randn(2, 1, kv_heads, keys, dim).to(dtype) for _ in range(min(count, 8))]
    caches += [caches[i % 8].clone() for i in range(8, count)]
    q = torch.randn(1, heads, 1, dim).to(dtype)
    plan = leanattn.plan(q.transpose(1, 2), *caches[0], layout="HND", num_threads=threads)
    workspace = plan.make_workspace()
    out = torch.empty(1, 1, heads, dim, dtype=dtype)
    packed = q.view(1, kv_heads, heads // kv_heads, dim)

    def ours(k, v):
        return plan.run(q.transpose(1, 2), k, v, out=out, workspace=workspace)

    columns = {
        "leanattn": lambda kv: ours(kv[0], kv[1]).view(-1),
        "sdpa, enable_gqa": lambda kv: sdpa(q, kv[0], kv[1], enable_gqa=True).view(-1),
        "sdpa, packed": lambda kv: sdpa(packed, kv[0], kv[1]).view(-1),
        "read": lambda kv: kv.view(torch.int64).sum(),
    }
    k, v = caches[-1].double()
    exact = sdpa(packed.double(), k, v).view(-1)
    for name in list(columns)[:3]:
        error = ((columns[name](caches[-1]).double() - exact).norm() / exact.norm()).item()
        if not error < 1e-2:
            sys.exit(f"bench/sdpa.py: {name} is wrong by {error:.2g} of the answer's norm")
    return columns, caches, bytes_each, plan


def measure(columns, caches, seconds):
    """Microseconds per call of each column: medians."""
    times = {name: [] for name in columns}
    turn = itertools.cycle(caches)
    end = time.perf_counter() + seconds * len(columns)
    while time.perf_counter() < end or len(times["read"]) < 5:
        for name, call in columns.items():
            kv = next(turn)
            begin = time.perf_counter()
            call(kv)
            times[name].append(1e6 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1.0, help="of each column of a row")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of caches, per row")
    parser.add_argument("--json", help="the file to write")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    print(f"{'type':5} {'heads':>6} {'dim':>4} {'keys':>6} {'read':>9} {'leanattn':>9}"
          f" {'SDPA':>9}  SDPA / leanattn   (us, {args.threads} threads)")
    for kind, shape in itertools.product(TYPES, SHAPES):
        columns, caches, size, plan = calls_of(*shape, TYPES[kind], args.threads, args.gigabytes)
        us = measure(columns, caches, args.seconds)
        best = min(us["sdpa, enable_gqa"], us["sdpa, packed"])
        heads, kv_heads, dim, keys = shape
        rows.append({"type": kind, "heads": heads, "kv_heads": kv_heads, "head_dim": dim,
                     "keys": keys, "cache_bytes": size, "kernel": plan.kernel, "us": us})
        print(f"{kind:5} {heads:3}/{kv_heads:<2} {dim:4} {keys:6} {us['read']:9.1f}"
              f" {us['leanattn']:9.1f} {best:9.1f}  {best / us['leanattn']:.2f}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({**report_header(), "machine": leanattn.info()["machine"],
                       "platform": platform.platform(), "torch": torch.__version__,
                       "num_threads": args.threads, "results": rows}, file, indent=1)


if __name__ == "__main__":
    main()
