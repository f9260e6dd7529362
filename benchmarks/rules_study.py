"""The study of rules: every rule on several settings, trade-offs over knobs, and what the paper did not ask.

    python benchmarks/rules_study.py plan --dry-run --out study
    python benchmarks/rules_study.py plan --data DATA --out study --device cuda --precision tf32 --budget 500
    python benchmarks/rules_study.py run multimnist --seeds 0,1,2,3,4 --data DATA --out study --device cuda
    python benchmarks/rules_study.py run digits --parts tune,tuned --out study --dry-run
    python benchmarks/rules_study.py tables --out study

`plan` makes the steps of `STEPS` in their order as far as the budget allows; `run` makes chosen parts of chosen
settings. Both do not repeat what is finished, and continue what was interrupted. A step is one study: on a GPU the runs
of all its rules and seeds are one stack. Several processes with different steps can share a GPU: a single one does
not fill it (NVIDIA's MPS lets their kernels run side by side). `tables` reads the runs below OUT and needs neither the
datasets nor a GPU. `rules_parts.py` describes the parts.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import math
import statistics
import tarfile
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rules_curves import write_curves
from rules_parts import (
    CALIBRATION_SEEDS,
    GRADIENTS,
    GROUPS,
    LOSS_ONLY,
    PARTS,
    TRIALS,
    WAITING,
    Part,
    calibration_path,
    parts,
    reference_of,
    rules_folder,
)
from rules_tables import write_tables

from fedhv.interface import tune
from fedhv.problem.problem import Problem
from fedhv.report.progress import observer as progress
from fedhv.runs.calibration import find_reference
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.record import SUMMARY
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve
from fedhv.runs.study import StudyFailed, run_study
from fedhv.runs.tuning import rungs
from fedhv.runs.variants import Variant
from fedhv.simulation.observer import Observer
from fedhv.support.errors import FedHVError, InputError, Interrupted

KEPT = ("config.toml", "history.jsonl", "summary.json", "reference.toml", "tuned.toml", "tune.json")
"""What an archive has of a run; models and checkpoints are left out."""
FIVE, THREE = (0, 1, 2, 3, 4), (0, 1, 2)


@dataclass(frozen=True)
class Step:
    """A part of a setting with some seeds and, where a part has them, some rules."""

    setting: str
    part: str
    seeds: Sequence[int]
    rules: Sequence[str] = LOSS_ONLY

    def __str__(self) -> str:
        few = next((f", {name}" for name, own in GROUPS.items() if own == self.rules and name != "all"), "")
        return f"{self.setting}, {self.part}{few}, seeds {','.join(map(str, self.seeds))}"


LEADERS, OTHERS, UPDATES = GROUPS["leading"], GROUPS["others"], GROUPS["updates"]
FOLLOWED = tuple(rule for rule in LEADERS if rule in GROUPS["adaptive"])
LAST_TUNED = ("cifar10-mnist-b", "cifar10-mnist-a", "celeba5-b")
STEPS = (
    Step("multimnist", "rules", FIVE),
    Step("mnist-fmnist", "rules", FIVE),
    Step("cifar10-mnist-b", "rules", FIVE, LEADERS),
    Step("digits", "rules", FIVE),
    Step("star", "rules", FIVE),
    Step("tox21", "rules", FIVE),
    Step("cifar10-mnist-a", "rules", FIVE, LEADERS),
    Step("multimnist", "average", FIVE),
    Step("cifar10-mnist-b", "average", FIVE),
    Step("multimnist", "fixed", FIVE),
    Step("cifar10-mnist-b", "fixed", THREE),
    Step("digits", "fixed", FIVE),
    Step("multimnist", "tune", (0,)),
    Step("multimnist", "tuned", FIVE),
    Step("multimnist", "gradients", THREE, UPDATES),
    Step("mnist-fmnist", "gradients", THREE, UPDATES),
    Step("digits", "gradients", THREE, GRADIENTS),
    Step("multimnist", "margins", THREE),
    Step("multimnist", "fresh", THREE),
    Step("multimnist", "calibrations", THREE),
    Step("multimnist", "partitions", (0, 1)),
    Step("multimnist", "knobs", THREE, LEADERS),
    Step("multimnist", "knobs", THREE, OTHERS),
    Step("cifar10-mnist-b", "rules", THREE, OTHERS),
    Step("mnist-fmnist", "average", FIVE),
    Step("mnist-fmnist", "fixed", THREE),
    Step("cifar10-mnist-b", "gradients", THREE, UPDATES),
    Step("cifar10-mnist-a", "rules", THREE, OTHERS),
    Step("cifar10-mnist-a", "gradients", THREE, UPDATES),
    Step("star", "gradients", THREE, GRADIENTS),
    Step("tox21", "gradients", THREE, GRADIENTS),
    Step("celeba5-b", "rules", FIVE, LEADERS),
    *(Step(name, "average", FIVE) for name in ("cifar10-mnist-a", "digits", "star", "tox21")),
    *(
        Step(name, "averages", FIVE, FOLLOWED)
        for name in ("multimnist", "mnist-fmnist", "digits", "star", "tox21", "cifar10-mnist-b", "cifar10-mnist-a")
    ),
    Step("cifar10-mnist-a", "fixed", THREE),
    *(Step(name, part, FIVE) for name in ("mnist-fmnist", "digits", "star", "tox21") for part in ("tune", "tuned")),
    *(Step(name, part, FIVE, LEADERS) for name in LAST_TUNED for part in ("tune", "tuned")),
)
"""The whole study, the most valuable first."""
BRIEF = ("record.cohort=false", "record.checkpoints=0", "evaluation.every=100")
"""What the plan changes in every setting: records and evaluations that the tables do not need."""
TUNE_ROUNDS = 100
"""The rounds of a trial, by default all trials' of a rule."""
STACKED_MS = {
    "multimnist": 6.0, "mnist-fmnist": 8.0, "cifar10-mnist-b": 15.0, "cifar10-mnist-a": 15.0, "celeba5-b": 75.0,
    "digits": 2.0,
}  # fmt: skip
"""Milliseconds for a round of a stacked run on one H200, as long as this call has not measured the setting."""
START_S = {"partitions": 12.0, "calibrations": 12.0}
"""Seconds before the first round of a study, 6 where it is not named: recordings, partitions, calibrations."""
WORK = {"gradients": 2.5, "fresh": 2.0}
"""The work of a round relative to FedHV's."""


