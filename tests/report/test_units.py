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
from fedhv.report.sizes import byte_unit
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
    ("counts", "name", "shown"),
    [([999_999, 4], "kB", [999.999, 0.004]), ([1_000_000, 4], "MB", [1.0, 0.000004]), ([], "kB", [])],
)
def test_a_table_has_one_unit_of_bytes_which_its_largest_number_chooses(counts, name, shown):
    unit = byte_unit(counts)
    assert unit.name == name
    assert [unit.of(count) for count in counts] == shown


def test_the_bytes_of_a_tiny_model_are_not_zero_in_any_table(tmp_path):
    found = compare(quadratic(), methods=["uniform"], seeds=[0], rounds=2, out=tmp_path / "study")
    sent = found.runs[0].summary.communication.total_bytes
    assert 0 < sent < 50_000  # less than 0.05 MB
    assert re.search(rf"\bkB\b.*\n.*\n.* {sent / 1000:.1f} ", found.table())
    table = costs_table(read_study([tmp_path / "study"]))
    in_bytes = {(column.group, column.heading): i for i, column in enumerate(table.columns) if "B" in column.heading}
    assert list(in_bytes) == [
        ("Per round", "Down kB"), ("Per round", "Up kB"), ("Calibration", "kB"), ("Total", "kB")
    ]  # fmt: skip
    assert table.rows[0][in_bytes["Total", "kB"]].number == sent / 1000
    assert "1 kB = 1000 bytes" in table.caption
