"""The learning rates of a comparison: of every row, and a sentence for captions where they are not the same.

Rates decide how far a method gets. A table without them invites a reader to credit the method with what its rates did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedhv.report.groups import Group, SettingStudy, StudyData
from fedhv.report.variants import tuned_methods, value_text
from fedhv.runs.record import Run

HEADING = "η_g/η_ℓ"
"""Server and local learning rate, as the paper orders them."""
UNKNOWN = "–"


def rates_of(runs: Iterable[Run]) -> str:
    """The learning rates of some runs, "1.2/0.3"; several pairs if they differ."""
    found = []
    for run in runs:
        pair = [run.parameters.get(name) for name in ("server_lr", "local_lr")]
        found.append(UNKNOWN if None in pair else "/".join(value_text(value) for value in pair))
    return ", ".join(dict.fromkeys(found)) or UNKNOWN


def group_rates(group: Group) -> str:
    """The learning rates of one line of a table or one curve of a figure."""
    return rates_of(run.record for run in group.runs)


def rates_sentence(compared: Mapping[str, Iterable[Run]], setting: str = "") -> str:
    """What a reader has to know of the rates of methods that are compared; empty if they all have the same ones.

    Args:
        compared: The runs of every method, by the name that the table shows.
        setting: Named in the sentence, for tables with several settings.
    """
    rates = {name: rates_of(runs) for name, runs in compared.items()}
    said = []
    where = f" in {setting}" if setting else ""
    if len(set(rates.values())) > 1:
        each = ", ".join(f"{name} {pair}" for name, pair in rates.items())
        said.append(
            f"Learning rates {HEADING} differ{where}: {each}. A difference between methods may be one of their rates."
        )
    untuned = _untuned(compared)
    if untuned:
        said.append(f"{_and(untuned)} {'has' if len(untuned) == 1 else 'have'} no tuned rates{where or ' here'}.")
    return " ".join(said)


def setting_sentence(setting: SettingStudy, named: bool = False) -> str:
    """The sentence for one setting of a report; with its name if it is `named`."""
    groups = [group for group in setting.groups if group.counted]
    compared = {group.label: [run.record for run in group.runs] for group in groups}
    return rates_sentence(compared, setting.name if named else "")


def study_sentence(study: StudyData) -> str:
    """The sentence for a table of all settings."""
    several = len(study.settings) > 1
    said = [setting_sentence(setting, named=several) for setting in study.settings]
    if not several:
        return "".join(said)
    unequal = [setting.name for setting, text in zip(study.settings, said, strict=True) if text]
    if not unequal:
        return ""
    where = "every setting" if len(unequal) == len(study.settings) else _and(unequal)
    return (
        f"Learning rates {HEADING} differ between methods in {where} (see the table of learning rates). "
        "A difference between methods may be one of their rates."
    )


def _untuned(compared: Mapping[str, Iterable[Run]]) -> list[str]:
    """The methods that a shipped setting has no rates for, beside methods that it has rates for."""
    found = []
    for name, runs in compared.items():
        first = next(iter(runs), None)
        tuned = tuned_methods(first.setting) if first is not None else frozenset()
        if first is not None and tuned and first.method not in tuned:
            found.append(name)
    return found if len(found) < len(compared) else []


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
