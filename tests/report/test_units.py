"""Units and links on the page: gigabytes where megabytes have four digits, figures where they were drawn."""

from __future__ import annotations

from fedhv.report import write_report
from fedhv.report.cells import Cell, Column, Table, words
from fedhv.report.payload import _table
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
