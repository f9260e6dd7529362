"""Ours beside the paper's: arithmetic by hand, rankings and ties."""

import csv
import io
from types import SimpleNamespace

import pytest

from fedhv.paper.comparison import PaperMetric, agreement, entries, paper_ranks, ranking
from fedhv.paper.measures import weights
from fedhv.paper.published import Printed
from fedhv.paper.render import order, rankings_sheet, values_sheet
from fedhv.report.render import markdown
from fedhv.support.csvfile import as_csv
from fedhv.support.statistics import Spread

UP, DOWN = PaperMetric("mean_accuracy", "MeanAcc %", True), PaperMetric("mean_loss", "MeanLoss", False, 3)


def contest(ours, paper, metric=UP):
    printed = {who: Printed.of(text) for who, text in paper.items()}
    seeds = {who: dict(enumerate(values or ())) for who, values in ours.items()}
    return entries(("s",), metric, {who: values and Spread.of(values) for who, values in ours.items()}, printed, seeds)


def test_mean_deviation_and_difference_are_those_worked_out_by_hand():
    (entry,) = contest({"a": [90.0, 91.0, 95.0]}, {"a": "90.50 ± 0.20"})
    assert entry.ours.mean == 92.0
    assert entry.ours.deviation == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert entry.difference == pytest.approx(1.5)
    assert entry.digits == 2


def test_one_run_has_no_deviation_and_none_no_difference():
    one, none = contest({"a": [1.0], "b": None}, {"a": "2.00", "b": "3.00"})
    assert (one.ours.deviation, one.difference) == (None, -1.0)
    assert (none.ours, none.difference, none.our_rank, none.paper_rank) == (None, None, None, 1)


def test_what_diverged_has_no_place():
    found = contest({"a": [float("nan")], "b": [1.0], "c": [2.0]}, {"a": "3.00", "b": "2.00", "c": "1.00"})
    assert [entry.our_rank for entry in found] == [None, 2, 1]
    assert ranking(found).ours == (("c",), ("b",))
    assert ranking(found).paper == (("b",), ("c",))


@pytest.mark.parametrize(
    ("values", "higher", "expected"),
    [
        ({"a": "2.00", "b": "3.00", "c": "1.00"}, True, {"a": 2, "b": 1, "c": 3}),
        ({"a": "2.00", "b": "3.00", "c": "1.00"}, False, {"a": 2, "b": 3, "c": 1}),
        ({"a": "2.00", "b": "2.00", "c": "1.00"}, True, {"a": 1, "b": 1, "c": 3}),
        ({"a": "2.00 second", "b": "2.00 best", "c": "1.00"}, True, {"a": 2, "b": 1, "c": 3}),
        ({"a": "2.00 second", "b": "2.00 best", "c": "2.00"}, False, {"a": 2, "b": 1, "c": 3}),
    ],
)
def test_the_papers_ranks_are_by_means_and_then_by_marks(values, higher, expected):
    assert paper_ranks({who: Printed.of(text) for who, text in values.items()}, higher) == expected


@pytest.mark.parametrize(
    ("ours", "paper", "expected"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}, "yes"),
        ({"a": 1, "b": 3, "c": 2}, {"a": 1, "b": 2, "c": 3}, "best"),
        ({"a": 2, "b": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}, "no"),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 2}, "yes"),  # the paper does not tell b from c
        ({"a": 1, "b": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}, "yes"),  # we do not tell a from b
        ({"a": 1, "b": 1, "c": 3}, {"a": 3, "b": 2, "c": 1}, "no"),
        ({"a": 2, "b": 1, "c": 3}, {"a": 1, "b": 1, "c": 3}, "yes"),
        ({"a": 3, "b": 1, "c": 2}, {"a": 1, "b": 1, "c": 3}, "best"),
    ],
)
def test_orders_agree_unless_a_pair_stands_the_other_way_round(ours, paper, expected):
    assert agreement(ours, paper) == expected


def test_our_ranking_is_by_unrounded_means():
    of = contest({"a": [90.0004], "b": [90.0001]}, {"a": "90.00 second", "b": "90.00 best"})
    found = ranking(of)
    assert found.ours == (("a",), ("b",))
    assert found.paper == (("b",), ("a",))
    assert found.agreement == "no"


