"""Units and links on the page: gigabytes where megabytes have four digits, figures where they were drawn."""

from __future__ import annotations

import re

import pytest
from problems import quadratic

from fedhv import compare
from fedhv.report import write_report
from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.diagnostics import costs as costs_table
from fedhv.report.payload import _table
from fedhv.report.sizes import megabyte_digits, size_text
from fedhv.report.study import read_study
from report.studies import write_study
from report.test_page import data_of


def costs(*megabytes):
    rows = tuple((words("FedHV"), Cell(f"{value:.1f}", value=value)) for value in megabytes)
    return _table(Table("costs", "Costs", "", (Column("Method", numeric=False), Column("MB", "Total", False)), (rows,)))


def test_megabytes_of_four_digits_are_gigabytes():
    made = costs(71_234.5, 1_500.0)
    assert [column["heading"] for column in made["columns"]] == ["Method", "GB ↓"]
    assert [row[1]["t"] for row in made["rows"]] == ["71.23", "1.50"]
    assert made["rows"][0][1]["v"] == 71234.5  # the order stays


def test_smaller_ones_stay_megabytes():
    made = costs(71_234.5, 999.0)
    assert made["columns"][1]["heading"] == "MB ↓"
    assert made["rows"][1][1]["t"] == "999.0"


def test_figures_of_a_report_are_linked_from_its_page(tmp_path, monkeypatch):
    drawn = [tmp_path / "curves.png", tmp_path / "curves.pdf", tmp_path / "plane.png"]
    monkeypatch.setattr("fedhv.report.writing._figures", lambda *_: (drawn, []))
    report = write_report([write_study(tmp_path / "study")])
    assert data_of(report.page.read_text(encoding="utf-8"))["figures"] == ["curves", "plane"]


@pytest.mark.parametrize(
    ("counts", "digits"),
    [
        ([110.8e6, 97e6], 1),
        ([1.2e6], 1),
        ([999_999, 4_000_000], 2),
        ([61_440], 3),
        ([1200, 71e9], 4),
        ([3], 6),
        ([], 1),
    ],
)
def test_megabytes_have_two_digits_of_the_smallest_number(counts, digits):
    assert megabyte_digits(counts, least=1) == digits
    assert megabyte_digits([0, *counts], least=1) == digits


@pytest.mark.parametrize(
    ("count", "text"), [(61_440, "61.44 kB"), (999_994, "999.99 kB"), (999_996, "1.00 MB"), (110.8e6, "110.80 MB")]
)
def test_one_number_of_bytes_has_its_own_unit(count, text):
    assert size_text(count) == text


def test_the_bytes_of_a_tiny_model_are_not_zero_in_any_table(tmp_path):
    found = compare(quadratic(), methods=["uniform"], seeds=[0], rounds=2, out=tmp_path / "study")
    sent = found.runs[0].summary.communication.total_bytes
    assert 100 < sent < 10_000
    digits = megabyte_digits([sent], 1)
    assert re.search(rf"\bMB\b.*\n.*\n.* {sent / 1e6:.{digits}f} ", found.table())
    table = costs_table(read_study([tmp_path / "study"]))
    columns = {column.full: i for i, column in enumerate(table.columns)}
    shown = [table.rows[0][columns[name]].plain for name in ("Per round Down MB", "Per round Up MB", "Total MB ↓")]
    assert all(float(text) > 0 for text in shown), shown
    assert float(shown[2]) == pytest.approx(sent / 1e6, rel=0.05)
