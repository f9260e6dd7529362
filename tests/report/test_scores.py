"""Tables of main metrics: relative to single-task training, per task, over clients; accuracies stay the paper's."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

import pytest
from mixed import CHANGES, mixed

import fedhv
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.report.payload import payload
from fedhv.report.relative import changes, delta_m, mean_ranks, worst_change
from fedhv.report.study import read_study
from fedhv.report.summaries import summary_table
from fedhv.report.tables import tables
from fedhv.report.writing import write_report
from fedhv.runs.defaults import BASELINES


def scored(auc, rmse):
    return Evaluation.of(
        [TaskScore("kind", 50.0, 1.0, {"roc_auc": auc}), TaskScore("stay", 50.0, 1.0, {"rmse": rmse}, ("rmse",))]
    )


def test_changes_have_the_sign_of_the_metrics_direction():
    found = changes(scored(0.9, 8.0), scored(0.75, 10.0))
    assert found == pytest.approx([20.0, 20.0])
    assert delta_m(scored(0.9, 12.0), scored(0.75, 10.0)) == pytest.approx(0.0)
    assert worst_change(scored(0.9, 12.0), scored(0.75, 10.0)) == pytest.approx(-20.0)
    other = Evaluation.of([TaskScore("kind", 50.0, 1.0), TaskScore("stay", 50.0, 1.0)])
    assert changes(scored(0.9, 8.0), other) is None


def test_ranks_are_means_over_tasks_and_equal_scores_share_theirs():
    found = mean_ranks({"a": scored(0.9, 1.0), "b": scored(0.8, 2.0), "c": scored(0.8, 0.5)})
    assert found == {"a": (1 + 2) / 2, "b": (2.5 + 3) / 2, "c": (2.5 + 1) / 2}


def test_a_score_that_is_not_defined_has_the_last_rank():
    found = mean_ranks({"a": scored(0.9, 1.0), "b": scored(math.nan, 2.0), "c": scored(0.8, math.nan)})
    assert found == {"a": (1 + 1) / 2, "b": (3 + 2) / 2, "c": (2 + 3) / 2}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores") / "study"
    override = [*CHANGES, "evaluation.keep=best"]
    methods = [fedhv.FedHV(reference=(9.0, 9.0)), fedhv.Uniform()]
    return fedhv.compare(
        mixed(), methods, [0, 1], rounds=3, baselines=BASELINES, override=override, out=folder, engine="sequential"
    )


def test_the_printed_table_has_the_main_metrics_and_the_change_to_single_tasks(study):
    text = study.table()
    head = next(line for line in text.splitlines() if "method" in line)
    assert re.split(r"\s{2,}", head.strip()) == [
        "method", "η_g/η_ℓ", "Δm % ↑", "worst % ↑", "rank ↓", "kind roc_auc ↑", "stay rmse ↓", "MB", "s"
    ]  # fmt: skip
    names = [line.split()[0] for line in text.splitlines() if " ± " in line]
    assert names == ["fedhv", "uniform", *BASELINES, "mean"]
    single = next(line for line in text.splitlines() if line.strip().startswith("single-task"))
    assert single.split()[1:7] == ["1/0.05", "0.00", "±", "0.00", "0.00", "±"]


def test_delta_m_of_the_table_is_worked_out_by_seed(study):
    summaries = {(run.method, run.seed): run.summary for run in study}
    mean = sum(delta_m(summaries["fedhv", seed], summaries["single-task", seed]) for seed in (0, 1)) / 2
    line = next(line for line in study.table().splitlines() if line.strip().startswith("fedhv"))
    assert float(line.split()[2]) == pytest.approx(mean, abs=0.006)


def test_a_study_without_single_tasks_has_ranks_alone(study):
    from fedhv.report.compared import Study

    text = Study(tuple(run for run in study if run.method not in BASELINES)).table()
    assert "Δm" not in text
    assert "--baselines single-task" in text
    assert "rank ↓" in text


def test_reports_have_them_in_every_format(study, tmp_path):
    found = {table.name: table for table in tables(read_study([study.folder]))}
    assert {"relative", "main-metrics", "over-clients"} <= set(found)
    assert not {"main", "per-task", "last-ten", "differences"} & set(found), "accuracies do not judge these tasks"
    written = write_report([study.folder], tmp_path / "report", figures=False)
    folder = written.folder / "tables"
    assert "roc\\_auc $\\uparrow$" in (folder / "main-metrics.tex").read_text()
    assert "rmse ↓" in (folder / "main-metrics.md").read_text()
    assert "worst" in (folder / "relative.csv").read_text().lower()
    unknown = {path.name for path in folder.glob("*.tex") if not path.read_text().isascii()}
    assert unknown == set(), "LaTeX has no Δ without its command"
    over = [[cell.plain for cell in row] for row in found["over-clients"].rows]
    assert {row[3] for row in over} == {"FedHV", "Uniform", "single-task", "local"}


def test_final_numbers_are_those_of_the_kept_model_on_the_test_examples(study):
    table = next(table for table in tables(read_study([study.folder])) if table.name == "main-metrics")
    kind = {column.heading: cell for column, cell in zip(table.columns, table.rows[0], strict=True)}
    mean = sum(run.tasks[0].main.value for run in study if run.method == "fedhv") / 2
    assert kind["FedHV"].number == pytest.approx(mean)
    assert kind["local"].rank is None


def test_one_runs_table_shows_directions_and_clients(study):
    from rich.console import Console

    console = Console(width=160, record=True, file=io.StringIO())
    console.print(summary_table(study[0].summary))
    text = console.export_text()
    assert "rmse ↓" in text
    assert "accuracy" not in text
    assert "the best on validation" in text
    assert "roc_auc at 4 clients: mean" in text


def test_progress_names_the_metric(study):
    assert study[0].summary.brief.startswith("kind roc_auc 0.")
    assert "stay rmse" in repr(study[0])


def test_final_numbers_are_those_of_the_kept_model_on_all_held_out_examples(tmp_path):
    """Here rounds and final numbers have the same examples, and the kept model is not the last one."""
    held = [*CHANGES, "evaluation.keep=best", "evaluation.on=validation"]
    loud = fedhv.Uniform(local_lr=0.8)
    runs = fedhv.compare(mixed(metrics=False), [loud], [1], rounds=8, override=held, out=tmp_path, engine="sequential")
    (run,) = runs
    assert run.rounds[-1].evaluation.mean_accuracy != run.mean_accuracy
    found = {table.name: table for table in tables(read_study([tmp_path]))}
    assert run.mean_accuracy in [cell.number for cell in found["main"].rows[0]]
    said = "Scores are those on the examples that clients hold out, not on the test examples."
    assert said in found["main"].caption
    assert payload(read_study([tmp_path]))["settings"][0]["rates"].endswith(said)


def test_tables_of_clients_that_evaluate_alone_say_that_there_are_no_test_examples(tmp_path):
    whole = mixed(metrics=False)
    alone = replace(whole, test=None, name="alone", validation=whole.clients)
    kwargs = {"rounds": 1, "override": ["training.local_steps=1"], "engine": "sequential", "quiet": True}
    fedhv.compare(alone, ["uniform"], [1], out=tmp_path / "alone", **kwargs)
    study = read_study([tmp_path])
    said = "Scores are those on the examples that clients hold out: there are no test examples."
    assert said in {table.name: table.caption for table in tables(study)}["main"]
    assert payload(study)["settings"][0]["rates"] == said
    fedhv.compare(mixed(metrics=False), ["uniform"], [1], out=tmp_path / "tested", **kwargs)
    caption = {table.name: table.caption for table in tables(read_study([tmp_path]))}["main"]
    assert "Scores of alone are those on the examples that clients hold out" in caption


def test_a_table_over_rounds_says_which_examples_they_are_evaluated_on(tmp_path):
    fedhv.compare(mixed(metrics=False), ["uniform"], [1], rounds=1, override=CHANGES, out=tmp_path, engine="sequential")
    found = {table.name: table.caption for table in tables(read_study([tmp_path]))}
    assert "Rounds are evaluated on the examples that clients hold out; the kept models" in found["last-ten"]
    assert "Rounds are evaluated" not in found["main"]
    assert "Rounds are evaluated" in payload(read_study([tmp_path]))["settings"][0]["rates"]
