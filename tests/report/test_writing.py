"""`fedhv report`: what is written where, what is said, and what is left alone."""

from __future__ import annotations

import sys

import pytest

from fedhv.report import write_report
from fedhv.support.errors import InputError
from report.studies import write_run, write_study


def test_a_report_has_tables_figures_and_a_page(command, tmp_path):
    study = write_study(tmp_path / "study", rounds=4)
    outcome = command("report", study, "--jobs", 1)
    assert outcome.code == 0
    report = study / "report"
    assert (report / "index.html").is_file()
    assert {path.suffix for path in (report / "tables").iterdir()} == {".md", ".csv", ".tex"}
    figures = {path.name for path in (report / "figures").iterdir()}
    assert {"curves.png", "curves.pdf", "labels.png", "examples.pdf"} <= figures
    assert "### Mean and worst accuracy" in (report / "tables.md").read_text()
    assert "MeanAcc %" in outcome.out
    assert str(report / "index.html") in outcome.out
    assert "figures (PNG, PDF)" in outcome.out
    page, *_ = (line for line in outcome.err.splitlines() if "written" in line)
    assert page == f"The page is written: {report / 'index.html'}"  # before the tables and figures
    assert "part 2 of 2" in outcome.err
    *_, page, _, figures = outcome.out.splitlines()
    assert page.split() == ["the", "page", str(report / "index.html")]
    assert figures.split() == ["the", "figures", str(report / "figures")]


def test_what_is_missing_is_said_on_the_terminal_too(command, tmp_path):
    write_run(tmp_path / "study" / "[bold]x", rounds=12, done=4)
    outcome = command("report", tmp_path / "study", "--no-figures")
    assert "[bold]x has not finished: 4 of 12 rounds" in outcome.out
    assert not (tmp_path / "study" / "report" / "figures").exists()


def test_a_report_can_be_made_again_and_forgets_what_is_gone(tmp_path):
    study = write_study(tmp_path / "study")
    out = tmp_path / "out"
    write_report([study], out, figures=False)
    stale = out / "tables" / "ablations.tex"
    stale.write_text("old")
    kept = out / "notes.txt"
    kept.write_text("mine")
    write_report([study], out, figures=False)
    assert not stale.exists()
    assert kept.read_text() == "mine"


def test_a_report_is_no_run_of_the_next_report(tmp_path):
    study = write_study(tmp_path / "study")
    first = write_report([study], figures=False)
    second = write_report([study], figures=False)
    assert (first.files, first.notes) == (second.files, second.notes)


def test_the_same_study_gives_the_same_files(tmp_path):
    study = write_study(tmp_path / "study")
    a = write_report([study], tmp_path / "a", figures=False)
    b = write_report([study], tmp_path / "b", figures=False)
    for one, other in zip(a.files, b.files, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("what", ["run", "file", "others"])
def test_folders_of_something_else_are_never_written_to(tmp_path, what):
    study = write_study(tmp_path / "study")
    out = tmp_path / "out"
    if what == "run":
        out = study / "fedhv-seed0"
    elif what == "file":
        out.write_text("x")
    else:
        out.mkdir()
        (out / "index.html").write_text("<html>somebody's page</html>")
    before = sorted(out.iterdir()) if out.is_dir() else out.read_text()
    with pytest.raises(InputError, match=r"--out|should be a folder"):
        write_report([study], out)
    assert (sorted(out.iterdir()) if out.is_dir() else out.read_text()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "Found no such folder"),
        (["empty"], "Found none"),
        (["study", "empty"], "--out"),
        (["broken"], "not valid TOML"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command, tmp_path, arguments, message):
    write_study(tmp_path / "study")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.toml").write_text("= ")
    outcome = command("report", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_several_folders_go_where_one_says(command, tmp_path):
    write_study(tmp_path / "a", ("fedhv",))
    write_study(tmp_path / "b", ("uniform",))
    assert command("report", "a", "b", "--out", "both", "--no-figures", "--quiet").out == ""
    assert "<h1>a, b</h1>" in (tmp_path / "both" / "index.html").read_text()


def test_a_missing_matplotlib_is_found_before_anything_is_written(command, monkeypatch, tmp_path):
    study = write_study(tmp_path / "study", rounds=2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = command("report", study)
    assert (refused.code, "--no-figures" in refused.err) == (2, True)
    assert not (study / "report").exists()
    assert command("report", study, "--no-figures").code == 0


def test_the_page_is_written_before_figures_and_progress_is_shown(tmp_path):
    said = []

    def progress(text):
        said.append((text, (tmp_path / "r" / "index.html").exists()))

    write_report([write_study(tmp_path / "study", rounds=4)], tmp_path / "r", figures=False, progress=progress)
    assert [text for text, _ in said] == [
        "4 runs read", f"The page is written: {tmp_path / 'r' / 'index.html'}", "7 tables are written"
    ]  # fmt: skip
    assert [there for _, there in said] == [False, True, True]


def test_the_terminal_says_how_to_read_the_tables(command, tmp_path):
    write_study(tmp_path / "s", ["uniform"], parameters={"server_lr": 1.6, "local_lr": 0.45})
    write_study(tmp_path / "s", ["fedhv"])
    outcome = command("report", tmp_path / "s", "--no-figures")
    said = " ".join(outcome.out.split())
    assert "Learning rates η_g/η_ℓ differ: Uniform 1.6/0.45, FedHV 1.2/0.3." in said
    assert "Bold is best: the paired 95 % interval over seeds" in said
