"""A table of fewer rounds or of other seeds than the paper's says so below it."""

import pytest

from fedhv.paper import Options, Selection, reproduce
from fedhv.paper.plan import SETTINGS


@pytest.mark.parametrize(
    ("selection", "beginning"),
    [
        (Selection(), ""),
        (Selection(("multimnist",), seeds=(2026, 0, 42)), ""),
        (Selection(seeds=(0,), rounds=2), "Ours with 2 rounds and seeds 0; the paper's runs have"),
        (Selection(seeds=(0, 1)), "Ours with seeds 0, 1; the paper's runs have"),
        (Selection(rounds=9), "Ours with 9 rounds; the paper's runs have"),
    ],
)
def test_the_sentence_says_what_was_asked_for(selection, beginning):
    assert selection.difference.startswith(beginning)
    assert bool(selection.difference) is bool(beginning)


@pytest.fixture
def options(six, tmp_path):
    return Options(tmp_path / "out", jobs=1, engine="sequential")


def captions(made):
    return {sheet.name: sheet.table.caption for o in made.outputs for sheet in o.sheets if sheet.table is not None}


def test_every_table_of_a_narrowed_reproduction_says_so_and_its_page_too(options):
    made = reproduce("main", options, Selection(("multimnist",), ("uniform", "fsmgda"), (0,), rounds=1))
    sentence = "Ours with 1 rounds and seeds 0;"
    assert all(caption.startswith(sentence) for caption in captions(made).values())
    assert (options.out / "tables/narrowed/main.md").read_text().count(sentence) == 2


def test_tables_of_a_part_leave_those_of_the_whole_alone(options):
    reproduce("main", options, Selection(("multimnist",), ("uniform", "fsmgda"), (0,)))
    reproduce("main", options, run=False)
    whole = {path.name: path.read_text() for path in (options.out / "tables").glob("main*")}
    assert set(whole) == {"main.md", "main.csv", "main-rankings.csv"}
    reproduce("main", options, Selection(("multimnist",), ("uniform",), (0,)), run=False)
    assert {path.name: path.read_text() for path in (options.out / "tables").glob("main*")} == whole


@pytest.mark.parametrize(
    ("selection", "whole"),
    [
        (Selection(), True),
        (Selection(tuple(reversed(SETTINGS)), None, (2026, 42, 0)), True),
        (Selection(methods=("fedhv", "fedcmoo", "uniform", "fsmgda")), True),
        (Selection(seeds=(0, 42)), False),
        (Selection(rounds=200), False),
        (Selection(methods=("fedhv",)), False),
    ],
)
def test_what_is_whole_does_not_depend_on_how_it_is_spelled(selection, whole):
    assert selection.whole is whole


def test_rankings_of_an_earlier_command_do_not_stay(options):
    narrowed = options.out / "tables/narrowed/main-rankings.csv"
    reproduce("main", options, Selection(("multimnist",), ("uniform", "fsmgda"), (0,)))
    assert narrowed.exists()
    reproduce("main", options, Selection(("multimnist",), ("uniform",), (0,)), run=False)
    assert not narrowed.exists()


def test_references_are_those_of_the_rule_however_few_the_rounds(options):
    found = captions(reproduce("references", options, Selection(("multimnist",), None, (0,), rounds=1)))
    assert "Ours with" not in found["references"]
    assert "Ours with" in found["reference-diagnostics"]
