"""What the command line prints about one run."""

from dataclasses import replace

from problems import everything_random
from rich.console import Console

import fedhv
from fedhv.report.summaries import summary_table


def printed(summary):
    console = Console(width=120)
    with console.capture() as captured:
        console.print(summary_table(summary))
    return captured.get()


def test_metrics_have_columns_where_tasks_have_them():
    run = fedhv.run(everything_random(), "uniform", rounds=1, engine="sequential")
    assert "roc_auc" not in printed(run.summary)
    first, *others = run.summary.tasks
    judged = replace(run.summary, tasks=(replace(first, metrics={"roc_auc": 0.8125}), *others))
    assert "roc_auc" in printed(judged)
    assert "0.8125" in printed(judged)