@dataclass
class Clock:
    """The time of a call: what is left of its budget, and what a round of a run took."""

    budget: float | None
    began: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    measured: dict[str, float] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return math.inf if self.budget is None else self.budget - self.spent

    def note(self, setting: Setting, work: float, seconds: float) -> None:
        """Remember how long the rounds of a study took; `work` is in rounds of FedHV."""
        if work > 0:
            self.measured[setting.name] = seconds / work

    def estimate(self, setting: Setting, runs: int, rounds: float, part: str, out: Path, device: str) -> float | None:
        """The seconds of a study."""
        each = self.measured.get(setting.name)
        if each is None and device == "cuda":
            each = STACKED_MS[setting.name] / 1000 if setting.name in STACKED_MS else None
        elif each is None:
            each = _on_cpu(setting, out)
        if each is None or not runs:
            return None if each is None else 0.0
        start = START_S.get(part, 6.0) if device == "cuda" else 0.0
        return start + runs * rounds * WORK.get(part, 1.0) * each


def _on_cpu(setting: Setting, out: Path) -> float | None:
    """Seconds of a round: the median of finished runs of this setting, or what the package's estimates say."""
    found = [json.loads(path.read_text()) for path in out.glob(f"{setting.name}/*/**/{SUMMARY}")]
    own = [each["seconds"] / each["rounds"] for each in found if each["device"] == "cpu"]
    if own:
        return float(statistics.median(own))
    from fedhv.engines import choose_engine
    from fedhv.paper.estimate import estimated

    return estimated(setting, "fedhv", choose_engine("sequential", "cpu"))


