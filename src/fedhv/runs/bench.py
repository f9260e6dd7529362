"""`fedhv bench`: the cost of a round on this machine, for every engine.

Every engine has its own process, and the processes take turns, one round each. So other load on the machine affects all
of them equally, and the memory of each can be measured.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from fedhv.benchmarks import BENCHMARKS
from fedhv.benchmarks.random_images import random_problem
from fedhv.engines import ENGINES, Choice, Engine, choose_engine
from fedhv.engines.parallel import Parallel
from fedhv.methods.base import Method, takes_reference, with_reference
from fedhv.problem.problem import Problem
from fedhv.protocol.exchange import Call
from fedhv.runs.config import Setting
from fedhv.runs.resolve import resolve
from fedhv.runs.threads import one_thread
from fedhv.simulation.events import Event
from fedhv.simulation.loop import rounds as rounds_of_run
from fedhv.simulation.plan import Plan
from fedhv.simulation.rounds import initial_state, simulate_together
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.memory import held_memory
from fedhv.support.pool import Pool, can_fork

EVALUATIONS = 3
"""The number of rounds with an evaluation, which always has the same cost."""
FAR = 1000.0
"""A reference above the losses of random images; the cost does not depend on it."""


@dataclass(frozen=True)
class ProblemSource:
    """The origin of a problem, from which another process can load it."""

    setting: Setting
    data: str | None = None
    random: bool = False

    def __call__(self) -> Problem:
        """The problem."""
        return random_problem(self.setting) if self.random else resolve(self.setting, data=self.data)[1]


@dataclass(frozen=True)
class Measurement:
    """The measurements of one engine.

    Attributes:
        engine: Its name.
        device: Its device.
        precision: Its precision.
        seconds: The times of the measured rounds, without evaluation.
        evaluation: The median time of one evaluation of all test examples.
        every: The setting's number of rounds between evaluations; 0 for only the last.
        steps: The gradient steps of all clients in a round.
        memory: The peak private bytes of the engine's processes; on a GPU those of the GPU.
        error: The error, if the engine failed.
    """

    engine: str
    device: str = ""
    precision: str = ""
    seconds: tuple[float, ...] = ()
    evaluation: float = 0.0
    every: int = 0
    steps: int = 0
    memory: int = 0
    error: str = ""

    @property
    def round(self) -> float:
        """Seconds of a round, the median."""
        return statistics.median(self.seconds)

    @property
    def steps_per_second(self) -> float:
        """Client-steps per second."""
        return self.steps / self.round

    @property
    def evaluation_share(self) -> float:
        """The fraction of a run's time for evaluation, with the setting's interval."""
        share = self.evaluation / self.every if self.every else 0.0
        return share / (self.round + share)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        if self.error:
            return {"engine": self.engine, "error": self.error}
        made = {"round_seconds": self.round, "client_steps_per_second": self.steps_per_second}
        made |= {"evaluation_seconds": self.evaluation, "evaluation_share": self.evaluation_share}
        other = ("error", "evaluation", "every", "memory")
        kept = {key: value for key, value in asdict(self).items() if key not in other}
        return kept | made | {"peak_memory_bytes": self.memory}


def find_source(setting: Setting, data: str | None, random: bool) -> tuple[ProblemSource, Problem, str]:
    """The setting's problem, or random images of its shape if the datasets are missing, with a note."""
    if not random:
        try:
            source = ProblemSource(setting, data)
            return source, source(), ""
        except InputError as error:
            if setting.benchmark not in BENCHMARKS or setting.benchmark == "digits":
                raise
            note = f"Random images of the benchmark's shape are used instead of its data. {error}"
    else:
        note = "Random images of the benchmark's shape are used, as requested."
    source = ProblemSource(setting, data, random=True)
    return source, source(), note


def choose_engines(
    names: Sequence[str] | None, device: str, precision: str, problem: Problem, plan: Plan
) -> tuple[list[Choice], str]:
    """The engines to measure, by default all of one machine that work here, and the choice of `auto`."""
    auto = choose_engine("auto", device, precision, problem, plan)
    if names is None:
        forks = auto.device.type == "cpu" and can_fork()
        usable = [name for name in ENGINES if name != "ray" and (name != "parallel" or forks)]
        names = [name for name in usable if auto.precision in ENGINES[name].precisions]
    if not names or len(set(names)) < len(names):
        raise InputError(f"--engines should name at least one engine, and none twice. Found {list(names)}.")
    choices = [choose_engine(name, device, precision, problem, plan) for name in names]
    # If the model cannot be stacked, another engine replaces the stacked one; it is measured once.
    return list({choice.engine: choice for choice in reversed(choices)}.values())[::-1], str(auto)


