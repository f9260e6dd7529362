"""The study of rules: every rule on several settings, trade-offs over knobs, and what the paper did not ask.

    python benchmarks/rules_study.py run multimnist --seeds 0,1,2,3,4 --data DATA --out OUT --device cuda
    python benchmarks/rules_study.py run digits --parts tune,tuned --out OUT --dry-run
    python benchmarks/rules_study.py tables --out OUT

`run` does not repeat what is finished, and continues what was interrupted. `tables` reads the runs below OUT, writes
OUT/tables/*.md, and needs neither the datasets nor a GPU. Parts of a setting, each one study, stacked on a GPU:

- rules: all loss-only rules, FedHV, Uniform and fixed weights at the setting's rates (a loss-only rule has FedHV's)
- gradients: FSMGDA, FedCMOO and rules of TorchJD that need gradients
- tune: `fedhv.tune` of the rules; tuned: the rules at the rates and knobs found
- fixed: nine fixed weights, the front that a rule has to go beyond
- knobs: every rule over seven values of its knob
- average: constant weights equal to the time average of FedHV's
- margins: FedHV with other margins, and without calibration, r = log C + δ
- calibrations: FedHV with references from other calibration seeds
- fresh: FedHV with weights from this round's reports instead of the last round's
- partitions: some rules on other partitions of the examples
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhv.interface import tune
from fedhv.methods import FedHV, Method
from fedhv.methods.base import Conversation, State
from fedhv.methods.knobs import KNOBS
from fedhv.methods.reports import reported_losses
from fedhv.methods.rules.fixed import Fixed
from fedhv.methods.weights import inverse_slack_weights
from fedhv.problem.problem import Problem
from fedhv.protocol.requests import Train
from fedhv.report.progress import observer as progress
from fedhv.runs.calibration import find_reference
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.fronts import FrontMethod, front_of
from fedhv.runs.record import SUMMARY, Run, read_run
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.resolve import resolve
from fedhv.runs.study import StudyFailed, run_study
from fedhv.runs.variants import Variant
from fedhv.simulation.observer import Observer
from fedhv.support.errors import FedHVError, InputError

LOSS_ONLY = (
    "uniform", "fedhv", "fedhv-moving", "fixed", "normalised", "power", "geometric", "stch", "afl", "dwa", "famo",
    "uncertainty", "imtl-l",
)  # fmt: skip
GRADIENTS = (
    "fsmgda", "fedcmoo", "torchjd:UPGrad", "torchjd:MGDA", "torchjd:PCGrad", "torchjd:AlignedMTL", "torchjd:IMTLG",
    "torchjd:FairGrad",
)  # fmt: skip
LEADING = ("fixed", "fedhv", "fedhv-moving", "power", "stch", "afl")
"""The rules that are run on other partitions."""
MARGINS = (0.05, 0.5, 1.0, 3.0)
UNCALIBRATED = (0.15, 1.0)
CALIBRATION_SEEDS = (1, 2, 3, 4)
PARTITIONS = (11, 12, 13, 14)
POINTS, KNOB_POINTS, TRIALS = 9, 7, 9
PARTS = (
    "rules", "fixed", "average", "margins", "fresh", "knobs", "calibrations", "partitions", "gradients", "tune",
    "tuned",
)  # fmt: skip
WAITING = {"average": 1, "margins": len(MARGINS) + len(UNCALIBRATED), "fresh": 2, "calibrations": 4,
           "tuned": len(LOSS_ONLY)}  # fmt: skip
"""How many runs for a seed a part has that waits for another's results; a fresh round has two exchanges."""
KEPT = ("config.toml", "history.jsonl", "summary.json", "reference.toml", "tuned.toml", "tune.json")
"""What an archive has of a run; models and checkpoints are left out."""
STACKED_SECONDS = {
    "multimnist": 2.3, "mnist-fmnist": 2.3, "cifar10-mnist-b": 8.0, "cifar10-mnist-a": 8.0, "digits": 1.0, "star": 2.0,
}  # fmt: skip
"""Seconds of a stacked run on one H200, where OUT has no measurement yet; the last two are guesses."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshFedHV(FedHV):
    """FedHV with fresh weights: the cohort reports first, then trains with the weights of these reports.

    One more exchange in every round. The clients of both exchanges are the same.
    """

    name = "fedhv-fresh"
    rates_of = "fedhv"

    def round(self, state: State) -> Conversation:
        first = yield Train(state.model, state.weights, report=self.report)
        losses = reported_losses(first)
        weights = inverse_slack_weights(losses, self.reference, self.floor, self.preferences)
        replies = yield Train(state.model, weights)
        return State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=weights,
            record={"report": losses.tolist(), "weights": weights.tolist()},
        )


@dataclass(frozen=True)
class Part:
    """One study: where it is, what is changed in the setting, and its variants."""

    folder: Path
    changes: tuple[str, ...]
    variants: tuple[Variant, ...]

    def runs(self, seeds: Sequence[int]) -> list[Path]:
        return [each.place(self.folder, seed) for each in self.variants for seed in seeds]


# --- the parts ----------------------------------------------------------------------------------------------


def parts(name: str, setting: Setting, out: Path, seeds: Sequence[int], tasks: int) -> list[Part]:
    """The studies of a part that can be made now; a part that needs another's results is empty before these."""
    place = out / setting.name / name
    plain = _plain(out, setting)

    def methods(names: Iterable[str], of: Setting = setting) -> tuple[Variant, ...]:
        return tuple(Variant("", each) for each in _made(names, of))

    match name:
        case "rules":
            return [Part(place, (), methods(LOSS_ONLY))]
        case "gradients":
            return [Part(place, (), methods(GRADIENTS))]
        case "fixed":
            return [Part(place, (), _front("fixed", None, setting, tasks).variants)]
        case "knobs":
            chosen = [_front(rule, KNOBS[rule].key, setting, tasks) for rule in LOSS_ONLY if rule in KNOBS]
            return [Part(place, (), tuple(variant for each in chosen for variant in each.variants))]
        case "average":
            weights = average_weights(plain, seeds)
            if weights is None:
                return []
            fixed = dataclasses.replace(_rated(Fixed(), setting), preferences=weights)
            return [Part(place, (), (Variant("average", fixed),))]
        case "margins" | "fresh" | "calibrations":
            reference = _reference(plain)
            if reference is None:
                return []
            return [Part(place, (), tuple(_references(name, setting, reference, out)))]
        case "partitions":
            return [Part(place / f"seed{p}", (f"federation.seed={p}",), methods(LEADING)) for p in PARTITIONS]
        case "tuned":
            path = out / setting.name / "tune" / "tuned.toml"
            return [Part(place, (), methods(LOSS_ONLY, load_setting(str(path))))] if path.exists() else []
    raise InputError(f"Unknown part '{name}'. Expected one of {', '.join(PARTS)}.")


