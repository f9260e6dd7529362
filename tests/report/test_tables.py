"""Tables, character by character, from histories that are fixed by hand.

After a wanted change: FEDHV_WRITE_GOLDEN=1 pytest tests/report/test_tables.py, then read the difference.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from fedhv.report import read_study, tables
from fedhv.report.cells import Cell, Column, Table, ranked, words
from fedhv.report.latex import TEXT_WIDTH, Print, fitted, text_width, widths
from fedhv.report.render import comma_separated, html, latex, markdown, terminal
from fedhv.support.statistics import Spread
from report.studies import write_fixed, write_run, write_study

GOLDEN = Path(__file__).parent / "golden"
FORMATS = {"md": markdown, "csv": comma_separated, "tex": latex}


@pytest.fixture(scope="module")
def two_settings(tmp_path_factory):
    """Two settings and an ablation: ties by rounding, exact ties, a missing method, one seed only."""
    folder = tmp_path_factory.mktemp("golden") / "study"
    # On the first setting 86.32 is the rounded mean of two methods (86.3233 and 86.3200): only one is best.
    accuracies = {
        "uniform": [(92.0, 86.31), (92.2, 86.32), (92.4, 86.34)],
        "fsmgda": [(90.0, 85.0), (91.0, 84.0), (92.0, 86.0)],
        "fedcmoo": [(93.0, 80.0), (93.0, 80.0), (93.0, 80.0)],
        "fedhv": [(93.0, 86.31), (93.0, 86.32), (93.0, 86.33)],
    }
    losses = {"uniform": (0.25, 0.5), "fsmgda": (0.5, 0.5), "fedcmoo": (0.25, 0.5), "fedhv": (0.24, 0.5)}
    for method, runs in accuracies.items():
        for seed, accuracy in zip((0, 42, 2026), runs, strict=True):
            write_fixed(folder / "a" / f"{method}-{seed}", method, seed, accuracy, losses[method], setting="alpha",
                        seconds=0.5 + 0.001 * seed)  # fmt: skip
    for method, accuracy in {"uniform": (50.0, 40.0), "fedhv": (60.0, 30.0)}.items():
        write_fixed(folder / "b" / f"{method}-0", method, 0, accuracy, (1.0, 1.5), setting="beta_2")
    for steps in (5, 20):
        write_fixed(folder / "k" / f"fedhv-{steps}", "fedhv", 0, (93.0, 80.0 + steps), (0.25, 0.5), setting="alpha",
                    local_steps=steps)  # fmt: skip
    return {table.name: table for table in tables(read_study([folder]))}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    "name", ["main", "loss-hv", "differences", "per-task", "last-ten", "ablations", "reference", "costs"]
)
def test_tables_are_what_they_were(two_settings, name, ending):
    text = FORMATS[ending](two_settings[name])
    path = GOLDEN / f"{name}.{ending}"
    if os.environ.get("FEDHV_WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def by_seed(**methods):
    return {name: dict(enumerate(values)) for name, values in methods.items()}


def test_best_is_what_is_told_apart_from_every_other_method():
    cells = ranked(by_seed(a=[86.3, 86.4, 86.5], b=[86.0, 86.1, 86.2], c=[80.0, 81.0, 82.0]), higher=True, digits=2)
    assert [cells[name].rank for name in "abc"] == [1, None, None]


def test_a_tie_crowns_none():
    cells = ranked(by_seed(a=[86.3, 80.0, 90.0], b=[86.0, 80.1, 89.0], c=[60.0, 55.0, 63.0]), higher=True, digits=2)
    assert [cells[name].rank for name in "abc"] == [2, 2, None]  # the best mean, and what is level with it


def test_the_best_mean_may_be_level_with_the_third():
    # b is behind a by the same in every seed; c varies so much that nothing is known of it
    cells = ranked(by_seed(a=[9.0, 8.0, 7.0], b=[8.0, 7.0, 6.0], c=[9.0, 0.0, 9.0]), higher=True, digits=2)
    assert [cells[name].rank for name in "abc"] == [2, None, 2]


def test_one_seed_ranks_nothing():
    cells = ranked(by_seed(a=[1.0], b=[2.0]), higher=False, digits=2)
    assert [cells[name].rank for name in "ab"] == [None, None]
    apart = ranked({"a": {0: 1.0, 1: 1.0}, "b": {2: 5.0, 3: 5.0}}, higher=False, digits=2)
    assert [apart[name].rank for name in "ab"] == [None, None]  # no seed in common


def test_lower_may_be_better():
    cells = ranked(by_seed(a=[1.0, 1.1], b=[2.0, 2.1]), higher=False, digits=2)
    assert [cells[name].rank for name in "ab"] == [1, None]


def test_nothing_is_best_without_a_competitor():
    assert ranked(by_seed(a=[1.0, 2.0]), higher=True, digits=2)["a"].rank is None


def test_what_diverged_is_not_ranked():
    cells = ranked(by_seed(a=[float("nan"), 1.0], b=[1.0, 1.1], c=[2.0, 2.1], d=[]), higher=True, digits=2)
    assert [cells[name].rank for name in "abcd"] == [None, None, 1, None]
    assert cells["a"].plain == "nan"
    assert cells["d"].plain == "–"


@pytest.mark.parametrize(
    ("cell", "plain", "in_latex"),
    [
        (Cell(spread=Spread(90.165, 0.18, 3)), "90.17 ± 0.18", r"$90.17\pm0.18$"),
        (Cell(spread=Spread(90.0, None, 1), rank=1), "90.00", r"\textbf{\boldmath$90.00$}"),
        (Cell(spread=Spread(2.2e16, 3e14, 3), rank=2), "(2.20 ± 0.03)e16", r"\underline{$(2.20\pm0.03)\times10^{16}$}"),
        (Cell(spread=Spread(2.2e16, None, 1)), "2.20e16", r"$2.20\times10^{16}$"),
        (Cell(spread=Spread(1.5, 0.0, 3), exact=True, digits=1), "1.5", "$1.5$"),
    ],
)
def test_numbers_are_written_as_the_paper_writes_them(two_settings, cell, plain, in_latex):
    assert cell.plain == plain
    table = two_settings["main"]
    shown = latex(type(table)("t", "T", "", table.columns[:1], (((cell,),),)))
    assert f"{in_latex} \\\\" in shown


def cells_of(line):
    """How many columns a line of LaTeX fills."""
    spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line))
    return line.replace(r"\&", "").count("&") + 1 + spans


def test_latex_rows_have_as_many_cells_as_there_are_columns(two_settings):
    for table in two_settings.values():
        text = latex(table)
        for part in text.split(r"\begin{tabular}")[1:]:
            wanted = len(re.sub(r"p\{\d+pt\}", "p", re.match(r"\{(.*)\}\n", part)[1]))
            rows = [line for line in part.split(r"\midrule")[1].splitlines() if line.endswith(r"\\")]
            assert {cells_of(line) for line in rows} == {wanted}
        assert text.count("{") == text.count("}")


def test_latex_tables_fit_the_width_of_the_text(two_settings, tmp_path):
    tasks = [f"a task with a long name {i}" for i in range(9)]
    for setting in ("cifar10-mnist-a", "cifar10-mnist-b", "multimnist"):
        methods = ["uniform", "fsmgda", "fedcmoo", "fedhv", "a-method-of-ones-own"]
        write_study(tmp_path / setting, methods, (0, 1, 2), setting=setting, tasks=tasks)
        write_study(tmp_path / f"{setting}-k", ["fedhv"], (0, 1), setting=setting, tasks=tasks, local_steps=5)
    for table in (*two_settings.values(), *tables(read_study([tmp_path]))):
        size, parts = fitted(table)
        for part in parts:
            assert sum(widths(part, size)) <= TEXT_WIDTH, table.name
        shown = [column for part in parts for column in part.columns]
        assert set(shown) == set(table.columns)  # nothing is left out


@pytest.mark.parametrize("text", ["90.17 0.18", "MultiMNIST", "Minimum report slack", "FedHV (K = 20)", "[6.1,0.5]"])
def test_estimated_widths_are_not_below_those_of_computer_modern(text):
    """Against the font itself, which matplotlib has."""
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    font = FT2Font(str(Path(get_data_path(), "fonts", "ttf", "cmr10.ttf")))
    ems = sum(_advance(font, c) for c in text if c != " ") + 0.333 * text.count(" ")
    assert ems <= text_width(text, Print("", 0, 1.0)) <= 1.25 * ems


def _advance(font, character):
    font.set_size(1000, 72)
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 1000


def test_the_papers_settings_have_its_names_and_its_order(tmp_path):
    for setting in ("alpha", "celeba5-a", "cifar10-mnist-b", "multimnist"):
        write_study(tmp_path / setting, setting=setting)
    table = next(table for table in tables(read_study([tmp_path])) if table.name == "main")
    assert [row[0].plain for row in table.rows] == ["MultiMNIST", "CelebA5-A", "CIFAR10–MNIST-B", "alpha"]
    assert r"\textsc{CIFAR10--MNIST-B}" in latex(table)
    assert "cifar10-mnist-b," in comma_separated(table)  # programs know settings by their own names


def test_every_comparison_shows_the_rates_of_its_rows(tmp_path):
    rates = {"server_lr": 1.6, "local_lr": 0.45}
    write_study(tmp_path / "a", ["uniform"], parameters=rates)
    write_study(tmp_path / "a", ["fedhv"])
    one = {table.name: table for table in tables(read_study([tmp_path]))}
    write_study(tmp_path / "b", ["uniform", "fedhv"], setting="second")
    both = {table.name: table for table in tables(read_study([tmp_path]))}
    for name in ("main", "loss-hv", "last-ten", "differences", "costs"):
        for table in (one[name], both[name]):
            for form in (markdown, comma_separated, latex, html, lambda table: on_terminal(table, 140)):
                assert "1.6/0.45" in form(table), name
    for name in ("main", "loss-hv", "last-ten", "per-task", "differences"):
        assert "Learning rates η_g/η_ℓ differ: Uniform 1.6/0.45, FedHV 1.2/0.3." in one[name].caption
        assert "differ between methods in digits (see the table of learning rates)" in both[name].caption
    assert "1.6/0.45" in markdown(both["learning-rates"])
    assert "learning-rates" not in one


def test_names_are_escaped_in_every_format(tmp_path):
    name = "<script>alert(1)</script>|a_b"
    write_study(tmp_path, ("fedhv", name.replace("/", "∕")), (0,), setting=name, tasks=(name, "=1+1"))
    for table in tables(read_study([tmp_path])):
        assert "<script>" not in markdown(table).replace("<u>", "").replace("</u>", "")
        assert "<script>" not in html(table)
        assert "a_b" not in latex(table)
        rows = list(csv.reader(io.StringIO(comma_separated(table))))
        assert len({len(row) for row in rows}) == 1
        assert not any(value.startswith("=") for row in rows for value in row)
        terminal(table)


def on_terminal(table, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal(table))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 90, 100, 110])
def test_no_column_of_a_wide_table_is_cut(tmp_path, width):
    table = next(t for t in tables(read_study([write_study(tmp_path)])) if t.name == "costs")
    text = on_terminal(table, width)
    assert max(map(cell_len, text.splitlines())) <= width
    shown = text.split()
    for column in table.columns:
        for word in f"{column.group} {column.heading}".split():
            assert word in shown
    assert shown.count("Calibration") == sum(column.group == "Calibration" for column in table.columns)


def test_a_narrow_terminal_folds_numbers_and_listings_rather_than_names(two_settings):
    names = ("alpha", "FedHV", "Local steps", "K = 10", "K = 20")
    lines = on_terminal(two_settings["ablations"], 80).splitlines()
    assert all(any(name in line for line in lines) for name in names)
    text = on_terminal(two_settings["reference"], 80)
    assert all(name in text for name in ("FedHV (K = 5)", "FedHV (K = 20)", "beta_2"))
    assert "…" not in text
    assert sum("89.66" in line for line in lines) == 1  # the number as such is whole, too
    tight = on_terminal(one_column((words("a name in words"), Cell("12345 ± 6789"))), 25)
    assert "a name in words" in tight
    assert all(part in tight for part in ("12345", "6789"))


def test_names_that_leave_numbers_no_room_are_wrapped(two_settings):
    tight = on_terminal(one_column((words("a name in words"), Cell("123456789"))), 25)
    assert "123456789" in tight  # a torn number is another number
    assert "a name in" in tight
    text = on_terminal(one_column((words("a name of many words"), Cell("123"))), 20)
    assert "123" in text
    assert "many" in text
    assert "a name of many words" not in text


def test_csv_is_unrounded(two_settings):
    (row, *_) = csv.DictReader(io.StringIO(comma_separated(two_settings["main"])))
    assert float(row["Uniform Worst mean"]) == pytest.approx(86.32333333333334, abs=1e-12)
    assert row["Uniform Worst runs"] == "3"


def test_unfinished_runs_count_only_where_none_has_finished(tmp_path):
    write_study(tmp_path, ("uniform",), rounds=12)
    write_run(tmp_path / "late", method="uniform", seed=7, rounds=12, done=4)
    write_run(tmp_path / "going", method="fedhv", rounds=12, done=4)
    table = tables(read_study([tmp_path]))[0]
    rows = {row[1].text: row[-1].text for row in table.rows}
    assert rows == {"Uniform": "2", "FedHV*": "1"}
    assert "has not finished" in table.caption


def captions(*folders):
    return {table.name: table.caption for table in tables(read_study(folders))}


def test_a_caption_lists_seeds_only_where_every_line_has_them(tmp_path):
    write_study(tmp_path / "a", ("uniform", "fedhv"), (0, 42))
    assert "deviation over seeds 0, 42." in captions(tmp_path)["main"]
    write_study(tmp_path / "k", ("fedhv",), (0, 7), local_steps=5)
    found = captions(tmp_path)
    assert "deviation over seeds 0, 42." in found["main"]  # which does not show the ablation
    assert "deviation over seeds 0, 42;" in found["costs"]
    assert "deviation over the runs of each line." in found["ablations"]
    write_study(tmp_path / "more", ("uniform",), (2026,))
    found = captions(tmp_path)
    assert all("over the runs of each line" in found[name] for name in ("main", "loss-hv", "per-task", "costs"))


def test_one_run_for_each_line_has_no_deviation(tmp_path):
    write_study(tmp_path / "a", ("uniform",), (3,))
    assert "(%), seed 3." in captions(tmp_path)["main"]
    write_study(tmp_path / "b", ("fedhv",), (4,))
    assert "(%), one run for each line." in captions(tmp_path)["main"]


def test_last_ten_averages_the_last_ten(tmp_path):
    write_run(tmp_path / "r", rounds=30, every=2)
    study = read_study([tmp_path])
    values = study.runs[0].evaluations.values("mean_accuracy")
    table = next(table for table in tables(study) if table.name == "last-ten")
    assert len(values) == 15
    assert table.rows[0][3].spread.mean == pytest.approx(values[-10:].mean())


def one_column(*cells, heading="Minimum report slack"):
    return Table("t", "T", "", (Column("Method", numeric=False), Column(heading)), (tuple(cells),))


def test_csv_has_numbers_as_numbers_with_all_their_digits():
    table = one_column(
        (words("-a"), Cell("-0.0123", value=-0.0123456)),
        (words("b"), Cell("3/12", value=3)),
        (words("c"), Cell("-inf", value=-math.inf)),
        (words("d"), Cell("–")),
    )
    assert comma_separated(table).splitlines()[1:] == ["'-a,-0.0123456", "b,3/12", "c,-inf", "d,–"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\n=", " ="])
def test_no_name_or_heading_of_a_csv_is_a_formula_or_breaks_its_line(start):
    name = f"{start}HYPERLINK(1)"
    for cell in (Cell(spread=Spread(-1.5, None, 1)), Cell("1", value=1)):
        table = Table("t", "T", "", (Column(name, numeric=False), Column("a")), (((words(name), cell),),))
        headings, row = csv.reader(io.StringIO(comma_separated(table)))
        assert row[0] == "'" + re.sub(r"\s", " ", name)
        assert headings[0] == f"'{name.strip()}"
        assert float(row[1]) == cell.number
    headings, _ = csv.reader(io.StringIO(comma_separated(one_column((words("a"), cell), heading=f"{name} 2"))))
    assert headings[1].startswith("'")


@pytest.mark.parametrize("name", ["[CLS]", "*", " [x", "[1cm]"])
def test_a_name_is_no_argument_of_the_line_above_it_in_latex(name):
    columns = (Column(name, numeric=False), Column("a"))
    rows = ((words(name), Cell("1")), (words(f"{name} 2"), Cell("2")))
    lines = [line for line in latex(Table("t", "T", "", columns, (rows,))).splitlines() if line.endswith(r"\\")]
    assert lines == [rf"{{}}{name} & a \\", rf"{{}}{name} & 1 \\", rf"{{}}{name} 2 & 2 \\"]


def test_runs_that_are_not_finite_still_make_tables(tmp_path):
    for run in (write_run(tmp_path / str(seed), seed=seed) for seed in (0, 1)):
        (run / "summary.json").unlink()
    history = tmp_path / "0" / "history.jsonl"
    *lines, last = history.read_text().splitlines()
    last = json.loads(last)
    last["evaluation"]["hypervolume"] = float("nan")
    history.write_text("\n".join([*lines, json.dumps(last)]) + "\n")
    table = next(table for table in tables(read_study([tmp_path])) if table.name == "loss-hv")
    assert table.rows[0][4].plain == "nan"
    for form in (*FORMATS.values(), html, terminal):
        form(table)


def test_every_table_says_which_of_its_values_are_those_of_fewer_rounds(tmp_path):
    """The table of ablations ranked them without a word, and that of tasks showed them so."""
    for steps in (5, 10, 20):
        done = 4 if steps == 20 else None
        for seed in (0, 1):
            write_run(tmp_path / f"{steps}-{seed}", method="uniform", seed=seed, local_steps=steps, done=done)
    made = {table.name: table for table in tables(read_study([tmp_path]))}
    assert [row[3].text for row in made["ablations"].rows] == ["K = 5", "K = 10", "K = 20*"]
    assert made["ablations"].caption.endswith(
        "Uniform (K = 20)* has not finished: values of the last evaluation so far."
    )
    assert "has not finished" not in made["main"].caption  # which has the usual K only
    write_run(tmp_path / "going", method="fedhv", done=4)
    made = {table.name: table for table in tables(read_study([tmp_path]))}
    for name in ("main", "per-task", "last-ten"):
        assert "FedHV* has not finished: values of the last evaluation so far." in made[name].caption
