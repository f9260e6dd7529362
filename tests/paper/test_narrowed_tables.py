"""A table of fewer rounds or of other seeds than the paper's says so below it."""

from pathlib import Path

import pytest

from fedhv.paper import Options, Selection, reproduce
from fedhv.paper.found import Found
from fedhv.paper.narrowed import narrowing
from fedhv.paper.plan import SETTINGS, PlannedRun, Variant

PAPERS = (0, 42, 2026)


def shown(*settings, seeds=PAPERS, rounds=None):
    runs = [PlannedRun(Variant(setting), "fedhv", seed, rounds) for setting in settings for seed in seeds]
    return [Found(run, Path(), "finished") for run in runs]


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (shown("multimnist"), ""),
        (shown("multimnist", rounds=200), ""),
        (shown("multimnist", seeds=(2026, 0, 42)), ""),
        ([], ""),
        (shown("multimnist", seeds=(0,), rounds=2), "Ours with 2 of 200 rounds and seed 0 only: not comparable."),
        (shown("multimnist", "celeba5-a", rounds=2), "Ours with 2 of 200 or 300 rounds: not comparable."),
        (
            shown("multimnist", "celeba5-a", rounds=300),
            "Ours with 300 instead of 200 rounds on multimnist: not comparable.",
        ),
        (shown("multimnist", seeds=(0, 42)), "Ours with seeds 0, 42 only: the paper's are of seeds 0, 42, 2026."),
        (shown("multimnist", seeds=(0, 1)), "Ours with seeds 0, 1: the paper's are of seeds 0, 42, 2026."),
    ],
)
def test_the_sentence_says_what_differs(runs, sentence):
    assert narrowing(runs) == sentence


@pytest.fixture
def options(six, tmp_path):
    return Options(tmp_path / "out", jobs=1, engine="sequential")


def captions(made):
    return {sheet.name: sheet.table.caption for o in made.outputs for sheet in o.sheets if sheet.table is not None}


def test_every_table_of_a_narrowed_reproduction_says_so_and_its_page_too(options):
    made = reproduce("main", options, Selection(("multimnist",), ("uniform", "fsmgda"), (0,), rounds=1))
    sentence = "Ours with 1 of 2 rounds and seed 0 only: not comparable."
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
    assert "not comparable" not in found["references"]
    assert "not comparable" in found["reference-diagnostics"]


def test_times_say_their_rounds_themselves(options):
    selection = Selection(("cifar10-mnist-b",), ("uniform",), PAPERS, rounds=1)
    caption = captions(reproduce("efficiency", options, selection))["efficiency"]
    assert caption.startswith("Wall-clock seconds of 1 rounds")


def test_the_papers_runs_need_no_such_sentence(options):
    found = captions(reproduce("main", options, Selection(("multimnist",), ("uniform",), PAPERS)))
    assert not any("Ours with" in caption for caption in found.values())


def test_runs_that_are_not_there_are_not_shown(options):
    reproduce("main", options, Selection(("multimnist",), ("uniform",), (0,)))
    made = reproduce("main", options, Selection(("multimnist",), ("uniform",), PAPERS), run=False)
    assert captions(made)["main"].startswith("Ours with seed 0 only: the paper's are of seeds 0, 42, 2026.")
