"""Studies whose tasks are judged by metrics."""

from __future__ import annotations

import json

from .studies import write_study


def judge(folder, *metrics):
    """Give every task of every run below a folder a main metric: (name, whether lower is better, value), or None."""

    def add(evaluation):
        for task, metric in zip(evaluation["tasks"], metrics, strict=True):
            if metric is not None:
                name, lower, value = metric
                task |= {"metrics": {name: value(task)}, "lower": [name] if lower else []}
        return evaluation

    for run in folder.iterdir():
        path = run / "history.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            if "evaluation" in record:
                add(record["evaluation"])
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        summary = add(json.loads((run / "summary.json").read_text()))
        (run / "summary.json").write_text(json.dumps(summary))
    return folder


def same_metric(folder, seeds=(0, 1, 2), lower=False):
    """Two tasks with one metric; lower is better if it is an error."""
    metric = (
        ("mae", True, lambda task: task["loss"]) if lower else ("auroc", False, lambda task: task["accuracy"] / 100)
    )
    return judge(write_study(folder, ("uniform", "fedhv"), seeds, setting="same"), metric, metric)


def mixed_metrics(folder, seeds=(0, 1, 2)):
    """An error, a score that may be negative, and an accuracy."""
    made = write_study(folder, ("uniform", "fedhv"), seeds, setting="mixed", tasks=["mass", "age", "type"])
    error = ("rmse", True, lambda task: 40 * task["loss"])
    return judge(made, error, ("r2", False, lambda task: 0.5 - task["loss"]), None)
