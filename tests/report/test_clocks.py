"""Times that can be compared: shared clocks are marked and not ranked, compilation is counted apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from problems import everything_random

import fedhv
import fedhv.simulation.rounds as simulation
from fedhv import Uniform
from fedhv.engines import Sequential
from fedhv.engines.graphs import Recorder
from fedhv.report import read_study, tables
from fedhv.report.aggregate import cost_until
from fedhv.report.clock import clock_of
from fedhv.report.figures.costs import costs as costs_figure
from fedhv.report.figures.drawing import drawing
from fedhv.report.palette import styles
from fedhv.report.render import latex, markdown
from fedhv.report.summaries import comparison_table, summary_table
from fedhv.runs.reference import read_reference
from fedhv.runs.summary import Summary
from fedhv.simulation.record import Round
from report.studies import write_run, write_study


class Compiling(Sequential):
    """An engine that compiles for 20 of the 21 seconds of its first computation."""

    compiled = False

    def warmed_up(self) -> float:
        first, self.compiled = not self.compiled, True
        return 20.0 if first else 0.0


@dataclass
class Clock:
    """Every computation takes 21 seconds."""

    now: float = 0.0

    def perf_counter(self) -> float:
        self.now += 21.0
        return self.now


def played(monkeypatch, runs):
    monkeypatch.setattr(simulation, "time", Clock())
    with Compiling(everything_random()) as engine:
        plan = fedhv.load_setting("digits").plan(Uniform(), 0, rounds=2)
        plan = replace(plan, participants=2, evaluate_every=9)
        started = [
            simulation.rounds(
                engine.layout, engine.population, Uniform(), plan, simulation.initial_state(engine, Uniform(), 0)
            )
            for _ in range(runs)
        ]
        return [finished.record for _, finished in simulation.simulate_together(engine, started)]


def test_compilation_is_counted_apart_from_rounds(monkeypatch):
    first, last = played(monkeypatch, 1)
    assert (first.seconds, first.warm_up) == (1.0, 20.0)
    assert last.warm_up == 0.0
    assert "warm_up" not in last.as_dict()
    assert first.shared == 1
    assert Round.read(first.as_dict()) == first


def test_runs_that_are_computed_together_are_marked(monkeypatch):
    records = played(monkeypatch, 3)
    assert {record.shared for record in records} == {3}
    assert (records[0].seconds, records[0].warm_up) == (pytest.approx(1 / 3, abs=1e-5), pytest.approx(20 / 3, abs=1e-5))
    assert Round.read(records[0].as_dict()) == records[0]


def test_a_recording_is_timed(monkeypatch):
    class Fake(Recorder):
        records = True

        def _record(self, function, inputs, brief):
            raise LookupError

    recorder = Fake("cpu")
    with pytest.raises(LookupError):
        recorder("key", lambda: None, {})
    failed = recorder.seconds
    assert failed > 0.0, "an attempt that fails is no part of a round either"

    class Graph:
        def replay(self):
            pass

    class Recording:
        graph, inputs, output = Graph(), {}, "result"

    monkeypatch.setattr(Fake, "_record", lambda *_: Recording())
    monkeypatch.setattr("fedhv.engines.graphs.time", Clock())
    assert recorder("key", lambda: None, {}) == "result"
    assert recorder("key", lambda: None, {}) == "result"
    assert recorder.seconds == failed + 21.0  # once


def together(folder, **more):
    """A study whose runs shared one clock."""
    for run in sorted(write_study(folder, seeds=(0, 1, 2)).iterdir()):
        history = run / "history.jsonl"
        rounds = [json.loads(line) | {"seconds": 0.5, **more} for line in history.read_text().splitlines()]
        rounds[0] |= {"warm_up": 21.0}
        history.write_text("".join(json.dumps(each) + "\n" for each in rounds))
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"seconds": 6.0, "total_seconds": 6.0, "warm_up_seconds": 21.0}
        (run / "summary.json").write_text(json.dumps(summary | ({"shared_clock": 6} if more else {"shared_clock": 1})))
    return read_study([folder])


def costs_of(study):
    return next(table for table in tables(study) if table.name == "costs")


def test_shared_clocks_are_marked_and_not_ranked(tmp_path):
    table = costs_of(together(tmp_path, shared=6))
    at = next(i for i, column in enumerate(table.columns) if column.heading == "s" and column.group == "Total")
    assert [row[at].rank for row in table.rows] == [None, None]
    assert [row[at].plain for row in table.rows] == ["6.0†", "10.0†"]  # FedHV's with its calibration
    assert "† Shared clock" in table.caption
    assert r"6.0^{\dagger}" in latex(table)
    assert "Compilation s" in markdown(table)
    assert "21.0" in markdown(table)


def test_own_clocks_are_ranked(tmp_path):
    table = costs_of(together(tmp_path))
    at = next(i for i, column in enumerate(table.columns) if column.heading == "s" and column.group == "Total")
    assert [row[at].rank for row in table.rows] == [1, None]
    assert "Shared clock" not in table.caption


def test_costs_of_figures_leave_compilation_out(tmp_path):
    study = together(tmp_path)
    run = next(run for run in study.runs if run.method == "uniform")
    assert cost_until(run, "seconds")[0] == pytest.approx(2.0)  # four rounds of half a second


def of_version_0_1(folder, device="cuda"):
    """A run of FedHV that does not record compilation: 19.6 s of round 1, 3.7 s of round 3, 8 s of its calibration."""
    run = write_run(folder / "fedhv-seed0")
    config = run / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', f'device = "{device}"'))
    history = run / "history.jsonl"
    rounds = [json.loads(line) | {"seconds": 0.4} for line in history.read_text().splitlines()]
    rounds[0]["seconds"], rounds[2]["seconds"] = 20.0, 4.1
    history.write_text("".join(json.dumps(each) + "\n" for each in rounds))
    reference = run / "reference.toml"
    old = read_reference(reference)
    cost = replace(old.cost, rounds=2, seconds=8.8)
    replace(old, provenance=replace(old.provenance, fedhv="0.1.0"), cost=cost).write(reference)
    (run,) = read_study([folder]).runs
    return run


def test_unrecorded_compilation_is_estimated_from_the_median_round(tmp_path):
    clock = clock_of(of_version_0_1(tmp_path))
    assert clock.estimated
    assert clock.seconds == pytest.approx([0.4] * 12)
    assert clock.compiling[[0, 2]] == pytest.approx([19.6, 3.7])
    assert clock.compiling.sum() == pytest.approx(23.3)
    assert (clock.calibration, clock.calibration_compiling) == pytest.approx((0.8, 8.0))
    assert clock.total == pytest.approx(0.8 + 12 * 0.4)


def test_nothing_is_estimated_on_a_cpu(tmp_path):
    clock = clock_of(of_version_0_1(tmp_path, device="cpu"))
    assert not clock.estimated
    assert not clock.compiling.any()
    assert clock.seconds[0] == 20
    assert clock.calibration == pytest.approx(8.8)


def test_the_cost_figure_of_earlier_versions_begins_with_the_calibration_without_compilation(tmp_path):
    run = of_version_0_1(tmp_path)
    assert cost_until(run, "seconds")[0] == pytest.approx(0.8 + 4 * 0.4)
    study = read_study([tmp_path])
    with drawing():
        figure = costs_figure(study.settings[0], styles(study))
    assert figure.axes[3].get_xlabel() == "Wall-clock time (seconds)\nwithout compilation (estimated)"
    assert "Version 0.1 did not record compilation" in costs_of(study).caption


def test_runs_of_earlier_versions_on_the_stacked_engine_are_taken_for_shared(tmp_path):
    folder = write_study(tmp_path, ["uniform"], (0,))
    path = folder / "uniform-seed0" / "summary.json"
    old = json.loads(path.read_text())
    assert not Summary.read(old).clock_is_shared
    assert Summary.read(old | {"engine": "stacked"}).clock_is_shared
    assert not Summary.read(old | {"engine": "stacked", "shared_clock": 1}).clock_is_shared


def test_the_terminal_says_what_seconds_are():
    run = fedhv.run(everything_random(), "uniform", rounds=1, engine="sequential")
    assert run.summary.shared_clock == 1
    assert "clock" not in summary_table(run.summary).caption
    shared = replace(run.summary, shared_clock=4, warm_up_seconds=21.0)
    assert "(an equal part of the clock of 4 runs) and 21.0 s of compilation" in summary_table(shared).caption
    assert "s: shared clock" in comparison_table([shared], 160).caption
    assert "Compilation, 21.0 s a run, is left out." in comparison_table([shared], 160).caption
