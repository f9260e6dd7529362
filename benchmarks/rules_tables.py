"""The tables of the study of rules: means over seeds, paired differences, Holm's correction, fronts, Φ."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rules_parts import GRADIENTS, LOSS_ONLY, PARTS, average_label, reference_of

from fedhv.methods.knobs import KNOBS
from fedhv.runs.record import SUMMARY, Run, read_run
from fedhv.runs.reference import Reference


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
    """The finished runs of a part; the paper's order of rules, then by the knob's value."""
    found: dict[str, dict[int, Run]] = {}
    for path in sorted(folder.glob(f"**/{SUMMARY}")):
        if "calibration" in path.relative_to(folder).parts:
            continue
        run_ = read_run(path.parent)
        inside = path.parent.parent.relative_to(folder).as_posix()
        found.setdefault(_label(run_, inside), {})[run_.seed] = run_
    order = (*LOSS_ONLY, *GRADIENTS)

    def place(label: str) -> tuple[int, float, str]:
        first = next(iter(found[label].values()))
        known = order.index(first.method) if first.method in order else len(order)
        return known, knob_value(first) or 0.0, label

    return [Row(label, found[label]) for label in sorted(found, key=place)]


def _label(run: Run, inside: str) -> str:
    """The rule, with its weights or its knob's value where a part has it several times."""
    if inside == ".":
        return run.method
    if inside.startswith("fixed-preferences-") and len(run.parameters["preferences"]) <= 3:
        return f"fixed {', '.join(f'{p:g}' for p in run.parameters['preferences'])}"
    value = knob_value(run)
    if value is not None and inside.startswith(f"{run.method}-{KNOBS[run.method].key}-"):
        return f"{run.method}, {KNOBS[run.method].key} {value:g}"
    return inside


def knob_value(run: Run) -> float | None:
    """The value of the rule's knob, if it has one."""
    knob = KNOBS.get(run.method)
    return None if knob is None else float(run.parameters[knob.key])


def unfinished(folder: Path, rows: Sequence[Row]) -> str:
    """A line about runs that were begun and have no result, because they diverged or were cut off."""
    begun = {path.parent for path in folder.glob("**/config.toml") if "calibration" not in path.parts[-3:]}
    names = sorted(path.relative_to(folder).as_posix() for path in begun if not (path / SUMMARY).exists())
    return f"Without a result (diverged or cut off): {', '.join(names)}.\n" if names and rows else ""


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


def differences(pairs: Sequence[tuple[Row, Row]], key: Callable[[Run], float], digits: int) -> list[str]:
    """First minus second row, paired by seed, with the 95 % interval; bold below 5 % after Holm's correction for all.

    Nothing for a pair with fewer than two common seeds.
    """
    from fedhv.support.statistics import Paired

    found = []
    for row, other in pairs:
        values, base = row.values(key), other.values(key)
        found.append([values[seed] - base[seed] for seed in sorted(values) if seed in base])
    several = [each for each in found if len(each) > 1]
    adjusted = iter(holm([p_value(each) for each in several]))
    texts = []
    for each in found:
        if len(each) < 2:
            texts.append("")
            continue
        pair = Paired.of(each)
        text = f"{pair.mean:+.{digits}f} [{pair.low:+.{digits}f}, {pair.high:+.{digits}f}]"
        texts.append(f"**{text}**" if next(adjusted) < 0.05 else text)
    return texts


def mean_weights(row: Row) -> str:
    """The weights' means over rounds and seeds; of many tasks the smallest and the largest."""
    runs = [run_.rounds for run_ in row.runs.values()]
    means = [statistics.fmean(column) for column in zip(*(each.weights for run in runs for each in run), strict=True)]
    return ", ".join(f"{w:.2f}" for w in means) if len(means) <= 3 else f"{min(means):.3f} to {max(means):.3f}"


