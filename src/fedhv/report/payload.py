"""The data of the page: a study as JSON, rounded, and thinned only where it would not fit in otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedhv._version import __version__
from fedhv.protocol.evaluation import AGGREGATES, MainScore
from fedhv.report.cells import Table
from fedhv.report.comparison import held_out_sentence, rounds_sentence
from fedhv.report.groups import Group, SettingStudy, StudyData
from fedhv.report.palette import Style, front_styles, spare_styles, styles, task_styles
from fedhv.report.rates import group_rates, setting_sentence
from fedhv.report.runpayload import clock_mates, constant, main_payload, number, run_payload
from fedhv.report.scores import common_main, mains_of
from fedhv.report.tables import tables
from fedhv.report.variants import factor, factor_order, frozen, hyper_parameters, value_text
from fedhv.report.verdict import METRICS, highlights, verdicts

BUDGET = 900_000
"""The largest number of values, at about two letters each when compressed, in a page of less than 3 MB."""


def payload(study: StudyData, figures: Sequence[str] = ()) -> dict[str, Any]:
    """All data of the page; `figures` are the names of the files beside it."""
    looks, step = styles(study), thinning(study)
    several = len(study.settings) > 1
    varied = sorted({key for setting in study.settings for key in _varied(setting)}, key=factor_order)
    return {
        "title": study.title,
        "version": __version__,
        "notes": list(study.notes),
        "thinned": step,
        "figures": list(figures),
        "styles": [_style(style) for style in spare_styles()],
        "metrics": [{"key": key, "title": title, "unit": unit} for key, title, unit, _, _ in METRICS],
        "settings": [_setting(study, setting, looks, step, varied) for setting in study.settings],
        "tables": [_table(table) for table in tables(study)] if several else [],
        "fronts": [_front(front) for front in study.beside.fronts],
        "paper": list(study.beside.paper),
    }


def thinning(study: StudyData, budget: int = BUDGET) -> int:
    """The interval of shown rounds, chosen so that the values fit into the budget."""
    count = 0
    for run in study.runs:
        m = run.rounds.weights.shape[1]
        kinds = sum(not constant(values) for values in (run.rounds.weights, run.rounds.slack))
        count += len(run.rounds) * (1 + kinds * m) + len(run.evaluations) * (len(AGGREGATES) + 3 + 2 * m)
    return max(1, math.ceil(count / budget))


def _setting(
    study: StudyData, setting: SettingStudy, looks: dict[str, Style], step: int, varied: Sequence[str]
) -> dict[str, Any]:
    """One setting; `varied` are the hyper-parameters in which runs of any setting differ."""
    index = {id(run): i for i, run in enumerate(setting.runs)}
    compared = {id(group) for group in setting.groups}
    group_of = {id(run): group for group in setting.all_groups for run in group.runs}
    mains = mains_of(setting)
    return {
        "name": setting.name,
        "tasks": list(setting.tasks),
        "taskStyles": [_style(style) for style in task_styles(setting.tasks)],
        "mains": None if mains is None else [_main(score) for score in mains],
        "highlights": list(highlights(setting)),
        "verdicts": verdicts(setting),
        "rates": " ".join(filter(None, (setting_sentence(setting), _judged_on(setting)))),
        "hyper": [{"key": key, "symbol": factor(key).symbol, "title": factor(key).title} for key in _varied(setting)],
        "labels": _labels(setting),
        "series": [
            {
                "label": group.label,
                "method": group.method,
                "compared": id(group) in compared,
                "runs": [index[id(run)] for run in group.runs],
                "floor": group.runs[0].record.parameters.get("floor"),
                "preferred": group.runs[0].record.parameters.get("preferences") is not None,
                "rates": group_rates(group),
                "clients": _clients(group),
                **_style(looks[group.label]),
            }
            for group in setting.all_groups
        ],
        "runs": [
            run_payload(
                run,
                group_of[id(run)],
                step,
                clock_mates(run, setting.runs),
                {key: value_text(values[key]) for key in varied if key in values},
            )
            | ({} if mains is None else main_payload(run, step, common_main(mains)))
            for run in setting.runs
            for values in [hyper_parameters(run)]
        ],
        "tables": [_table(table) for table in tables(replace(study, settings=(setting,)))],
    }


def _judged_on(setting: SettingStudy) -> str:
    """On which examples the page's scores are, where they are not test examples throughout."""
    shown = [group for group in setting.groups if group.counted]
    return " ".join(filter(None, (held_out_sentence(shown), rounds_sentence(shown))))