def test_lower_losses_are_better():
    found = ranking(contest({"a": [0.3], "b": [0.2]}, {"a": "0.400", "b": "0.100"}, DOWN))
    assert found.ours == found.paper == (("b",), ("a",))
    assert found.agreement == "yes"


def test_only_competitors_that_both_have_are_ranked():
    of = contest({"a": [3.0], "b": None, "c": [1.0]}, {"a": "1.00", "b": "9.00", "c": "0.50"})
    found = ranking(of)
    assert found.paper == (("a",), ("c",))
    assert found.agreement == "yes"
    assert ranking(contest({"a": [1.0], "b": None}, {"a": "1.00", "b": "2.00"})) is None


def test_ties_share_a_place():
    assert order((("fedhv", "uniform"), ("fsmgda",))) == "FedHV = Uniform, FSMGDA"


# --- as tables --------------------------------------------------------------------------------------------


def test_a_table_shows_ours_the_papers_and_the_difference_with_the_best_bold():
    of = contest({"fedhv": [75.0, 76.0], "uniform": [75.0, 75.5]}, {"fedhv": "75.46 ± 0.15 best",
                 "uniform": "75.33 ± 0.20 second"})  # fmt: skip
    sheet = values_sheet("main", "Main", "Caption.", ("Setting", "Method"), of)
    text = markdown(sheet.table)
    # Ours are not told apart by two seeds; the paper's marks are the paper's.
    assert "| s | FedHV | <u>75.50 ± 0.71</u> | **75.46 ± 0.15** | +0.04 |" in text
    assert "| s | Uniform | <u>75.25 ± 0.35</u> | <u>75.33 ± 0.20</u> | −0.08 |" in text
    (row, _) = csv.DictReader(io.StringIO(as_csv(sheet.records)))
    assert row["setting"] == "s"
    assert float(row["ours_mean"]) == 75.5
    assert float(row["difference"]) == pytest.approx(0.04)
    assert (row["ours_runs"], row["ours_rank"], row["paper_rank"]) == ("2", "1", "1")


def test_ours_is_bold_where_seeds_tell_it_apart():
    of = contest({"fedhv": [76.0, 77.1], "uniform": [75.0, 76.0]}, {"fedhv": "75.46 ± 0.15", "uniform": "75.33 ± 0.20"})
    text = markdown(values_sheet("main", "Main", "Caption.", ("Setting", "Method"), of).table)
    assert "| FedHV | **76.55 ± 0.78** |" in text
    assert "| Uniform | 75.50 ± 0.71 |" in text


def test_rankings_are_counted():
    of = contest({"fedhv": [2.0], "uniform": [1.0]}, {"fedhv": "2.00 best", "uniform": "1.00 second"})
    of += contest({"fedhv": [2.0], "uniform": [1.0]}, {"fedhv": "2.000 second", "uniform": "1.000 best"}, DOWN)
    of += contest({"fedhv": [1.0], "uniform": [2.0]}, {"fedhv": "2.00 best", "uniform": "1.00 second"},
                  PaperMetric("hypervolume", "HV", True))  # fmt: skip
    sheet = rankings_sheet("main-rankings", "Rankings", ("Setting", "Method"), of)
    assert "in 2 of 3 rankings" in sheet.table.caption
    assert [record["agree"] for record in sheet.records] == ["yes", "yes", "no"]
    assert sheet.records[2] == {
        "setting": "s", "metric": "hypervolume", "ours": "uniform, fedhv", "paper": "fedhv, uniform", "agree": "no"
    }  # fmt: skip


def test_weights_have_every_round_of_every_run():
    def found(seed, rounds):
        played = [SimpleNamespace(number=t + 1, weights=(0.5, 0.5)) for t in range(rounds)]
        summary = SimpleNamespace(tasks=[SimpleNamespace(name="a"), SimpleNamespace(name="b")])
        return SimpleNamespace(run=SimpleNamespace(seed=seed), kept=SimpleNamespace(rounds=played, summary=summary))

    rows = weights([found(0, 2), found(1, 3)])
    assert [(row["round"], row["task"]) for row in rows] == [(t, task) for t in (1, 2, 3) for task in "ab"]
    assert (rows[-1]["seed 0"], rows[-1]["seed 1"]) == (None, 0.5)