def _made(names: Iterable[str], setting: Setting) -> list[Method]:
    """The methods that can be made here: those of TorchJD need TorchJD."""
    found = []
    for name in names:
        try:
            found.append(setting.method(name))
        except FedHVError as error:
            if not name.startswith("torchjd:"):
                raise
            print(f"{name} is left out: {error}", flush=True)
    return found


def _front(rule: str, over: str | None, setting: Setting, tasks: int) -> FrontMethod:
    return front_of(setting.method(rule), over, POINTS if over is None else KNOB_POINTS, tasks, {})


def _rated(method: Any, setting: Setting) -> Any:
    """The method with FedHV's rates."""
    like = setting.method("fedhv")
    return dataclasses.replace(method, server_lr=like.server_lr, local_lr=like.local_lr)


def _plain(out: Path, setting: Setting) -> Path:
    return out / setting.name / "rules"


def _reference(rules: Path) -> Reference | None:
    path = rules / "reference.toml"
    return read_reference(path) if path.exists() else None


def average_weights(rules: Path, seeds: Sequence[int]) -> tuple[float, ...] | None:
    """The mean of FedHV's weights over rounds and seeds."""
    folders = [rules / f"fedhv-seed{seed}" for seed in seeds]
    if not all((folder / SUMMARY).exists() for folder in folders):
        return None
    rows = [each.weights for folder in folders for each in read_run(folder).rounds]
    return tuple(round(statistics.fmean(column), 6) for column in zip(*rows, strict=True))


