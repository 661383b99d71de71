#!/usr/bin/env python3
"""What other libraries take for the cases of leanattn_bench_gpu, on the same GPU.

    leanattn_bench_gpu --list --group peers features --json cases.json   # needs no GPU
    python3 bench/gpu/peers.py cases.json --json peers.json

PyTorch's scaled_dot_product_attention with its cuDNN and its flash backend, and FlashInfer
where it is installed, on the cases of uniform lengths in a contiguous cache: one query,
or a whole causal prompt. Grouped queries are called two ways: with enable_gqa, and (one
query only) with the query heads of a KV head as so many queries, which is the same sum.
K and V are never expanded in memory.

The method is leanattn_bench_gpu's: CUDA graphs of calls that rotate over distinct caches,
medians of 15 replays, all columns of a row turn by turn, beside a plain read of as many
bytes. Answers are checked first, where a float32 reference fits.
"""

import argparse
import datetime
import json
import math
import os
import sys

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

ALLOWED_ERROR = 5e-3  # ||out - wanted|| / ||wanted||
CHECKED_BYTES = 1.3e9  # of a cache, at most
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}

# 4 blocks of 512 threads per SM, 8 independent 16-byte loads each: "plain" of read_kernels.cu.
READ_SOURCE = r"""
extern "C" __global__ void __launch_bounds__(512)
plain_read(const uint4* __restrict__ data, long long count, uint4* sink) {
  const long long stride = (long long)gridDim.x * 512;
  long long i = (long long)blockIdx.x * 512 + threadIdx.x;
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (; i + 7 * stride < count; i += 8 * stride) {
    uint4 values[8];
#pragma unroll
    for (int u = 0; u < 8; ++u) values[u] = __ldg(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < 8; ++u) {
      sum.x ^= values[u].x; sum.y ^= values[u].y; sum.z ^= values[u].z; sum.w ^= values[u].w;
    }
  }
#pragma unroll
  for (int u = 0; u < 7; ++u) {
    if (i + u * stride < count) {
      const uint4 value = __ldg(data + i + u * stride);
      sum.x ^= value.x; sum.y ^= value.y; sum.z ^= value.z; sum.w ^= value.w;
    }
  }
  if (sum.x == 0x9e3779b9u && sum.y == 0x7f4a7c15u && sum.z == 0xbf58476du && sum.w == 0x1ce4e5b9u)
    *sink = sum;
}
"""


