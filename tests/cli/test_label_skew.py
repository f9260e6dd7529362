"""`fedhv show` and the tables of a study state the label skew over clients."""

from __future__ import annotations

import re

import pytest

from fedhv.problem.skew import label_skew
from fedhv.report import read_study, tables
from fedhv.runs.resolve import resolve


def skew_line(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("# Label skew over clients")]
    return line


def test_the_recorded_skew_is_that_of_the_setting(command):
    """The setting whose data are in the package; the others are recorded by the same script."""
    expected = [number for each in label_skew(resolve("digits")[1]) for number in (each.found, each.random)]
    line = skew_line(command("show", "digits").out)
    assert [float(number) for number in re.findall(r"\d\.\d\d\d", line)] == pytest.approx(expected, abs=0.0006)


def test_every_shipped_setting_has_a_record(command):
    for name in ("multimnist", "mnist-fmnist", "cifar10-mnist-a", "cifar10-mnist-b", "celeba5-a", "celeba5-b"):
        assert "(0." in skew_line(command("show", name, "--data", "nowhere").out)


def test_other_clients_have_another_skew(command):
    iid = command("show", "digits", "--set", "federation.partition=iid").out
    assert skew_line(iid) != skew_line(command("show", "digits").out)


def test_a_study_has_a_table_of_the_skew(command, setting_file, tmp_path, forked):
    command("compare", setting_file, "--methods", "uniform", "--out", tmp_path / "study", "--seeds", "0,1")
    (table,) = [each for each in tables(read_study([tmp_path / "study"])) if each.name == "label-skew"]
    found = [float(row[2].text) for row in table.sections[0]]
    assert found == [round(each.found, 3) for each in label_skew(resolve(str(setting_file))[1])]