class Call:
    """One call of `run` or `plan`: the problems that it has loaded, its clock and its arguments."""

    def __init__(self, arguments: argparse.Namespace, changes: Sequence[str]) -> None:
        self.arguments, self.changes = arguments, [*changes, *arguments.set]
        self.out, self.clock = Path(arguments.out), Clock(arguments.budget)
        self.watch: Observer = progress(_console(), arguments.quiet)
        self._problems: dict[str, Problem | None] = {}
        self._estimated = 0.0

    def make(self, steps: Iterable[Step]) -> None:
        """Make the steps, each if the budget has the seconds that it is estimated to take; an error ends one step."""
        for step in steps:
            try:
                self._step(step)
            except Interrupted:
                raise
            except Exception:
                print(f"{step}: failed.\n{traceback.format_exc()}", flush=True)
        self.watch.stop()
        if self.arguments.dry_run:
            print(f"about {self._estimated:.0f} s in all, without what is unknown", flush=True)
        else:
            print(f"{self.clock.spent:.0f} s in all", flush=True)

    def _step(self, step: Step) -> None:
        setting = load_setting(step.setting, self.changes)
        if step.part == "tune":
            self._tune(setting, step)
            return
        problem = None if self.arguments.dry_run else self._problem(step.setting, setting)
        if problem is None and not self.arguments.dry_run:
            return
        tasks = 2 if problem is None else len(problem.tasks)
        if step.part == "calibrations" and problem is not None:
            self._calibrate(step, problem)
        studies = parts(step.part, setting, self.out, step.seeds, tasks, step.rules)
        if not studies:
            runs = WAITING.get(step.part, len(step.rules)) * len(step.seeds)
            self._fits(setting, step, str(step), runs, setting.training.rounds)
            print(f"{step}: waits for another part (rules or tune).", flush=True)
        for study in studies:
            name = str(step) if study.folder.name == step.part else f"{step}, partition {study.folder.name}"
            missing = study.missing(step.seeds)
            if self._fits(setting, step, name, missing, setting.training.rounds):
                self._study(setting, problem, step, study, missing)

    def _problem(self, name: str, setting: Setting) -> Problem | None:
        if name not in self._problems:
            try:
                self._problems[name] = resolve(setting, data=self.arguments.data)[1]
            except (FedHVError, ImportError) as error:
                print(f"{name} is left out: {error}", flush=True)
                self._problems[name] = None
        return self._problems[name]

    def _fits(self, setting: Setting, step: Step, name: str, runs: int, rounds: float) -> bool:
        """Print the estimate of a study; whether it is to be made now."""
        seconds = self.clock.estimate(setting, runs, rounds, step.part, self.out, self.arguments.device)
        text = "unknown" if seconds is None else f"about {seconds:.0f} s"
        print(f"[{self.clock.spent:.0f} s] {name}: {runs} runs to do, {text}", flush=True)
        self._estimated += seconds or 0.0
        if self.arguments.dry_run or not runs:
            return False
        if seconds is not None and seconds > self.clock.left:
            print(f"{name}: left out, {self.clock.left:.0f} s of the budget are left.", flush=True)
            return False
        return True

    def _tune(self, setting: Setting, step: Step) -> None:
        """The same number of trials for every rule: three times smaller and larger client rates, half and twice the
        server's, and the knob."""
        place, arguments = self.out / setting.name / "tune", self.arguments
        done = (place / "tuned.toml").exists()
        rounds = min(arguments.tune_rounds, setting.training.rounds)
        # Rungs end in an evaluated round, and the first one has as few rounds as the finalists allow.
        every = rungs(TRIALS, rounds, 1, arguments.tune_finalists)[0][1]
        each = trial_rounds(rungs(TRIALS, rounds, every, arguments.tune_finalists))
        runs = 0 if done else len(step.rules) * len(arguments.tune_seeds)
        if not self._fits(setting, step, str(step), runs * TRIALS, each / TRIALS):
            return
        began, like = time.monotonic(), setting.method("fedhv")
        tune(
            load_setting(step.setting, [*self.changes, f"evaluation.every={every}"]),
            step.rules,
            TRIALS,
            finalists=arguments.tune_finalists,
            seeds=arguments.tune_seeds,
            by=arguments.tune_by,
            ranges={"local_lr": _around(like.local_lr, 3.0), "server_lr": _around(like.server_lr, 2.0)},
            rounds=rounds,
            out=place,
            engine=arguments.engine,
            device=arguments.device,
            precision=arguments.precision,
            jobs=arguments.jobs,
            data=arguments.data,
            observer=self.watch,
        )
        self._made(place, began)

    def _study(self, setting: Setting, problem: Problem | None, step: Step, study: Part, missing: int) -> None:
        began, arguments = time.monotonic(), self.arguments
        if study.changes:
            setting = load_setting(step.setting, [*self.changes, *study.changes])
            problem = resolve(setting, data=arguments.data)[1]
        assert problem is not None
        given = None
        if not study.changes and step.part not in ("rules", "tuned"):  # these two calibrate at their own rates
            given = reference_of(rules_folder(self.out, setting))
        variants = study.variants if given is None else [_with(each, given) for each in study.variants]
        started = time.monotonic()
        try:
            run_study(
                setting,
                problem,
                variants,
                step.seeds,
                study.folder,
                jobs=arguments.jobs,
                engine=arguments.engine,
                device=arguments.device,
                precision=arguments.precision,
                data=arguments.data,
                observer=self.watch,
            )
        except StudyFailed as failed:  # a run that diverges is a result
            print(failed, flush=True)
        start = START_S.get(step.part, 6.0) if arguments.device == "cuda" else 0.0
        work = missing * setting.training.rounds * WORK.get(step.part, 1.0)
        self.clock.note(setting, work, max(0.0, time.monotonic() - started - start))
        self._made(study.folder, began)

    def _made(self, folder: Path, began: float) -> None:
        self.watch.stop()
        print(f"{folder}: {time.monotonic() - began:.0f} s", flush=True)
        if self.arguments.archive:  # after every study: the next one may be cut short
            archive(self.out, Path(self.arguments.archive), self.clock.began_at)

    def _calibrate(self, step: Step, problem: Problem) -> None:
        from fedhv.engines import choose_engine

        arguments = self.arguments
        for seed in CALIBRATION_SEEDS:
            changed = load_setting(step.setting, [*self.changes, f"calibration.seeds=[{seed}]"])
            path = calibration_path(self.out, changed, seed)
            if path.exists():
                continue
            fedhv = changed.method("fedhv")
            plan = changed.plan(fedhv, 0)
            choice = choose_engine(arguments.engine, arguments.device, arguments.precision, problem, plan)
            reference = find_reference(changed, fedhv, problem, choice=choice, data=arguments.data, observer=self.watch)
            path.parent.mkdir(parents=True, exist_ok=True)
            reference.write(path)