def _main(score: MainScore) -> dict[str, Any]:
    return {"name": score.name, "higher": score.higher, "digits": score.digits}


def _varied(setting: SettingStudy) -> list[str]:
    """The hyper-parameters in which runs of the setting differ, whatever their method; the paper's first."""
    seen: dict[str, set[str]] = {}
    for run in setting.runs:
        for key, value in hyper_parameters(run).items():
            if not key.startswith("methods.") or key.rpartition(".")[2] not in ("server_lr", "local_lr"):
                seen.setdefault(key, set()).add(frozen(value))
    return sorted((key for key, values in seen.items() if len(values) > 1), key=factor_order)


def _labels(setting: SettingStudy) -> dict[str, Any] | None:
    """How many labels there are, where some are missing."""
    known = next((run for run in setting.runs if run.labels), None)
    if known is None:
        return None
    return {"tasks": list(known.labels), "examples": known.examples, **_by_client(known.client_labels)}


def _by_client(rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Every client's examples, and its labels of every task; None where that is not known."""
    return {
        "clients": [list(row[1:]) for row in rows] or None,
        "sizes": [row[0] for row in rows] or None,
    }


def _clients(group: Group) -> list[dict[str, Any]] | None:
    """Scores over clients, averaged over the runs of a group."""
    runs = [run for run in group.counted if run.over_clients]
    if not runs:
        return None
    made = []
    for i, first in enumerate(runs[0].over_clients):
        own = [run.over_clients[i] for run in runs if len(run.over_clients) > i]
        averaged = {
            key: number(float(np.mean([each[key] for each in own])), 6) if all(each[key] is not None for each in own)
            else None
            for key in ("mean", "worst_decile", "deviation")
        }  # fmt: skip
        digits = 1 if first["score"] == "accuracy" else 3
        made.append({key: first[key] for key in ("task", "score", "clients")} | averaged | {"digits": digits})
    return made


def _front(front: dict[str, Any]) -> dict[str, Any]:
    looks = front_styles([method["method"] for method in front["methods"]])
    methods = [m | {"style": _style(look)} for m, look in zip(front["methods"], looks, strict=True)]
    return front | {"methods": methods}


def _table(table: Table) -> dict[str, Any]:
    """A table; megabytes as gigabytes where all of them have at least four digits."""
    scale = [_gigabytes(table, i) for i in range(len(table.columns))]
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "columns": [
            {
                "heading": (c.heading.replace("MB", "GB") if large else c.heading) + c.arrow,
                "group": c.group,
                "numeric": c.numeric,
                "higher": c.higher,
            }
            for c, large in zip(table.columns, scale, strict=True)
        ],
        "rows": [
            [
                {
                    "t": _in_gigabytes(cell.number) if large and cell.number is not None else cell.plain,
                    "v": number(cell.number, 12),
                    "r": cell.rank if (cell.rank or 9) < 3 else None,
                }
                for cell, large in zip(row, scale, strict=True)
            ]
            for row in table.rows
        ],
    }


def _gigabytes(table: Table, i: int) -> bool:
    found = [row[i].number for row in table.rows]
    known = [value for value in found if value is not None]
    return "MB" in table.columns[i].heading.split() and bool(known) and min(known) >= 1000


def _in_gigabytes(megabytes: float) -> str:
    return f"{megabytes / 1000:.2f}"


def _style(style: Style) -> dict[str, Any]:
    return {"colour": style.colour, "dash": list(style.dash)}
