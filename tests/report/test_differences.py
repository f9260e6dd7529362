"""Methods compared seed by seed."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from fedhv.report import read_study, tables
from fedhv.report.render import terminal
from report.studies import write_fixed, write_study


def differences(folder):
    """The table's rows as text, by the names of their methods; none where there is no table."""
    found = [table for table in tables(read_study([folder])) if table.name == "differences"]
    return {row[1].text: [cell.plain for cell in row[3:]] for table in found for row in table.rows}


def write(folder, method, accuracies):
    for seed, accuracy in accuracies.items():
        write_fixed(folder / f"{method}-{seed}", method, seed, accuracy, (0.5, 0.5))


def test_only_seeds_that_both_have_are_subtracted(tmp_path):
    # With seeds 1 and 2 MeanAcc differs by 1 and 3, WorstAcc by 2 and 4: 2 and 3 on average, both with a deviation of
    # √2, of which Student's quantile of one degree of freedom, 12.7062, and √2 runs make ± 12.7062.
    write(tmp_path, "uniform", {1: (80.0, 70.0), 2: (81.0, 71.0), 3: (10.0, 10.0)})
    write(tmp_path, "fedhv", {0: (99.0, 99.0), 1: (80.0, 72.0), 2: (83.0, 75.0)})
    assert differences(tmp_path) == {
        "FedHV − Uniform": ["+2.00 [−10.71, +14.71]", "+3.00 [−9.71, +15.71]", "2"],
    }


def test_equal_differences_leave_no_doubt(tmp_path):
    write(tmp_path, "uniform", {seed: (80.0 + seed, 70.0 + seed) for seed in range(3)})
    write(tmp_path, "fedhv", {seed: (81.0 + seed, 71.0 + seed) for seed in range(3)})
    table = next(table for table in tables(read_study([tmp_path])) if table.name == "differences")
    ((_, _, _, mean, worst, _),) = table.rows
    assert (mean.plain, mean.rank, worst.plain, worst.rank) == ("+1.00 [+1.00, +1.00]", 1, "+1.00 [+1.00, +1.00]", 1)


def test_what_may_be_chance_does_not_stand_out(tmp_path):
    write(tmp_path, "uniform", {0: (80.0, 70.0), 1: (80.0, 70.0), 2: (80.0, 70.0)})
    write(tmp_path, "fedhv", {0: (75.0, 73.0), 1: (80.0, 73.1), 2: (85.0, 73.2)})
    table = next(table for table in tables(read_study([tmp_path])) if table.name == "differences")
    ((_, _, _, mean, worst, _),) = table.rows
    assert (mean.rank, worst.rank) == (None, 1)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_numbers_stay_whole_on_narrow_terminals(tmp_path, width):
    for method, start in (("uniform", 20.0), ("fsmgda", 40.0), ("fedcmoo", 50.0), ("fedhv", 80.0)):
        write(tmp_path, method, {seed: (start + 1.37 * seed, start - 10.23 * seed) for seed in range(3)})
    table = next(table for table in tables(read_study([tmp_path])) if table.name == "differences")
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal(table))
    said = console.export_text()
    for row in table.rows:
        for number in (part.strip("[],") for cell in row[2:4] for part in cell.plain.split()):
            assert number in said


@pytest.mark.parametrize("seeds", [{0: (80.0, 70.0)}, {5: (80.0, 70.0), 6: (80.0, 70.0)}])
def test_without_two_common_seeds_there_is_no_table(tmp_path, seeds):
    write(tmp_path, "uniform", {0: (80.0, 70.0), 1: (81.0, 71.0)})
    write(tmp_path, "fedhv", seeds)
    assert differences(tmp_path) == {}


def test_values_that_are_not_finite_are_left_out(tmp_path):
    write(tmp_path, "uniform", dict.fromkeys(range(3), (80.0, 70.0)))
    write(tmp_path, "fedhv", {0: (80.0, 72.0), 1: (80.0, 72.0), 2: (math.nan, math.nan)})
    assert differences(tmp_path)["FedHV − Uniform"][-1] == "2"


def test_fedhv_comes_first_and_every_pair_once(tmp_path):
    for method in ("uniform", "fsmgda", "fedcmoo", "fedhv"):
        write(tmp_path, method, {0: (80.0, 70.0), 1: (81.0, 70.0)})
    assert list(differences(tmp_path)) == [
        "FedHV − Uniform",
        "FedHV − FSMGDA",
        "FedHV − FedCMOO",
        "FedCMOO − Uniform",
        "FedCMOO − FSMGDA",
        "FSMGDA − Uniform",
    ]


def test_methods_that_have_not_finished_are_not_compared(tmp_path):
    write_study(tmp_path / "a", ("fedhv", "fedcmoo"))
    write_study(tmp_path / "b", ("uniform",), finished=False, done=8)
    assert list(differences(tmp_path)) == ["FedHV − FedCMOO"]