def _references(name: str, setting: Setting, reference: Reference, out: Path) -> Iterable[Variant]:
    fedhv: Any = setting.method("fedhv")

    def with_values(label: str, values: Sequence[float]) -> Variant:
        return Variant(label, dataclasses.replace(fedhv, reference=tuple(values)))

    if name == "fresh":
        fields = {each.name: getattr(fedhv, each.name) for each in dataclasses.fields(fedhv)}
        yield Variant("fresh", FreshFedHV(**fields | {"reference": reference.values}))
        return
    if name == "margins":
        maxima = reference.provenance.maxima
        for margin in MARGINS:
            yield with_values(f"margin-{margin}", [loss + margin for loss in maxima])
        classes = _classes(setting)
        for margin in UNCALIBRATED if classes else ():
            yield with_values(f"log-c-{margin}", [math.log(c) + margin for c in classes])
        return
    for seed in CALIBRATION_SEEDS:
        path = out / setting.name / "calibrations" / f"reference-{seed}.toml"
        if path.exists():
            yield with_values(f"seed-{seed}", read_reference(path).values)


def _classes(setting: Setting) -> list[int]:
    """The classes of every task, where a uniform guess has the loss log C."""
    return {"digits": [10, 10], "multimnist": [10, 10], "mnist-fmnist": [10, 10], "tox21": [2] * 12}.get(
        setting.benchmark, [10, 10] if setting.benchmark.startswith("cifar10") else []
    )


# --- running ------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> None:
    began, watch = time.monotonic(), progress(_console(), arguments.quiet)
    out, seeds = Path(arguments.out), arguments.seeds
    for name in arguments.settings:
        setting = load_setting(name, arguments.set)
        problem: Problem | None = None
        for part in arguments.parts:
            left = None if arguments.budget is None else arguments.budget - (time.monotonic() - began)
            if part == "tune":
                forecast = TRIALS * len(LOSS_ONLY) * 0.34 * len(arguments.tune_seeds)
                if _skipped(setting, part, math.ceil(forecast), out, left, arguments):
                    continue
                tune(
                    setting,
                    LOSS_ONLY,
                    TRIALS,
                    seeds=arguments.tune_seeds,
                    out=out / setting.name / "tune",
                    engine=arguments.engine,
                    device=arguments.device,
                    precision=arguments.precision,
                    jobs=arguments.jobs,
                    data=arguments.data,
                    observer=watch,
                )
                continue
            if problem is None and not arguments.dry_run:
                try:
                    problem = resolve(setting, data=arguments.data)[1]
                except (FedHVError, ImportError) as error:
                    print(f"{setting.name} is left out: {error}", flush=True)
                    break
            tasks = 2 if problem is None else len(problem.tasks)
            if part == "calibrations" and problem is not None:
                _calibrate(setting, problem, out, arguments, watch)
            studies = parts(part, setting, out, seeds, tasks)
            if not studies:
                _skipped(setting, part, WAITING[part] * len(seeds), out, 0.0, arguments)
                print(f"{setting.name}, {part}: waits for another part (rules or tune).", flush=True)
            for study in studies:
                missing = sum(not (place / SUMMARY).exists() for place in study.runs(seeds))
                if _skipped(setting, f"{part} ({study.folder.name})", missing, out, left, arguments):
                    continue
                _study(setting, problem, study, seeds, out, arguments, watch)
    watch.stop()
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)