class PlainRead:
    """Queues a plain read of a tensor's bytes in the current stream."""

    def __init__(self):
        import cupy
        import numpy

        self.cupy, self.numpy = cupy, numpy
        self.kernel = cupy.RawKernel(READ_SOURCE, "plain_read")
        self.blocks = 4 * torch.cuda.get_device_properties(0).multi_processor_count
        self.sink = torch.zeros(4, dtype=torch.int32, device="cuda")
        self(torch.zeros(64, dtype=torch.int32, device="cuda"), 256)  # compiles
        torch.cuda.synchronize()

    def __call__(self, tensor, num_bytes):
        stream = torch.cuda.current_stream().cuda_stream
        uint64, int64 = self.numpy.uint64, self.numpy.int64
        arguments = (uint64(tensor.data_ptr()), int64(num_bytes // 16), uint64(self.sink.data_ptr()))
        with self.cupy.cuda.ExternalStream(stream):
            self.kernel((self.blocks,), (512,), arguments)


class Case:
    """A case and its tensors: q [batch, q_len, q_heads, dim], k and v [batch, keys, kv_heads, dim]."""

    def __init__(self, shape):
        self.shape = shape
        self.batch, self.keys = len(shape["lengths"]), shape["lengths"][0]
        self.q_len, self.dim, self.causal = shape["q_len"], shape["head_dim"], shape["causal"]
        self.q_heads, self.kv_heads = shape["num_q_heads"], shape["num_kv_heads"]
        self.group = self.q_heads // self.kv_heads
        self.copies, self.calls = shape["copies"], shape["calls"]
        dtype = TYPES[shape["type"]]
        cache_shape = (2, self.batch, self.keys, self.kv_heads, self.dim)
        q_shape = (self.batch, self.q_len, self.q_heads, self.dim)
        self.caches, self.queries = [], []
        for _ in range(self.copies):
            self.caches.append(torch.empty(cache_shape, dtype=dtype, device="cuda").uniform_(-1, 1))
            self.queries.append(torch.empty(q_shape, dtype=dtype, device="cuda").uniform_(-1, 1))

    def heads_first(self, copy):
        """q [batch, q_heads, q_len, dim], k and v [batch, kv_heads, keys, dim], as views."""
        k, v = self.caches[copy]
        return self.queries[copy].transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def flops(self):
        seen = self.keys * self.q_len
        if self.causal:
            seen = sum(self.keys - self.q_len + i + 1 for i in range(self.q_len))
        return 4.0 * self.batch * self.q_heads * self.dim * seen

    def wanted(self, copy):
        """[batch, q_len, q_heads, dim] float32, KV head by KV head and in blocks of queries."""
        q, k, v = self.heads_first(copy)
        out = torch.empty(self.batch, self.q_heads, self.q_len, self.dim, device="cuda")
        keys = torch.arange(self.keys, device="cuda")
        for b in range(self.batch):
            for head in range(self.kv_heads):
                some = slice(head * self.group, (head + 1) * self.group)
                k32, v32 = k[b, head].float(), v[b, head].float()
                for begin in range(0, self.q_len, 1024):
                    rows = slice(begin, min(begin + 1024, self.q_len))
                    scores = q[b, some, rows].float() @ k32.T / math.sqrt(self.dim)
                    if self.causal:
                        at = torch.arange(rows.start, rows.stop, device="cuda")
                        hidden = keys[None, :] > (at + self.keys - self.q_len)[:, None]
                        scores.masked_fill_(hidden, float("-inf"))
                    out[b, some, rows] = torch.softmax(scores, dim=-1) @ v32
        return out.transpose(1, 2)


def sdpa_columns(case):
    """Label -> (a call on a copy, its result as [batch, q_len, q_heads, dim])."""

    def with_heads(backend, copy):
        q, k, v = case.heads_first(copy)
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=case.causal, enable_gqa=case.group > 1
            )

    def with_packed_rows(backend, copy):
        _, k, v = case.heads_first(copy)
        q = case.queries[copy].view(case.batch, case.kv_heads, case.group, case.dim)
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v)

    # May copy, and so is not in the timed call.
    def as_wanted(out):
        return out.reshape(case.batch, case.q_len, case.q_heads, case.dim)

    columns = {}
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        columns[name] = (
            lambda copy, backend=backend: with_heads(backend, copy),
            lambda out: out.transpose(1, 2),
        )
        if case.group > 1 and case.q_len == 1:
            columns[name + "_packed"] = (
                lambda copy, backend=backend: with_packed_rows(backend, copy), as_wanted)
    return columns


def flashinfer_columns(case):
    """FlashInfer's decode; its batched call reads the cache as pages of 16."""
    try:
        import flashinfer
    except Exception:
        return {}
    if case.q_len != 1:
        return {}

    def as_wanted(out):
        return out.view(case.batch, 1, case.q_heads, case.dim)

    if case.batch == 1:

        def single(copy):
            k, v = case.caches[copy]
            return flashinfer.single_decode_with_kv_cache(case.queries[copy][0, 0], k[0], v[0])

        return {"flashinfer": (single, as_wanted)}
    if case.keys % 16 != 0:
        return {}
    pages = case.keys // 16
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    indptr = torch.arange(case.batch + 1, dtype=torch.int32, device="cuda") * pages
    indices = torch.arange(case.batch * pages, dtype=torch.int32, device="cuda")
    last = torch.full((case.batch,), 16, dtype=torch.int32, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_cuda_graph=True, use_tensor_cores=case.group >= 4,
        paged_kv_indptr_buffer=indptr, paged_kv_indices_buffer=indices,
        paged_kv_last_page_len_buffer=last,
    )
    dtype = TYPES[case.shape["type"]]
    wrapper.plan(indptr, indices, last, case.q_heads, case.kv_heads, case.dim, 16,
                 q_data_type=dtype, kv_data_type=dtype)

    def batched(copy):
        k, v = case.caches[copy]
        paged = (-1, 16, case.kv_heads, case.dim)
        return wrapper.run(case.queries[copy][:, 0], (k.view(paged), v.view(paged)))

    return {"flashinfer": (batched, as_wanted)}


