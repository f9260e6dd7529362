"""Whether our runs are those of the paper: a sentence below tables of fewer rounds or of other seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedhv.paper.found import Found
from fedhv.paper.output import Sheet
from fedhv.runs.config import load_setting
from fedhv.runs.defaults import SEEDS

NO_RUNS = "references"
"""The table of calibrated references, which no choice of rounds or seeds changes."""
SAYS_ROUNDS = "efficiency"
"""The experiment whose caption says how many rounds were timed."""


def marked(experiment: str, sheets: Iterable[Sheet], found: Sequence[Found]) -> list[Sheet]:
    """The tables of an experiment, with the sentence where there is one."""
    sentence = narrowing([each for each in found if each.finished], with_rounds=experiment != SAYS_ROUNDS)
    return [sheet if sheet.name == NO_RUNS else _with(sheet, sentence) for sheet in sheets]


def narrowing(shown: Sequence[Found], with_rounds: bool = True) -> str:
    """For example "Ours with 2 of 200 rounds and seed 0 only: not comparable."; empty where nothing differs.

    Fewer seeds alone make a mean less certain, not another quantity.
    """
    rounds = _rounds(shown) if with_rounds else ""
    seeds = _seeds(shown)
    if not rounds and not seeds:
        return ""
    verdict = "not comparable" if rounds else f"the paper's are of seeds {_list(SEEDS)}"
    return f"Ours with {' and '.join(filter(None, (rounds, seeds)))}: {verdict}."


def _rounds(shown: Sequence[Found]) -> str:
    """All runs of a reproduction have the same number of rounds, or each that of its setting."""
    asked = {each.run.variant.setting: each.run.rounds for each in shown if each.run.rounds is not None}
    papers = {setting: load_setting(setting).training.rounds for setting in asked}
    other = [setting for setting in asked if asked[setting] != papers[setting]]
    if not other:
        return ""
    ours, theirs = asked[other[0]], sorted({papers[setting] for setting in other})
    fewer = ours is not None and ours < theirs[0]
    where = "" if len(other) == len(asked) else f" on {_list(other)}"
    return f"{ours} {'of' if fewer else 'instead of'} {' or '.join(map(str, theirs))} rounds{where}"


def _seeds(shown: Sequence[Found]) -> str:
    seeds = list(dict.fromkeys(each.run.seed for each in shown))
    if not seeds or set(seeds) == set(SEEDS):
        return ""
    only = " only" if set(seeds) < set(SEEDS) else ""
    return f"seed{'s' if len(seeds) > 1 else ''} {_list(seeds)}{only}"


def _with(sheet: Sheet, sentence: str) -> Sheet:
    if sheet.table is None or not sentence:
        return sheet
    return replace(sheet, table=replace(sheet.table, caption=f"{sentence} {sheet.table.caption}"))


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