def _skipped(setting: Setting, part: str, missing: int, out: Path, left: float | None, arguments: Any) -> bool:
    """Print the estimate of a part; whether it is not to be run."""
    each = seconds_of_run(setting, out, arguments.device)
    estimate = None if each is None else missing * each
    text = "unknown" if estimate is None else f"about {estimate:.0f} s"
    print(f"{setting.name}, {part}: {missing} runs to do, {text}", flush=True)
    if arguments.dry_run or not missing:
        return True
    if left is not None and estimate is not None and estimate > left > 0:
        print(f"{setting.name}, {part}: left out, {left:.0f} s of the budget are left.", flush=True)
        return True
    return False


def _study(
    setting: Setting,
    problem: Problem | None,
    study: Part,
    seeds: Sequence[int],
    out: Path,
    arguments: Any,
    watch: Observer,
) -> None:
    began = time.monotonic()
    if study.changes:
        setting = load_setting(arguments.settings_file[setting.name], [*arguments.set, *study.changes])
        problem = resolve(setting, data=arguments.data)[1]
    assert problem is not None
    shared = _reference(_plain(out, setting)) if not study.changes else None
    given = shared if study.folder != _plain(out, setting) else None
    variants = study.variants if given is None else [_with(each, given) for each in study.variants]
    try:
        run_study(
            setting,
            problem,
            variants,
            seeds,
            study.folder,
            jobs=arguments.jobs,
            engine=arguments.engine,
            device=arguments.device,
            precision=arguments.precision,
            data=arguments.data,
            observer=watch,
        )
    except StudyFailed as failed:  # a run that diverges is a result
        print(failed, flush=True)
    watch.stop()
    print(f"{study.folder}: {time.monotonic() - began:.0f} s", flush=True)
    if arguments.archive:  # after every study: the next one may be cut short
        archive(out, Path(arguments.archive))


def _with(variant: Variant, reference: Reference) -> Variant:
    """FedHV with the reference of the part "rules", which is calibrated once."""
    method: Any = variant.method
    if getattr(method, "reference", 0) is None:
        return Variant(variant.name, dataclasses.replace(method, reference=reference.values))
    return variant


def _calibrate(setting: Setting, problem: Problem, out: Path, arguments: Any, watch: Observer) -> None:
    from fedhv.engines import choose_engine

    for seed in CALIBRATION_SEEDS:
        path = out / setting.name / "calibrations" / f"reference-{seed}.toml"
        if path.exists():
            continue
        changed = load_setting(arguments.settings_file[setting.name], [*arguments.set, f"calibration.seeds=[{seed}]"])
        fedhv = changed.method("fedhv")
        plan = changed.plan(fedhv, 0)
        choice = choose_engine(arguments.engine, arguments.device, arguments.precision, problem, plan)
        reference = find_reference(changed, fedhv, problem, choice=choice, data=arguments.data, observer=watch)
        path.parent.mkdir(parents=True, exist_ok=True)
        reference.write(path)


def seconds_of_run(setting: Setting, out: Path, device: str) -> float | None:
    """The median seconds of finished runs of this setting, or what is known of it."""
    found = [json.loads(path.read_text())["seconds"] for path in out.glob(f"{setting.name}/*/**/{SUMMARY}")]
    if found:
        return float(statistics.median(found))
    if device == "cuda":
        return STACKED_SECONDS.get(setting.name)
    from fedhv.engines import choose_engine
    from fedhv.paper.estimate import estimated

    each = estimated(setting, "fedhv", choose_engine("sequential", "cpu"))
    return None if each is None else each * setting.training.rounds


