"""Milliseconds of a round for common architectures: one client after the other, and stacked.

    PYTHONPATH=src python3 benchmarks/gpu_models.py --out models.jsonl
    PYTHONPATH=src python3 benchmarks/gpu_models.py --models gru,lstm --variants stacked:tf32:eager
    PYTHONPATH=src python3 benchmarks/gpu_models.py --models resnet --variants stacked:tf32 --profile
    PYTHONPATH=src python3 benchmarks/gpu_models.py --device cpu --tiny

The models are those of the tests (tests/engines/zoo.py), at a realistic size. Ten clients take ten steps each with
minibatches of 32 random examples. With `--out` every measurement is a line of a file, and existing measurements are not
repeated. Architectures whose package is not installed are skipped.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_round import show_profile

from fedhv import LocalTraining, Problem, Uniform
from fedhv.engines import Engine, Sequential, Stacked
from fedhv.engines.choosing import why_not_stacked
from fedhv.simulation.rounds import Plan, simulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
from zoo import FULL, TINY, ZOO, Size  # the tests' models are no package

MODELS = (
    "transformer", "vit", "sdpa-masked", "torchvision-vit", "bert-sdpa", "bert-eager", "gru", "gru-deep", "lstm",
    "rnn-given", "mobilenet", "torchvision-mobilenet-v3", "resnet", "torchvision-resnet18", "conv1d", "lora", "frozen",
    "tied", "bags", "perceptron",
)  # fmt: skip
WARM_UP = 2
"""The number of warm-up rounds."""
PROFILED = 3
"""Rounds under the profiler."""
Record = dict[str, Any]


def engine_of(variant: str, problem: Problem, device: str) -> Engine:
    """The engine that a variant names: engine:precision, for stacks perhaps with :compiled or :eager."""
    kind, precision, *mode = variant.split(":")
    if kind == "sequential":
        return Sequential(problem, device, precision)
    return Stacked(problem, device, precision, compiled=(mode[0] == "compiled") if mode else None)


def measure(
    name: str, variant: str, device: str, size: Size, clients: int, local: LocalTraining, repeat: int, profile: bool
) -> Record:
    """The first round and the median of some later ones."""
    on_gpu = device == "cuda"
    gc.collect()  # recordings of the variant before hold memory in cycles
    problem = ZOO[name].problem(size, [local.steps * local.batch_size] * clients, test=local.batch_size)
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    count = WARM_UP + repeat + 1  # the last one is evaluated, and does not count
    plan = Plan(rounds=count, participants=clients, local=local, evaluate_every=count)
    began = time.perf_counter()
    # The trial that every run begins with is a part of its first round.
    obstacle = (
        why_not_stacked(problem, torch.device(device), variant.split(":")[1]) if variant.startswith("stacked") else None
    )
    with engine_of(variant, problem, device) as engine:
        times, notes = [], [] if obstacle is None else [obstacle]
        last = time.perf_counter()
        for _ in simulate(engine, Uniform(), plan):
            if on_gpu:
                torch.cuda.synchronize()
            now = time.perf_counter()
            times.append(now - last)
            last = now
            if len(times) == 1:
                first = now - began
        if profile:
            show_rounds(engine, local, clients)
        peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
        stacked = isinstance(engine, Stacked) and engine.obstacle is None
        return {
            "model": name,
            "variant": variant,
            "parameters": engine.layout.d,
            "first_s": round(first, 2),
            "round_ms": round(1e3 * statistics.median(times[WARM_UP:-1]), 2),
            "fastest_ms": round(1e3 * min(times[WARM_UP:-1]), 2),
            "peak_gib": None if peak is None else round(peak, 2),
            "computed": "stacked" if stacked else "sequential",
            "notes": [*notes, *engine.notes],
        }


def show_rounds(engine: Engine, local: LocalTraining, clients: int) -> None:
    """Which kernels some rounds take their time for."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        began = time.perf_counter()
        for _ in simulate(engine, Uniform(), Plan(PROFILED, clients, local, evaluate_every=0)):
            pass
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    show_profile(profiler, seconds)


