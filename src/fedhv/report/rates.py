"""The learning rates of a comparison: of every row, and a sentence for captions where they are not the same.

Rates decide how far a method gets. A table without them invites a reader to credit the method with what its rates did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedhv.report.groups import Group, SettingStudy, StudyData, setting_title
from fedhv.report.variants import shipped_rates, tuned_methods
from fedhv.runs.defaults import BASELINES
from fedhv.runs.record import Run
from fedhv.runs.summary import RATES
from fedhv.support.numbers import is_number
from fedhv.support.wording import joined

HEADING = "η_g/η_ℓ"
"""Server and local learning rate, as the paper orders them."""
UNKNOWN = "–"
LISTED_UP_TO = 6
"""Up to this number of methods a sentence has each with its rates; with more, each pair of rates with its methods."""


def pair_text(rates: tuple[float, float] | None) -> str:
    """Server and local learning rate: "1.2/0.3". A rate that was divided by the number of tasks may not end."""
    return UNKNOWN if rates is None else "/".join(f"{rate:.4g}" for rate in rates)


def rates_of(runs: Iterable[Run]) -> str:
    """The learning rates of some runs, "1.2/0.3"; several pairs if they differ."""
    found = []
    for run in runs:
        server, local = (run.parameters.get(name) for name in RATES)
        found.append(pair_text((server, local) if is_number(server) and is_number(local) else None))
    return ", ".join(dict.fromkeys(found)) or UNKNOWN


def group_rates(group: Group) -> str:
    """The learning rates of one line of a table or one curve of a figure."""
    return rates_of(run.record for run in group.runs)


def rates_sentence(rates: Mapping[str, str], untuned: Sequence[str] = (), setting: str = "") -> str:
    """What a reader has to know of the rates of methods that are compared; empty if they all have the same ones.

    Args:
        rates: The rates of every method, by the name that the table shows.
        untuned: The names of methods that a setting with rates for the others has none for.
        setting: Named in the sentence, for tables with several settings.
    """
    said = []
    where = f" in {setting}" if setting else ""
    if len(set(rates.values())) > 1:
        each = _each_rate(rates)
        said.append(
            f"Learning rates {HEADING} differ{where}: {each}. A difference between methods may be one of their rates."
        )
    tuned = [name for name in rates if name not in untuned]
    if len(untuned) > LISTED_UP_TO and tuned and len(tuned) < len(untuned):
        said.append(f"Only {joined(tuned)} {'has' if len(tuned) == 1 else 'have'} tuned rates{where or ' here'}.")
    elif untuned:
        said.append(f"{joined(untuned)} {'has' if len(untuned) == 1 else 'have'} no tuned rates{where or ' here'}.")
    return " ".join(said)


def _each_rate(rates: Mapping[str, str]) -> str:
    """Every method with its rates; with many methods every pair of rates with its methods, the most common first."""
    if len(rates) <= LISTED_UP_TO:
        return ", ".join(f"{name} {pair}" for name, pair in rates.items())
    names: dict[str, list[str]] = {}
    for name, pair in rates.items():
        names.setdefault(pair, []).append(name)
    common = sorted(names.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{pair} for {', '.join(of)}" for pair, of in common)


def untuned(methods: Mapping[str, str], rates: Mapping[str, str], setting: str) -> list[str]:
    """The names of methods that a shipped setting has no rates for, beside methods that it has rates for.

    A method that has other rates than those of the setting's methods was given them, perhaps by `fedhv tune`.

    Args:
        methods: The method of every name that a table shows.
        rates: The rates of every name.
        setting: The setting's name.
    """
    tuned, others = tuned_methods(setting), {pair_text(pair) for pair in shipped_rates(setting)}
    found = [
        name
        for name, method in methods.items()
        if method not in tuned and (method in BASELINES or rates[name] in others)
    ]
    return found if tuned and len(found) < len(methods) else []


def setting_sentence(setting: SettingStudy, named: bool = False) -> str:
    """The sentence for one setting of a report, with its name if it is `named`, and how runs were chosen."""
    differ = _rates_of_setting(setting, named)
    return " ".join(filter(None, (differ, *choices_of(setting))))


def study_sentence(study: StudyData) -> str:
    """The sentence for a table of all settings."""
    if len(study.settings) == 1:
        return setting_sentence(study.settings[0])
    unequal = [setting_title(setting.name) for setting in study.settings if _rates_of_setting(setting)]
    said = []
    if unequal:
        where = "every setting" if len(unequal) == len(study.settings) else joined(unequal)
        said.append(
            f"Learning rates {HEADING} differ between methods in {where} (see the table of learning rates). "
            "A difference between methods may be one of their rates."
        )
    for setting in study.settings:
        said += [f"{setting_title(setting.name)}: {how}" for how in choices_of(setting)]
    return " ".join(said)


def choices_of(setting: SettingStudy) -> list[str]:
    """How the shown runs were chosen, where they were."""
    roles = [run.role for group in setting.groups for run in group.counted]
    return list(dict.fromkeys(role.how for role in roles if role.how))


def _rates_of_setting(setting: SettingStudy, named: bool = False) -> str:
    groups = [group for group in setting.groups if group.counted]
    searched = {group.label for group in groups if group.role.part == "chosen"}
    rates = {group.label: group_rates(group) for group in groups}
    lacking = untuned({group.label: group.method for group in groups}, rates, setting.name)
    unsearched = [label for label in lacking if label not in searched]
    return rates_sentence(rates, unsearched, setting_title(setting.name) if named else "")


def every_rate(study: StudyData) -> str:
    """The rates of all methods of a table that has them side by side, where they are the same."""
    if len(study.settings) > 1:
        return ""
    pairs = {group_rates(group) for setting in study.settings for group in setting.groups if group.counted}
    return f"Learning rates {HEADING}: {pairs.pop()} for every method." if len(pairs) == 1 else ""