def table(rows: Sequence[Row], against: Row | None, title: str) -> str:
    """Mean ± deviation over seeds, and the paired difference to `against` with its 95 % interval and Holm's p."""
    from fedhv.support.statistics import Spread

    metrics = main_metric(rows)
    lines, cells = [f"### {title}", ""], {id(row): [row.label] for row in rows}
    heads = ["rule"]
    for name, key, digits in metrics:
        heads.append(name)
        for row in rows:
            cells[id(row)].append(Spread.of(list(row.values(key).values())).text(digits))
        if against is None:
            continue
        heads.append(f"− {against.label} [95 %]")
        others = [row for row in rows if row.label != against.label]
        texts = differences([(row, against) for row in others], key, digits)
        found = {id(row): text for row, text in zip(others, texts, strict=True)}
        for row in rows:
            cells[id(row)].append(found.get(id(row), ""))
    heads += ["mean weights", "seeds"]
    for row in rows:
        cells[id(row)] += [mean_weights(row), str(len(row.runs))]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cells[id(row)]) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def averages_table(rules: Sequence[Row], constant: Sequence[Row]) -> str:
    """Constant weights equal to a rule's average, compared with the rule: is it the adaptation or the average?"""
    by_label = {row.label: row for row in constant}
    labels = {row.label: average_label(row.label) for row in rules}
    pairs = [(by_label[labels[row.label]], row) for row in rules if labels[row.label] in by_label]
    metrics = main_metric(constant)
    columns = [differences(pairs, key, digits) for _, key, digits in metrics]
    heads = ["rule", *(f"{name}, constant − rule [95 %]" for name, _, _ in metrics), "constant weights", "seeds"]
    lines = ["### Constant weights equal to the average of a rule, against the rule", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for (fixed, rule), *cells in zip(pairs, *columns, strict=True):
        lines.append("| " + " | ".join([rule.label, *cells, mean_weights(fixed), str(len(fixed.runs))]) + " |")
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


def tuning_table(path: Path) -> str:
    """What a tuning chose for every rule, and the score of the setting's own values."""
    found = json.loads(path.read_text())
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for trial in found["trials"]:
        by_rule.setdefault(trial["method"], []).append(trial)
    name = "main metrics" if found["by"] == "main" else found["by"].replace("_", " ")
    lines = ["### Values found by tuning", "", found["how"], "",
             f"| rule | client rate | server rate | knob | {name} | at the setting's values | diverged |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for rule, trials in by_rule.items():
        best = next(trial for trial in trials if trial["chosen"])
        values = dict(best["values"])
        rates = [f"{values.pop(key):g}" for key in ("local_lr", "server_lr")]
        knob = ", ".join(f"{key} {value:g}" for key, value in values.items())
        scores = [_score(best), _score(trials[0], best["rounds"])]
        diverged = sum(trial["score"] is None for trial in trials)
        lines.append("| " + " | ".join([rule, *rates, knob, *scores, f"{diverged} of {len(trials)}"]) + " |")
    return "\n".join(lines) + "\n"


def _score(trial: dict[str, Any], rounds: int | None = None) -> str:
    """A trial's score; with its rounds where these are not `rounds`, because the search gave it up earlier."""
    if trial["score"] is None:
        return "diverged"
    fewer = rounds is not None and trial["rounds"] != rounds
    return f"{trial['score']:#.4g}" + (f" (after {trial['rounds']} rounds)" if fewer else "")


AGAINST_FEDHV = ("average", "margins", "calibrations", "fresh")
"""Parts whose runs are variants of FedHV."""


def write_tables(out: Path, to: Path) -> None:
    """One Markdown file for every setting below OUT."""
    to.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in out.iterdir() if path.is_dir() and path.name != "tables"):
        path = to / f"{folder.name}.md"
        path.write_text("\n".join([f"# {folder.name}\n", *_tables_of(folder)]))
        print(path)


def _tables_of(folder: Path) -> list[str]:
    text = []
    found = {part: rows_of(folder / part) for part in PARTS if part not in ("tune", "partitions")}
    rules, fixed = found["rules"], found["fixed"]
    fedhv = next((row for row in rules if row.label == "fedhv"), None)
    equal = next((row for row in rules if row.label == "fixed"), None)
    for part in PARTS:
        if part == "partitions":
            text += _partition_tables(folder / part)
            continue
        if part == "tune":
            text += [tuning_table(path) for path in [folder / part / "tune.json"] if path.exists()]
            continue
        rows = found[part]
        if not rows:
            continue
        if part == "rules":
            text.append(table(rows, equal, "rules, against equal weights at FedHV's rates (fixed)"))
            text.append(table(rows, fedhv, "rules, against FedHV"))
        elif part == "averages":
            text.append(averages_table(rules, rows))
        elif part == "tuned":
            own = next((row for row in rows if row.label == "fixed"), None)
            text.append(table(rows, own, "tuned rules, against tuned equal weights (fixed)"))
        elif part in AGAINST_FEDHV and fedhv is not None:
            text.append(table([fedhv, *rows], fedhv, part))
        else:
            text.append(table([*([] if equal is None else [equal]), *rows], equal, part))
        text += [line for line in [unfinished(folder / part, rows)] if line]
    if fixed and rules:
        text.append(beyond(fixed, [*rules, *found["knobs"], *found["gradients"]]))
    reference = reference_of(folder / "rules")
    if reference is not None:
        text.append(phi_table([*rules, *fixed], reference))
    return text


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
