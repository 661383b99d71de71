#!/usr/bin/env python3
"""What a call takes on the host: Python, checks and launches, until it returns.

    python3 bench/call_overhead.py [--device cuda] [--json FILE]

needs the Python package and torch. Calls are made --calls at a time and the device is waited
for behind them, outside of the time, so that its queue is never full; medians of --rounds such.
On a CPU a call returns when it is done: only its smallest shape says something there.
"""

import argparse
import json
import platform
import statistics
import time

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import leanattn
from report_header import report_header

# Heads, KV heads, head dim, keys.
SHAPES = [(32, 8, 128, 16), (32, 8, 128, 1024), (32, 8, 128, 8192), (8, 1, 128, 131072),
          (56, 56, 64, 1024), (32, 32, 64, 8192)]


def calls_of(heads, kv_heads, dim, keys, device, dtype):
    """The columns: functions without arguments; and the plan."""
    q = torch.randn(1, 1, heads, dim, device=device).to(dtype)
    k, v = (torch.randn(1, keys, kv_heads, dim, device=device).to(dtype) for _ in range(2))
    lengths = torch.full((1,), keys, dtype=torch.int32, device=device)
    out = torch.empty_like(q)
    plan = leanattn.plan(q, k, v, lengths)
    workspace = plan.make_workspace()
    q_sdpa, k_sdpa, v_sdpa = (x.transpose(1, 2) for x in (q, k, v))
    return {
        "decode": lambda: leanattn.decode(q, k, v, lengths),
        "decode, out": lambda: leanattn.decode(q, k, v, lengths, out=out),
        "plan.run": lambda: plan.run(q, k, v, lengths, out=out, workspace=workspace),
        "sdpa": lambda: sdpa(q_sdpa, k_sdpa, v_sdpa, enable_gqa=True),
    }, plan


def microseconds(call, args):
    """Of one call: the median of all rounds."""
    def wait():
        if args.device == "cuda":
            torch.cuda.synchronize()

    times = []
    for _ in range(args.rounds + 1):  # the first warms up
        wait()
        begin = time.perf_counter()
        for _ in range(args.calls):
            call()
        times.append(1e6 * (time.perf_counter() - begin) / args.calls)
    wait()
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"),
                        default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=200, help="of a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="the file to write")
    args = parser.parse_args()
    rows = []
    for shape in SHAPES:
        columns, plan = calls_of(*shape, torch.device(args.device), torch.bfloat16)
        us = {name: microseconds(call, args) for name, call in columns.items()}
        heads, kv_heads, dim, keys = shape
        rows.append({"heads": heads, "kv_heads": kv_heads, "head_dim": dim, "keys": keys,
                     "kernel": plan.kernel, "workspace_bytes": plan.workspace_bytes, "us": us})
        print(f"{heads:3}/{kv_heads:<2} {dim:4} {keys:7}  workspace {plan.workspace_bytes:8}  us: "
              + "  ".join(f"{name} {value:.1f}" for name, value in us.items()), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({**report_header(), "machine": leanattn.info(),
                       "platform": platform.platform(), "torch": torch.__version__,
                       "device": args.device, "results": rows}, file, indent=1)


if __name__ == "__main__":
    main()
