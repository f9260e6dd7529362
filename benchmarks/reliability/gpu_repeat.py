"""Do runs with dropout repeat on a GPU? Interrupted and resumed, alone and stacked, in portions, on another engine.

    PYTHONPATH=src python3 benchmarks/reliability/gpu_repeat.py --out results/reliability/gpu-repeat.txt

Random images stand in for the datasets: what is compared are bits, not accuracies. A run is resumed by another process;
where the computation is compiled, that process has caches of its own and compiles anew.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import fedhv
from fedhv.benchmarks.random_images import random_problem
from fedhv.engines import Engine, Sequential
from fedhv.engines.stacked import Stacked
from fedhv.methods import make_method
from fedhv.methods.base import Method, State
from fedhv.problem.counter import keys
from fedhv.problem.dropout import Draws
from fedhv.problem.random import Purpose
from fedhv.runs.config import Setting, load_setting
from fedhv.simulation.rounds import initial_state, rounds, simulate_together

SEEDS = range(3)
METHODS = ("fedhv", "uniform", "fsmgda", "fedcmoo")
QUICK = ("fedhv", "uniform")
"""The methods of compiled runs: they share one shape, which is compiled once."""
ROUNDS, START = 4, 2
"""Rounds of a run, and after which of them it is interrupted."""
Job = tuple[str, int]


def made(setting: Setting, name: str, tasks: int) -> Method:
    more = {"reference": (4.0,) * tasks} if name == "fedhv" else {}
    return make_method(name, setting.methods.get(name, {}) | more)


def jobs_of(compiled: bool) -> list[Job]:
    return [(method, seed) for seed in SEEDS for method in (QUICK if compiled else METHODS)]


def play(
    engine: Engine, setting: Setting, jobs: Sequence[Job], count: int, states: dict[Job, State] | None = None
) -> dict[Job, list[State]]:
    """The states after every round of several runs that are played together, perhaps from given states on."""
    tasks = len(engine.problem.tasks)
    found: dict[Job, list[State]] = {job: [] for job in jobs}
    runs = []
    for name, seed in jobs:
        method = made(setting, name, tasks)
        plan = replace(setting.plan(method, seed, rounds=count), evaluate_every=0)
        start = 0 if states is None else START
        state = initial_state(engine, method, seed) if states is None else states[name, seed]
        runs.append(rounds(engine.layout, engine.population, method, plan, state, start, ahead=engine.ahead))
    for i, finished in simulate_together(engine, runs):
        if isinstance(finished, fedhv.FedHVError):
            raise finished
        state = finished.state
        found[jobs[i]].append(replace(state, model=state.model.clone()))
    return found


def resume(name: str, precision: str, compiled: bool, folder: Path) -> None:
    """The other process: go on from the states in a folder."""
    setting = load_setting(name)
    states: dict[Job, State] = torch.load(folder / "middle.pt", weights_only=False)
    with Stacked(random_problem(setting), "cuda", precision, compiled=compiled) as engine:
        ended = play(engine, setting, jobs_of(compiled), ROUNDS, states)
    torch.save({job: each[-1].model for job, each in ended.items()}, folder / "end.pt")


def resumed_elsewhere(name: str, precision: str, compiled: bool, whole: dict[Job, list[State]]) -> dict[Job, Tensor]:
    """The last models of runs that another process resumes after round START."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        torch.save({job: states[START - 1] for job, states in whole.items()}, folder / "middle.pt")
        own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "a"), "TRITON_CACHE_DIR": str(folder / "b")}
        how = f"{name}:{precision}:{'compiled' if compiled else 'eager'}:{place}"
        subprocess.run(
            [sys.executable, __file__, "--resume", how], env=os.environ | (own if compiled else {}), check=True
        )
        ended: dict[Job, Tensor] = torch.load(folder / "end.pt", weights_only=False)
        return ended


def masks() -> str:
    """How many elements of dropout's masks are the same for clients in a stack, alone, and on the CPU."""
    places = [(seed, 3, client, 0) for seed in SEEDS for client in range(5)]
    numbers = torch.from_numpy(keys(Purpose.DROPOUT, places, 2).ravel())
    shape, p = (32, 50), 0.5
    layer = nn.Dropout(p)

    def drawn(key: int | Tensor, device: str) -> Tensor:
        with Draws(key):
            return layer(layer(torch.ones(shape, device=device)))  # the second draw of the pass, too

    stacked = torch.func.vmap(lambda key: drawn(key, "cuda"), randomness="different")(numbers.cuda()).cpu()
    alone = torch.stack([drawn(int(key), "cuda") for key in numbers]).cpu()
    host = torch.stack([drawn(int(key), "cpu") for key in numbers])
    same = int(((stacked == alone) & (alone == host)).sum())
    return f"masks of dropout, stacked = alone = on the CPU: {same} of {stacked.numel()} elements"


def check(name: str, precision: str, compiled: bool, lines: list[str]) -> None:
    setting = load_setting(name)
    problem = random_problem(setting)
    jobs = jobs_of(compiled)
    label = f"{name}, {precision}, {'compiled' if compiled else 'eager'}"

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    def same(a: dict[Job, list[State]], b: dict[Job, Tensor]) -> str:
        return f"{sum(torch.equal(a[job][-1].model, b[job]) for job in jobs)} of {len(jobs)}"

    def distance(a: list[State], b: list[State]) -> str:
        pairs = zip(a, b, strict=True)
        return ", ".join(f"{float((x.model - y.model).norm() / x.model.norm()):.1e}" for x, y in pairs)

    with Stacked(problem, "cuda", precision, compiled=compiled) as engine:
        whole = play(engine, setting, jobs, ROUNDS)
        again = {job: states[-1].model for job, states in play(engine, setting, jobs, ROUNDS).items()}
        say(f"{label}: {len(jobs)} runs in one stack, twice, bit for bit: {same(whole, again)}")
        for note in engine.notes:  # a stack that is computed in portions has other bits
            say(f"  {note}")
    resumed = resumed_elsewhere(name, precision, compiled, whole)
    say(f"{label}: resumed after round {START} by another process = uninterrupted, bit for bit: {same(whole, resumed)}")
    if compiled or precision != "float32":
        return
    with Stacked(problem, "cuda", precision, compiled=False) as engine:
        alone = play(engine, setting, jobs[:1], ROUNDS)
        engine.training.most.size = 7
        portions = play(engine, setting, jobs, ROUNDS)
    with Sequential(problem, "cuda") as engine:
        sequential = play(engine, setting, jobs[:4], ROUNDS)
    say(f"{label}: relative distance of the models after rounds 1 to {ROUNDS}")
    say(f"  {jobs[0][0]:8} alone and in a stack of twelve  {distance(alone[jobs[0]], whole[jobs[0]])}")
    for job in jobs[:4]:
        say(f"  {job[0]:8} in portions of 7 and whole      {distance(portions[job], whole[job])}")
        say(f"  {job[0]:8} sequential and stacked          {distance(sequential[job], whole[job])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="float32:eager,tf32:eager,tf32:compiled", help="precision:eager|compiled")
    parser.add_argument("--settings", default="digits,multimnist")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.resume:
        name, precision, mode, place = arguments.resume.split(":", 3)
        resume(name, precision, mode == "compiled", Path(place))
        return
    lines = [f"torch {torch.__version__}, {torch.cuda.get_device_name()}, fedhv {fedhv.__version__}"]
    for case in arguments.cases.split(","):
        precision, mode = case.split(":")
        for name in arguments.settings.split(","):
            check(name, precision, mode == "compiled", lines)
    lines.insert(1, masks())
    print(lines[1])
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