def archive(out: Path, target: Path) -> None:
    """Configurations, histories, summaries and references below OUT as one .tar.xz, the same for the same content."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
        return info

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as bundle:
        for path in sorted(path for path in out.rglob("*") if path.is_file()):
            if path.name in KEPT or (path.parent.name == "calibrations" and path.suffix == ".toml"):
                bundle.add(path, path.relative_to(out).as_posix(), filter=plain)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.getvalue())
    print(f"{target}: {len(content.getvalue()) / 1e6:.1f} MB", flush=True)


# --- tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The runs of one variant, by seed."""

    label: str
    runs: dict[int, Run]

    def values(self, key: Callable[[Run], float]) -> dict[int, float]:
        return {seed: key(run) for seed, run in self.runs.items()}


METRICS: tuple[tuple[str, Callable[[Run], float], int], ...] = (
    ("MeanAcc %", lambda run: run.summary.mean_accuracy, 2),
    ("WorstAcc %", lambda run: run.summary.worst_accuracy, 2),
    ("MeanLoss", lambda run: run.summary.mean_loss, 4),
)


def main_metric(rows: Sequence[Row]) -> tuple[tuple[str, Callable[[Run], float], int], ...]:
    """The mean and the worst of the tasks' main metric, where tasks have one; R² where there is one, without units."""
    from fedhv.problem.metrics import METRICS as KNOWN

    first = next(iter(rows[0].runs.values())).summary
    if not all(task.metrics for task in first.tasks):
        return METRICS
    name = "r2" if all("r2" in task.metrics for task in first.tasks) else next(iter(first.tasks[0].metrics))
    worst = max if name in KNOWN and KNOWN[name].better == "lower" else min

    def found(run: Run) -> list[float]:
        return [task.metrics[name] for task in run.summary.tasks]

    return (
        (f"mean {name}", lambda run: statistics.fmean(found(run)), 4),
        (f"worst {name}", lambda run: worst(found(run)), 4),
        METRICS[2],
    )


def rows_of(folder: Path) -> list[Row]:
    found: dict[str, dict[int, Run]] = {}
    for path in sorted(folder.glob(f"**/{SUMMARY}")):
        if "calibration" in path.relative_to(folder).parts:
            continue
        run_ = read_run(path.parent)
        inside = path.parent.parent.relative_to(folder).as_posix()
        found.setdefault(run_.method if inside == "." else inside, {})[run_.seed] = run_
    order = (*LOSS_ONLY, *GRADIENTS)
    places = sorted(found, key=lambda label: (order.index(label) if label in order else len(order), label))
    return [Row(label, found[label]) for label in places]


