"""Notebooks: progress, tables and figures in a real kernel."""

from functools import partial
from pathlib import Path

import pytest
import torch
from problems import everything_random
from torch import nn

import fedhv
from fedhv import FedHVError
from fedhv.report import notebook as module

CELLS = (
    "import fedhv\nshort = dict(participants=2, local_steps=1, batch_size=4)",
    "run = fedhv.run('digits', 'uniform', rounds=2, override=['evaluation.every=1'], **short)\nrun",
    "run.plot()",
    "study = fedhv.compare('digits', ['uniform', 'fsmgda'], [0], rounds=1, engine='stacked', **short)\nstudy",
    "study.plot()",
    "print(fedhv.run('digits', 'uniform', rounds=1, quiet=True, **short).rounds[-1].number)",
)


@pytest.fixture(scope="module")
def outputs():
    """The outputs of every cell, from a kernel of its own."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(fedhv.__file__).parents[1]))
        patch.setenv("OMP_NUM_THREADS", "1")
        cells = [nbformat.v4.new_code_cell(code) for code in CELLS]
        book = nbformat.v4.new_notebook(cells=cells)
        nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    return [cell.outputs for cell in book.cells]


def shown(outputs, kind):
    return [each.data[kind] for each in outputs if "data" in each and kind in each.data]


@pytest.mark.slow
def test_progress_is_one_table_that_ends_with_the_last_round(outputs):
    progress, result = shown(outputs[1], "text/html")  # updated in place: the table is there once
    assert '<progress value="2" max="2">' in progress
    assert "worst" in progress
    assert "<caption>uniform on digits" in result
    study = [page for page in shown(outputs[3], "text/html") if "<progress" in page]
    assert len(study) == 1
    assert study[0].count('<progress value="1" max="1">') == 2
    assert outputs[5] == [{"output_type": "stream", "name": "stdout", "text": "1\n"}]  # quiet


@pytest.mark.slow
def test_figures_are_shown_once(outputs):
    for cell in (2, 4):
        assert len(shown(outputs[cell], "image/png")) == 1


@pytest.mark.slow
def test_tables_are_html(outputs):
    assert "<th>accuracy %</th>" in shown(outputs[1], "text/html")[-1]
    assert "fsmgda" in shown(outputs[3], "text/html")[-1]


# --- the same without a kernel ----------------------------------------------------------------------------

OPTIONS = {"participants": 2, "local_steps": 1, "batch_size": 4, "quiet": True}


def test_a_runs_figure_has_every_tasks_score_and_weight():
    run = fedhv.run(everything_random(), "uniform", rounds=3, override=["evaluation.every=1"], **OPTIONS)
    scores, weights = run.plot().axes
    assert [line.get_label() for line in scores.lines] == ["colour", "größe"]
    assert list(scores.lines[0].get_ydata()) == [r.evaluation.tasks[0].accuracy for r in run.rounds]
    assert list(weights.lines[1].get_ydata()) == [r.weights[1] for r in run.rounds]


def test_a_studys_figure_has_the_mean_of_the_seeds():
    study = fedhv.compare(everything_random(), ["uniform", "fsmgda"], [0, 1], rounds=2, **OPTIONS)
    axes = study.plot().axes
    assert len(axes) == 4
    (uniform, fsmgda) = axes[0].lines
    assert [uniform.get_label(), fsmgda.get_label()] == ["uniform", "fsmgda"]
    last = [run.tasks[0].accuracy for run in study if run.method == "uniform"]
    assert uniform.get_ydata()[-1] == pytest.approx(sum(last) / 2)
    assert len(axes[0].collections) == 2  # bands


def test_a_plot_takes_any_name_and_has_four_tasks_in_a_row():
    """Dollars started mathematics, legends hid names that begin with an underscore, and all panels were in one row."""
    canvas = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg
    tasks = [fedhv.classification(name, 2) for name in ("$\\bad{$", "_hidden", *"abcdefgh")]
    inputs, labels = torch.randn(20, 3), torch.arange(20) % 2
    part = (inputs, [labels] * len(tasks))
    problem = fedhv.Problem.from_clients(partial(Many, len(tasks)), tasks, [part, part], test=part, name="$many_")
    study = fedhv.compare(problem, ["uniform"], [0], rounds=1, baselines=["local"], **OPTIONS)
    figure = study.plot()
    canvas(figure).draw()
    assert len(figure.axes) == 2 * len(tasks)
    assert figure.axes[0].get_gridspec().ncols == 4
    local = next(line for line in figure.axes[0].lines if line.get_label() == "local")
    assert local.get_marker() == "o"  # one evaluation is no line
    alone = study[0].plot()
    canvas(alone).draw()
    legend = alone.axes[1].get_legend()
    assert len(legend.get_texts()) == len(tasks)
    assert legend.get_window_extent().x0 >= alone.axes[1].get_window_extent().x1  # beside the panel, not over the lines
    assert legend.get_window_extent().x1 <= alone.bbox.x1


class Many(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(3, 2) for _ in range(outputs)])

    def forward(self, inputs):
        return [head(inputs) for head in self.heads]


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch):
    run = fedhv.run(everything_random(), "uniform", rounds=1, **OPTIONS)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(FedHVError, match=r"`plot` needs matplotlib: pip install 'fedhv\[figures\]'"):
        run.plot()


def test_updates_are_not_more_frequent_than_a_notebook_can_show(monkeypatch):
    seen, now = [], [0.0]
    bars = module.NotebookBars()
    monkeypatch.setattr(bars, "_show", lambda: (seen.append(dict(bars._lines)), setattr(bars, "_shown", now[0])))
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    run = fedhv.run(everything_random(), "uniform", rounds=4, **OPTIONS)
    bars.start("uniform seed 0", 4)
    for record, at in zip(run.rounds, (0.1, 0.25, 0.3, 0.31), strict=True):
        now[0] = at
        bars.round(record)
    assert [lines["uniform seed 0"][0] for lines in seen] == [0, 2, 4]