def table(records: Sequence[Record], variants: Sequence[str]) -> Iterator[str]:
    """A line for every model: every variant's round, first round and memory, and its speed-up over the first one."""
    found = {(record["model"], record["variant"]): record for record in records}
    heads = ["model", "parameters"]
    for i, variant in enumerate(variants):
        heads += [f"{variant} ms", "first s", "GiB", *["speed-up"] * (i > 0)]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for name in dict.fromkeys(record["model"] for record in records):
        base = found.get((name, variants[0]))
        cells = [name, str(next(r["parameters"] for r in records if r["model"] == name))]
        for i, variant in enumerate(variants):
            each = found.get((name, variant))
            if each is None:
                cells += [""] * (4 if i else 3)
                continue
            mark = "" if each["computed"] == variant.split(":")[0] else " (sequential)"
            cells += [f"{each['round_ms']:.1f}{mark}", f"{each['first_s']:.1f}", f"{each['peak_gib'] or 0:.2f}"]
            if i:
                cells.append(f"{base['round_ms'] / each['round_ms']:.1f}" if base else "")
        yield "| " + " | ".join(cells) + " |"


def read(path: Path | None) -> list[Record]:
    """The earlier measurements, without an incomplete last line."""
    records = []
    for line in path.read_text().splitlines() if path is not None and path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(MODELS), help=f"comma-separated; known: {', '.join(ZOO)}")
    parser.add_argument(
        "--variants", help="engine:precision[:compiled|eager], comma-separated; the first is compared with"
    )
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="the tests' sizes: whether this works, not how fast it is")
    parser.add_argument("--profile", action="store_true", help="also show which kernels take the time")
    parser.add_argument("--repeat", type=int, default=10, help="rounds that the median is taken of")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no measurement after so long")
    parser.add_argument("--out", type=Path, help="a file of JSON lines; what it holds is not measured again")
    arguments = parser.parse_args()
    exact = "tf32" if arguments.device == "cuda" else "float32"
    variants = (arguments.variants or f"sequential:{exact},stacked:{exact},stacked:bf16").split(",")
    size = TINY if arguments.tiny else FULL
    clients, local = (3, LocalTraining(2, 4, 0.02)) if arguments.tiny else (10, LocalTraining(10, 32, 0.02))
    where = {
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "tiny": arguments.tiny,
    }
    records = [r for r in read(arguments.out) if {key: r.get(key) for key in where} == where]
    done = {(record["model"], record["variant"]) for record in records}
    if arguments.device == "cuda":
        # The first model should not pay for the start.
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
    else:
        torch.set_num_threads(1)
    began = time.perf_counter()
    for name in arguments.models.split(","):
        if name not in ZOO:
            parser.error(f"unknown model '{name}'; known: {', '.join(ZOO)}")
        if not ZOO[name].installed:
            print(f"{name}: skipped, {ZOO[name].package} is not installed", flush=True)
            continue
        for variant in variants:
            if (name, variant) in done:
                continue
            if time.perf_counter() - began > arguments.seconds:
                print(f"{name} {variant}: not begun after {arguments.seconds:.0f} s", flush=True)
                continue
            try:
                record = (
                    measure(name, variant, arguments.device, size, clients, local, arguments.repeat, arguments.profile)
                    | where
                )
            except Exception as error:  # one model that fails must not cost the others
                print(f"{name} {variant}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
                continue
            records.append(record)
            if arguments.out is not None:
                with arguments.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            notes = "".join(f" {note}" for note in record["notes"])
            print(f"{name} {variant}: {record['round_ms']} ms, first {record['first_s']} s.{notes}", flush=True)
    print("\n".join(["", *table(records, variants)]))


if __name__ == "__main__":
    main()