def p_value(differences: Sequence[float]) -> float:
    """Student's two-sided p of a zero mean."""
    from scipy.special import stdtr

    deviation = statistics.stdev(differences)
    if deviation == 0:
        return 1.0 if statistics.fmean(differences) == 0 else 0.0
    t = statistics.fmean(differences) / (deviation / math.sqrt(len(differences)))
    return float(2 * stdtr(len(differences) - 1, -abs(t)))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: the probability of any false finding among them stays below the level."""
    order, adjusted, highest = sorted(range(len(p)), key=lambda i: p[i]), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


def table(rows: Sequence[Row], against: Row | None, title: str) -> str:
    """Mean ± deviation over seeds, and the paired difference to `against` with its 95 % interval and Holm's p."""
    from fedhv.support.statistics import Paired, Spread

    metrics = main_metric(rows)
    others = [row for row in rows if against is None or row.label != against.label]
    lines, cells = [f"### {title}", ""], {id(row): [row.label] for row in rows}
    heads = ["rule"]
    for name, key, digits in metrics:
        heads.append(name)
        for row in rows:
            cells[id(row)].append(Spread.of(list(row.values(key).values())).text(digits))
        if against is None:
            continue
        heads.append(f"− {against.label} [95 %]")
        base, paired, probabilities = against.values(key), {}, []
        for row in others:
            values = row.values(key)
            differences = [values[seed] - base[seed] for seed in sorted(values) if seed in base]
            if len(differences) > 1:
                paired[id(row)] = Paired.of(differences)
                probabilities.append((id(row), p_value(differences)))
        adjusted = dict(zip([i for i, _ in probabilities], holm([p for _, p in probabilities]), strict=True))
        for row in rows:
            found = paired.get(id(row))
            if found is None:
                cells[id(row)].append("")
                continue
            text = f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
            clear = adjusted[id(row)] < 0.05
            cells[id(row)].append(f"**{text}**" if clear else text)
    heads += ["mean weights", "seeds"]
    for row in rows:
        weights = [run_.rounds for run_ in row.runs.values()]
        means = [statistics.fmean(c) for c in zip(*(w.weights for rounds in weights for w in rounds), strict=True)]
        shown = ", ".join(f"{w:.2f}" for w in means) if len(means) <= 3 else f"{min(means):.3f} to {max(means):.3f}"
        cells[id(row)] += [shown, str(len(row.runs))]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cells[id(row)]) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def training_phi(row: Row, reference: Reference) -> dict[int, float]:
    """Φ = −Σ log(r − F̂) of the last report, where all losses lie below the reference."""
    found = {}
    for seed, run_ in row.runs.items():
        reports = [each.report for each in run_.rounds if each.report is not None]
        if reports and all(f < r for f, r in zip(reports[-1], reference.values, strict=True)):
            found[seed] = -sum(math.log(r - f) for f, r in zip(reports[-1], reference.values, strict=True))
    return found


def phi_table(rows: Sequence[Row], reference: Reference) -> str:
    lines = ["### Training Φ = −Σ log(r − F̂) at the last report, FedHV's reference; smaller is better", "",
             "| rule | Φ | seeds |", "|---|---|---|"]  # fmt: skip
    for row in rows:
        values = list(training_phi(row, reference).values())
        if values:
            deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
            lines.append(f"| {row.label} | {statistics.fmean(values):.4f}{deviation} | {len(values)} |")
    return "\n".join(lines) + "\n"


def beyond(front: Sequence[Row], rows: Sequence[Row]) -> str:
    """Which rules' mean points the front of fixed weights dominates, in accuracies and in test losses."""

    def at(row: Row, kind: str) -> list[float]:
        runs = list(row.runs.values())
        sign = -1.0 if kind == "accuracy" else 1.0
        columns = zip(*([getattr(task, kind) for task in run_.summary.tasks] for run_ in runs), strict=True)
        return [sign * statistics.fmean(column) for column in columns]

    def dominates(q: Sequence[float], p: Sequence[float]) -> bool:
        return all(a <= b for a, b in zip(q, p, strict=True)) and any(a < b for a, b in zip(q, p, strict=True))

    lines = ["### Fixed weights whose mean point is better in every task", "",
             "| rule | in accuracies | in test losses |", "|---|---|---|"]  # fmt: skip
    for row in rows:
        counts = [sum(dominates(at(f, kind), at(row, kind)) for f in front) for kind in ("accuracy", "loss")]
        lines.append(f"| {row.label} | {counts[0]} of {len(front)} | {counts[1]} of {len(front)} |")
    return "\n".join(lines) + "\n"


