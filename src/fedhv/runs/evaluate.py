"""The evaluation of a run's model on other examples than its run had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from fedhv.engines import choose_engine
from fedhv.engines.trial_run import check_test
from fedhv.problem.initial import initial_model
from fedhv.problem.joining import as_examples
from fedhv.problem.missing import whole_classes
from fedhv.problem.problem import Benchmark, Clients, Examples, Problem
from fedhv.problem.stored import Collated
from fedhv.problem.warm_start import warm_started
from fedhv.protocol.client import Client
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.scales import in_units
from fedhv.runs.model import Source, as_run, benchmark_of
from fedhv.runs.record import Run
from fedhv.runs.threads import one_thread
from fedhv.support.errors import InputError
from fedhv.support.imports import import_object


def evaluate(
    run: Run | str | Path,
    examples: Any = None,
    *,
    problem: Source | None = None,
    data: str | None = None,
    device: str = "cpu",
) -> Evaluation:
    """The model of a run on examples: loss, accuracy and the problem's metrics for every task.

    Losses are in the units of the run.

    Args:
        run: A `Run`, or a run's folder.
        examples: `Examples`, inputs and a list of targets, a torch `Dataset`, or "package.module:function" that returns
            one of these or a `Benchmark`, whose test examples are used. The default is the problem's own test set.
        problem: For a folder with a run on your own problem: the `Problem`, or "package.module:name" of one.
        data: The folder of the datasets, for benchmarks that need it.
        device: "auto", "cpu", "cuda" or "mps".

    Examples:
        >>> fedhv.evaluate("runs/hospitals", (new_patients, [risk]), problem=problem).tasks[0].name
        'risk'
    """
    run = as_run(run)
    benchmark, norm = benchmark_of(run, problem, data)
    if isinstance(examples, str):
        examples = _loaded(examples)
    test = benchmark.test if examples is None else _examples(benchmark, examples)
    if test is None:
        raise InputError(
            f"Problem '{benchmark.name}' has no test examples: its clients evaluate models. Give examples, on the "
            "command line with --on package.module:function."
        )
    if not isinstance(benchmark, Problem):
        benchmark = Problem.divide(benchmark, Clients.of([range(len(benchmark.train))]))
    benchmark = in_units(replace(benchmark, test=test, norm=norm), run.summary.loss_units)
    trained = warm_started(benchmark, run.state_dict)
    theta = initial_model(trained.model, 0, norm)
    with one_thread(), choose_engine("sequential", device).make(trained) as engine:
        check_test(Client(trained), theta)
        return engine.evaluate(theta.to(engine.device), run.evaluation_reference)


def _loaded(path: str) -> Any:
    loader = import_object(path, "loader")
    return loader() if callable(loader) else loader


def _examples(benchmark: Benchmark, given: Any) -> Examples:
    if isinstance(given, Benchmark):
        if given.test is None:
            raise InputError(f"Problem '{given.name}' should have test examples. Found none.")
        return given.test
    tasks = benchmark.tasks
    own, inputs = benchmark.train.inputs, given[0] if isinstance(given, tuple | list) and given else given
    alike = isinstance(own, Collated) and isinstance(inputs, list | Dataset)  # single examples, as the problem's are
    examples = as_examples("the examples to evaluate on", given, tasks, own.collate if alike else None)
    if len(examples.targets) != len(tasks):
        raise InputError(
            f"The examples to evaluate on should have targets for {len(tasks)} tasks. Found {len(examples.targets)}."
        )
    return whole_classes(tasks, examples)