def trial_rounds(ladder: Sequence[tuple[int, int]]) -> int:
    """The rounds that the trials of a method have together: a trial that goes on has those of earlier rungs already."""
    before = [0, *(rounds for _, rounds in ladder)]
    return sum(count * (rounds - done) for (count, rounds), done in zip(ladder, before, strict=False))


def _around(value: float, factor: float) -> tuple[float, float]:
    return float(f"{value / factor:.4g}"), float(f"{value * factor:.4g}")


def _with(variant: Variant, reference: Reference) -> Variant:
    """FedHV with the reference of the part "rules", which is calibrated once."""
    method: Any = variant.method
    if getattr(method, "reference", 0) is None:
        return Variant(variant.name, dataclasses.replace(method, reference=reference.values))
    return variant


def archive(out: Path, target: Path, since: float = 0.0) -> None:
    """Configurations, histories, summaries and references below OUT as one .tar.xz, the same for the same content.

    `since` leaves out files that were written before. The trials of a tuning are left out: `tune.json` has them.
    """

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
        return info

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=3 if since else 6) as bundle:
        for path in sorted(path for path in out.rglob("*") if path.is_file() and path.stat().st_mtime >= since):
            inside = path.relative_to(out)
            if len(inside.parts) > 3 and inside.parts[1] == "tune":
                continue
            if path.name in KEPT or (path.parent.name == "calibrations" and path.suffix == ".toml"):
                bundle.add(path, f"study/{inside.as_posix()}", filter=plain)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.getvalue())
    print(f"{target}: {len(content.getvalue()) / 1e6:.1f} MB", flush=True)


