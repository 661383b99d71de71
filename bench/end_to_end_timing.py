"""Capturing and timing of bench/end_to_end.py, on a GPU and, without graphs, on a CPU."""

import functools
import statistics
import time

import torch

WARM_UP = 3  # calls before a capture


class Run:
    """Something to replay: `start` comes ahead of some replays, `result` is what each leaves."""

    def __init__(self, replay, result, start=None, graph=None, repeats=1):
        self.replay, self.result, self.graph = replay, result, graph
        self.start, self.repeats = start or (lambda: None), repeats


@functools.cache
def side_stream():
    """Where everything is captured, so that libraries keep one workspace for it."""
    return torch.cuda.Stream()


def refuse_waiting(call):
    """Calls, and raises where PyTorch would have the host wait, which no graph can."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def captured(call, device, start=None, repeats=1):
    """A Run of `repeats` calls in one graph; on a CPU of the calls themselves."""
    begin = start or (lambda: None)

    def all_calls():
        for _ in range(repeats):
            result = call()
        return result

    begin()
    if device.type != "cuda":
        return Run(all_calls, all_calls(), start, None, repeats)
    stream = side_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            call()
        refuse_waiting(call)
    torch.cuda.synchronize()
    begin()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        result = all_calls()
    return Run(graph.replay, result, start, graph, repeats)


def once(run, device):
    """What a replay from the start leaves."""
    run.start()
    result = run.replay()
    if device.type == "cuda":
        torch.cuda.synchronize()
        result = run.result
    return result


def replayed(run, count, device):
    """Seconds of `count` replays, of count + 1: the first finds the device idle."""
    run.start()
    if device.type != "cuda":
        marks = [time.perf_counter()]
        for _ in range(count + 1):
            run.replay()
            marks.append(time.perf_counter())
        return [b - a for a, b in zip(marks[1:], marks[2:])]
    marks = []
    for _ in range(count + 1):
        run.replay()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:])]


def in_turns(runs, replays, per_turn, device, deadline):
    """Label -> times in µs of one repeat of each Run.

    All runs take turns of `per_turn` replays, until each has had `replays` or the deadline is
    near; each has one turn at least, after another that does not count.
    """
    seconds = {label: [] for label in runs}
    turn_begin = time.monotonic()
    for run in runs.values():
        replayed(run, 1, device)
    while True:
        for label, run in runs.items():
            seconds[label] += replayed(run, per_turn, device)
        now = time.monotonic()
        if len(next(iter(seconds.values()))) >= replays or 2 * now - turn_begin > deadline:
            break
        turn_begin = now
    return {label: times_of(values, runs[label].repeats) for label, values in seconds.items()}


def times_of(seconds, repeats=1):
    values = sorted(1e6 * value / repeats for value in seconds)

    def at(share):
        return values[round(share * (len(values) - 1))]

    return {"median_us": statistics.median(values), "p10_us": at(0.1), "p90_us": at(0.9),
            "replays": len(values)}


def why(error):
    """An error and what it came from, in a line: a failed capture hides what failed in it."""
    first = error
    while first.__context__ is not None:
        first = first.__context__
    text = line_of(error)
    return text if first is error else f"{text} (after {line_of(first)})"


def line_of(error):
    return f"{type(error).__name__}: {str(error).strip().split(chr(10))[0][:300]}"