def tables(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in out.iterdir() if path.is_dir() and path.name != "tables"):
        text = [f"# {folder.name}\n"]
        rules = rows_of(folder / "rules")
        fedhv = next((row for row in rules if row.label == "fedhv"), None)
        equal = next((row for row in rules if row.label == "fixed"), None)
        for part in PARTS:
            if part == "partitions":
                text += _partition_tables(folder / part)
                continue
            rows = [] if part == "tune" else rows_of(folder / part)
            if not rows:
                continue
            if part == "rules":
                text.append(table(rows, equal, "rules, against equal weights at FedHV's rates (fixed)"))
                text.append(table(rows, fedhv, "rules, against FedHV"))
            elif part == "tuned":
                own = next((row for row in rows if row.label == "fixed"), None)
                text.append(table(rows, own, "tuned rules, against tuned equal weights (fixed)"))
            elif part in ("average", "margins", "calibrations", "fresh") and fedhv is not None:
                text.append(table([fedhv, *rows], fedhv, part))
            else:
                text.append(table([*([] if equal is None else [equal]), *rows], equal, part))
        reference = _reference(folder / "rules")
        fixed = rows_of(folder / "fixed")
        if fixed and rules:
            text.append(beyond(fixed, rules))
        if reference is not None:
            text.append(phi_table([*rules, *fixed], reference))
        path = out / "tables" / f"{folder.name}.md"
        path.write_text("\n".join(text))
        print(path)


def _partition_tables(folder: Path) -> list[str]:
    """Over partitions: the mean over seeds of each partition is one number; differences are paired by partition."""
    by_rule: dict[str, dict[int, list[Run]]] = {}
    for place in sorted(folder.glob("seed*")):
        for row in rows_of(place):
            by_rule.setdefault(row.label, {})[int(place.name[4:])] = list(row.runs.values())
    seen = sorted({p for own in by_rule.values() for p in own})
    return [f"### partitions {', '.join(map(str, seen))}\n", _over(by_rule)] if seen else []


def _over(by_rule: dict[str, dict[int, list[Run]]]) -> str:
    from fedhv.support.statistics import Paired

    heads = ("rule", "MeanAcc %", "− fixed [95 %]", "WorstAcc %", "− fixed [95 %]", "partitions")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for rule, own in by_rule.items():
        cells = [rule]
        for _, key, digits in METRICS[:2]:
            means = {p: statistics.fmean(map(key, runs)) for p, runs in own.items()}
            base = {p: statistics.fmean(map(key, runs)) for p, runs in by_rule.get("fixed", {}).items()}
            differences = [means[p] - base[p] for p in sorted(means) if p in base]
            found = Paired.of(differences) if len(differences) > 1 and rule != "fixed" else None
            cells.append(f"{statistics.fmean(means.values()):.{digits}f}")
            cells.append("" if found is None else f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]")
        lines.append("| " + " | ".join([*cells, str(len(own))]) + " |")
    return "\n".join(lines) + "\n"


# --- the command line ---------------------------------------------------------------------------------------


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("settings", nargs="+", help="names of settings, or TOML files")
    runs.add_argument("--parts", default="rules,fixed,average,margins,fresh", type=lambda text: text.split(","))
    runs.add_argument("--seeds", default=[0, 1, 2, 3, 4], type=_numbers)
    runs.add_argument("--tune-seeds", default=[0], type=_numbers)
    runs.add_argument("--out", required=True)
    runs.add_argument("--data")
    runs.add_argument("--engine", default="auto")
    runs.add_argument("--device", default="auto")
    runs.add_argument("--precision", default="auto")
    runs.add_argument("--jobs", type=int)
    runs.add_argument("--set", action="append", default=[], help="section.key=value, for all settings")
    runs.add_argument("--budget", type=float, help="seconds; skip a part whose estimate is longer than the rest")
    runs.add_argument("--archive", help="write configurations, histories and summaries to this .tar.xz")
    runs.add_argument("--dry-run", action="store_true")
    runs.add_argument("--quiet", action="store_true")
    runs.set_defaults(call=run)
    shown = commands.add_parser("tables")
    shown.add_argument("--out", required=True)
    shown.set_defaults(call=tables)
    arguments = parser.parse_args()
    if hasattr(arguments, "settings"):
        for part in itertools.filterfalse(PARTS.__contains__, arguments.parts):
            parser.error(f"unknown part {part}; expected {', '.join(PARTS)}")
        arguments.settings_file = {load_setting(name).name: name for name in arguments.settings}
    arguments.call(arguments)


if __name__ == "__main__":
    main()