# --- the command line ---------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> None:
    rules = GROUPS.get(arguments.rules) or tuple(arguments.rules.split(","))
    steps = [Step(s, p, arguments.seeds, rules) for s in arguments.settings for p in arguments.parts]
    Call(arguments, ()).make(steps)


def plan(arguments: argparse.Namespace) -> None:
    chosen = arguments.steps or range(1, len(STEPS) + 1)
    for number in chosen:
        if not 1 <= number <= len(STEPS):
            raise InputError(f"`--steps` should be numbers from 1 to {len(STEPS)}. Found {number}.")
        print(f"step {number}: {STEPS[number - 1]}", flush=True)
    Call(arguments, BRIEF).make(STEPS[number - 1] for number in chosen)


def tables(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    to = Path(arguments.to) if arguments.to else out / "tables"
    write_tables(out, to)
    for path in write_curves(out, to):
        print(path)


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True)
    parser.add_argument("--data")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--tune-seeds", default=[0], type=_numbers)
    parser.add_argument("--tune-rounds", default=TUNE_ROUNDS, type=int, help="the rounds of the longest trials")
    parser.add_argument(
        "--tune-finalists", default=TRIALS, type=int, help="how many trials of a rule have all of these"
    )
    parser.add_argument("--tune-by", help="the criterion on validation; that of `fedhv tune` by default")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, for all settings")
    parser.add_argument("--budget", type=float, help="seconds; leave out what is estimated to take longer than is left")
    parser.add_argument("--archive", help="write what this call has finished to this .tar.xz, after every study")
    parser.add_argument("--dry-run", action="store_true", help="print the estimates alone")
    parser.add_argument("--quiet", action="store_true")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="chosen parts of chosen settings")
    runs.add_argument("settings", nargs="+", help="names of settings, or TOML files")
    runs.add_argument("--parts", default="rules,fixed,average,margins,fresh", type=lambda text: text.split(","))
    runs.add_argument("--seeds", default=[0, 1, 2, 3, 4], type=_numbers)
    runs.add_argument("--rules", default="all", help=f"{', '.join(GROUPS)}, or names")
    _common(runs)
    runs.set_defaults(call=run)
    planned = commands.add_parser("plan", help="the whole study, the most valuable steps first")
    planned.add_argument("--steps", type=_numbers, help="their numbers, such as 1,2,5; all by default")
    _common(planned)
    planned.set_defaults(call=plan)
    kept = commands.add_parser("archive", help="all finished runs as one .tar.xz")
    kept.add_argument("--out", required=True)
    kept.add_argument("--archive", required=True)
    kept.set_defaults(call=lambda arguments: archive(Path(arguments.out), Path(arguments.archive)))
    shown = commands.add_parser("tables", help="a Markdown file for every setting, and figures of knobs")
    shown.add_argument("--out", required=True)
    shown.add_argument("--to", help="where the tables are written; by default OUT/tables")
    shown.set_defaults(call=tables)
    arguments = parser.parse_args()
    for part in itertools.filterfalse(PARTS.__contains__, getattr(arguments, "parts", ())):
        parser.error(f"unknown part {part}; expected {', '.join(PARTS)}")
    arguments.call(arguments)


if __name__ == "__main__":
    main()