def measure(
    source: ProblemSource,
    problem: Problem,
    method: Method,
    choices: Sequence[Choice],
    rounds: int = 5,
    tick: Callable[[int], None] = lambda done: None,
) -> list[Measurement]:
    """Run rounds on every engine in turn. The first round of each is a warm-up and is not measured."""
    if takes_reference(method):
        method = with_reference(method, (FAR,) * len(problem.tasks))
    plan = source.setting.plan(method, seed=0)
    plan = replace(plan, rounds=rounds + 1, evaluate_every=0)
    # Forked processes inherit the problem; a GPU needs a spawned process.
    forked = all(choice.device.type == "cpu" for choice in choices) and can_fork()
    load = (lambda: problem) if forked else source
    with one_thread(), ExitStack() as stack:
        pools = []
        for choice in choices:
            pools.append(Pool(partial(_start, load, choice, method, plan), 1, fork=forked, graceful=True, attempts=1))
            stack.callback(pools[-1].close)
        return _take_turns(choices, pools, rounds, source.setting, tick)


def _take_turns(
    choices: Sequence[Choice], pools: Sequence[Pool], rounds: int, setting: Setting, tick: Callable[[int], None]
) -> list[Measurement]:
    answers: list[list[tuple[Any, ...]]] = [[] for _ in choices]
    errors = [""] * len(choices)
    for number in range(rounds + 1):
        for turn in range(len(choices)):
            i = (turn + number) % len(choices)  # no engine is always the first
            if not errors[i]:
                try:
                    answers[i].append(pools[i].ask(number <= EVALUATIONS, "A round"))
                except FedHVError as error:
                    errors[i] = str(error)
        tick(number + 1)
    return [
        Measurement(choice.engine, error=error) if error else _measurement(choice, own, setting.evaluation.every)
        for choice, own, error in zip(choices, answers, errors, strict=True)
    ]


def _measurement(choice: Choice, answers: Sequence[tuple[Any, ...]], every: int) -> Measurement:
    """The first round is a warm-up and is not measured."""
    spent, evaluations, steps, memory = zip(*answers, strict=True)
    evaluation = statistics.median([seconds for seconds in evaluations[1:] if seconds > 0] or [0.0])
    how = (choice.engine, str(choice.device), choice.precision)
    return Measurement(*how, tuple(spent[1:]), evaluation, every, steps[-1], memory[-1])


def _start(load: Callable[[], Problem], choice: Choice, method: Method, plan: Plan) -> Callable[[bool], Any]:
    """Called in its own process: returns a function that runs the next round, with an evaluation if requested."""
    torch.set_num_threads(1)
    played = _rounds(choice.make(load()), method, plan)
    next(played)
    return played.send


def _rounds(engine: Engine, method: Method, plan: Plan) -> Generator[Any, bool, None]:
    steps = _Steps(engine)
    state = initial_state(engine, method, plan.seed)
    peak = 0
    evaluates = yield
    for number in range(plan.rounds):
        steps.count = 0
        began = time.perf_counter()
        # A plan that ends long after this round: its last round alone would come with an evaluation.
        going_on = replace(plan, rounds=number + 2)
        run = steps.of(
            rounds_of_run(engine.layout, engine.population, method, going_on, state, number, sizes=engine.sizes)
        )
        _, finished = next(simulate_together(engine, [run]))
        if isinstance(finished, FedHVError):
            raise finished
        _synchronise(engine)
        spent, state, evaluation = time.perf_counter() - began, finished.state, 0.0
        if evaluates:
            began = time.perf_counter()
            engine.evaluate(state.model)
            _synchronise(engine)
            evaluation = time.perf_counter() - began
        peak = max(peak, _memory(engine))
        evaluates = yield spent, evaluation, steps.count, peak


class _Steps:
    """Counts the gradient steps of the requests of a run."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.count = engine, 0

    def of(self, run: Generator[Event, Any, None]) -> Generator[Event, Any, None]:
        """The same run, counted."""
        answer = None
        with suppress(StopIteration):
            while True:
                event = run.send(answer)
                if isinstance(event, Call):
                    made = Counter(map(event.cohort.local.steps_of, self._engine.sizes(event.cohort.clients).tolist()))
                    self.count += sum(
                        n * event.request.gradients(self._engine.layout, steps) for steps, n in made.items()
                    )
                answer = yield event


def _synchronise(engine: Engine) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)


def _memory(engine: Engine) -> int:
    if engine.device.type == "cuda":
        return torch.cuda.max_memory_allocated(engine.device)
    workers = engine.workers if isinstance(engine, Parallel) else []
    return held_memory(workers)