def captured(case, call):
    """A graph of the case's calls, after three outside of it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i % case.copies)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(case.calls):
            call(i % case.copies)
    return graph


def replay(graphs, rounds):
    """Seconds of each replay, by label; the host queues ahead of the device."""
    marks = {label: [] for label in graphs}
    for _ in range(rounds):
        for label, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            marks[label].append((begin, end))
    torch.cuda.synchronize()
    return {label: [b.elapsed_time(e) * 1e-3 for b, e in pairs] for label, pairs in marks.items()}


def measured(case, plain_read, replays):
    columns = {**sdpa_columns(case), **flashinfer_columns(case)}
    result = {"columns": []}
    check = case.shape["read_bytes"] <= CHECKED_BYTES
    wanted = case.wanted(0) if check else None
    rows, graphs = {}, {}
    if plain_read is not None:
        num_bytes = case.shape["read_bytes"]
        graphs["plain_read"] = captured(case, lambda copy: plain_read(case.caches[copy], num_bytes))
    for label, (call, as_wanted) in columns.items():
        row = rows[label] = {"column": label}
        result["columns"].append(row)
        try:
            if check:
                difference = as_wanted(call(0)).float() - wanted
                row["relative_error"] = float(difference.norm() / wanted.norm())
                if not row["relative_error"] <= ALLOWED_ERROR:
                    row["why_not"] = f"WRONG ANSWER: off by {row['relative_error']:.2e}"
                    continue
            graphs[label] = captured(case, call)
        except (RuntimeError, ValueError, TypeError) as error:
            row["why_not"] = str(error).strip().split("\n")[0][:200]
            torch.cuda.synchronize()  # raises where the device is lost
    del wanted
    first = replay(graphs, 1)
    warm = min(50, int(0.02 / max(sum(s[0] for s in first.values()), 1e-6)))
    for label, seconds in replay(graphs, warm + replays).items():
        seconds = sorted(s / case.calls for s in seconds[warm:])
        at = lambda share: seconds[round(share * (len(seconds) - 1))] * 1e6
        times = {"median_us": at(0.5), "p10_us": at(0.1), "p90_us": at(0.9), "replays": len(seconds)}
        if label == "plain_read":
            result["plain_read"] = times
            continue
        rows[label].update(times)
        if case.q_len > 1:
            rows[label]["flops_per_second"] = case.flops() / (times["median_us"] * 1e-6)
    if "plain_read" in result:
        for row in rows.values():
            if "median_us" in row:
                row["of_plain_read"] = row["median_us"] / result["plain_read"]["median_us"]
    return result


def chosen(cases, filter_text, quick):
    """Uniform contiguous cases of one query or of a whole prompt."""
    for shape in cases:
        uniform = len(set(shape["lengths"])) == 1
        prompt = shape["causal"] and shape["q_len"] == shape["lengths"][0]
        plain = shape["page_size"] == 0 and not shape["batch_invariant"]
        if not (uniform and plain and (shape["q_len"] == 1 or prompt)):
            continue
        if shape["layout"] != "nhd" or shape["group"] == "paper":
            continue
        if filter_text in shape["name"] and (shape["quick"] or not quick):
            yield shape


def print_row(shape, result):
    parts = [f"{shape['name']:<34} {shape['read_bytes'] / 1e6:>8.1f}"]
    if "plain_read" in result:
        parts.append(f"read {result['plain_read']['median_us']:.2f}")
    for row in result["columns"]:
        if "median_us" not in row:
            parts.append(f"{row['column']} –")
            continue
        text = f"{row['column']} {row['median_us']:.2f}"
        if "flops_per_second" in row:
            text += f" ({row['flops_per_second'] / 1e12:.0f} TFLOP/s)"
        parts.append(text)
    print(" | ".join(parts))
    for row in result["columns"]:
        if "why_not" in row:
            print(f"    {row['column']}: {row['why_not']}")
    sys.stdout.flush()


def machine():
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "num_sms": properties.multi_processor_count,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", help="what leanattn_bench_gpu --list --json wrote, or its results")
    parser.add_argument("--json", help="also write everything to this file")
    parser.add_argument("--filter", default="", help="only cases with this in their name")
    parser.add_argument("--replays", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a few cases")
    options = parser.parse_args()
    with open(options.cases, encoding="utf-8") as file:
        listed = json.load(file)
    report = {
        "command": " ".join(sys.argv),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": os.environ.get("LEANATTN_COMMIT", "unknown"),
        "machine": machine(),
        "results": [],
    }
    print(json.dumps(report["machine"]))
    try:
        plain_read = PlainRead()
    except Exception as error:  # cupy is missing, or does not compile
        print(f"no plain read: {error}")
        plain_read = None
    torch.manual_seed(1)
    for shape in chosen(listed.get("cases") or listed["results"], options.filter, options.quick):
        with torch.inference_mode():
            case = Case(shape)
            result = measured(case, plain_read, options.replays)
        print_row(shape, result)
        report["results"].append({**shape, **result})
        del case
        torch.cuda.empty_cache()
        if options.json:
            with open(options.json + ".part", "w", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
            os.replace(options.json + ".part", options.json)


if __name__ == "__main__":
    main()
