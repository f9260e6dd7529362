"""Health and attendance of runs, scores over clients, and what the page says about a run's clock."""

from __future__ import annotations

import json

import pytest

from fedhv.report import read_study
from fedhv.report.missing import missing_labels
from fedhv.report.payload import payload
from fedhv.report.runpayload import clock_mates, seconds_left
from fedhv.support import toml
from report.studies import write_run


def change(folder, **by_round):
    """Add entries to rounds of a history: change(run, r2={...})."""
    path = folder / "history.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for name, entries in by_round.items():
        records[int(name[1:]) - 1] |= entries
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def machine(folder, **entries):
    path = folder / "config.toml"
    config = toml.read(path)
    config["machine"] |= entries
    path.write_text(toml.write(config))


def the_run(folder):
    return payload(read_study([folder]))["settings"][0]["runs"][0]


def test_a_run_without_incidents_is_healthy(tmp_path):
    write_run(tmp_path / "r")
    assert the_run(tmp_path)["health"] == []


def test_floor_hits_refused_replies_and_low_slacks_are_counted(tmp_path):
    refusal = {"client": 3, "reason": "an update of norm 9e3"}
    change(
        write_run(tmp_path / "r"),
        r2={"floored": 2, "refused": [refusal, refusal], "attempts": 2},
        r5={"watch": [{"task": 1, "slack": -0.25, "event": "below"}], "raised": [3.0, 3.0]},
    )
    texts = [line["text"] for line in the_run(tmp_path)["health"]]
    assert texts == [
        "1 round with too little slack, lowest -0.25; the reference was raised once",
        "2 replies refused in 1 round: 2 × an update of norm …",
        "1 round repeated",
        "2 slacks below the floor",
    ]


def test_divergence_is_an_incident(tmp_path):
    run = write_run(tmp_path / "r", finished=False)
    history = run / "history.jsonl"
    history.write_text(history.read_text().replace('"loss":', '"loss":NaN,"old":'))
    assert the_run(tmp_path)["health"][0] == {
        "text": "diverged: losses are not finite from round 4 on",
        "bad": True,
    }


def test_who_was_asked_taken_and_refused_and_how_long_answers_took(tmp_path):
    nodes = [{"client": 0, "node": "17", "name": "north", "seconds": 2.0}, {"client": 1, "node": "18", "seconds": 3.0}]
    again = [{"client": 0, "node": "17", "name": "north", "seconds": 4.0}]
    change(
        write_run(tmp_path / "r"),
        r1={"cohort": {"present": 3, "asked": [0, 1, 2], "taken": [0, 1]}, "nodes": nodes,
            "refused": [{"client": 2, "reason": "no reply within 30 s"}]},
        r2={"cohort": {"present": 2, "asked": [0, 1], "taken": [0]}, "nodes": again},
    )  # fmt: skip
    found = the_run(tmp_path)["nodes"]
    assert found["about"] == "Round 2: 2 present, 2 asked, 1 taken; the slowest answer took 4 s."
    north, second, third = found["clients"]
    assert (north["name"], north["asked"], north["taken"], north["seconds"], north["last"]) == ("north", 2, 2, 3.0, 2)
    assert (second["asked"], second["taken"], second["last"]) == (2, 1, 1)
    assert (third["refused"], third["reason"], third["seconds"]) == (1, "no reply within 30 s", None)


def test_a_run_that_does_not_say_who_took_part_has_no_nodes(tmp_path):
    write_run(tmp_path / "r")
    assert the_run(tmp_path)["nodes"] is None


def test_scores_over_clients_come_from_the_history(tmp_path):
    entry = {"task": "clear", "score": "roc_auc", "better": "higher", "clients": 9, "mean": 0.8, "worst_decile": 0.6,
             "deviation": 0.1}  # fmt: skip
    change(write_run(tmp_path / "r"), r12={"validation": {"over_clients": [entry]}})
    series = payload(read_study([tmp_path]))["settings"][0]["series"][0]
    expected = {key: value for key, value in entry.items() if key != "better"} | {"digits": 3}
    assert series["clients"] == [expected]


def test_scores_over_clients_are_computed_where_the_history_has_single_clients_only(tmp_path):
    accuracy = [[100.0 - k, 50.0] for k in range(20)]
    clients = {"client": list(range(20)), "labels": [[1, 1]] * 20, "loss": [[1, 1]] * 20, "accuracy": accuracy}
    change(write_run(tmp_path / "r"), r12={"validation": {"clients": clients}})
    clear, faint = payload(read_study([tmp_path]))["settings"][0]["series"][0]["clients"]
    assert (clear["mean"], clear["worst_decile"], clear["clients"]) == (90.5, 81.5, 20)
    assert faint["deviation"] == 0


def test_runs_of_one_computation_share_a_clock(tmp_path):
    runs = [write_run(tmp_path / str(seed), seed=seed) for seed in (0, 1, 2)]
    for run, seconds in zip(runs, (0.5, 0.5, 0.7), strict=True):
        machine(run, engine="stacked")
        change(run, r1={"seconds": seconds})
    read = {run.seed: run for run in read_study([tmp_path]).runs}
    found = {seed: [other.seed for other in clock_mates(read[seed], list(read.values()))] for seed in read}
    assert found == {0: [1], 1: [0], 2: []}
    machine(runs[1], engine="sequential")
    again = read_study([tmp_path]).runs
    assert not any(clock_mates(run, again) for run in again)


def test_recorded_clocks_replace_estimates(tmp_path):
    run = write_run(tmp_path / "r")
    machine(run, device="cuda", engine="stacked")
    change(run, r1={"seconds": 20.0})
    old = the_run(tmp_path)
    assert old["estimated"]
    assert old["compilation"] == pytest.approx([19.6] * 3, abs=0.1)
    change(run, r5={"warm_up": 7.0})
    new = the_run(tmp_path)
    assert not new["estimated"]
    assert new["compilation"] == [0, 7, 7]
    assert new["seconds"][-1] == pytest.approx(old["seconds"][-1] + old["compilation"][-1], abs=0.01)
    (read,) = read_study([tmp_path]).runs
    assert clock_mates(read, [read, read]) == []


def test_the_time_left_follows_the_recorded_clock(tmp_path):
    run = write_run(tmp_path / "r", rounds=12, done=4, finished=False)
    alone = seconds_left(read_study([tmp_path]).runs[0])
    change(run, r4={"shared": 3})
    assert seconds_left(read_study([tmp_path]).runs[0]) == pytest.approx(3 * alone, abs=0.6)


def test_the_time_left_is_that_of_recent_rounds(tmp_path):
    write_run(tmp_path / "r", rounds=12, done=4, finished=False)
    (run,) = read_study([tmp_path]).runs
    assert seconds_left(run) == pytest.approx(8 * 0.41, abs=0.2)
    assert seconds_left(run, [run, run]) == pytest.approx(3 * 8 * 0.41, abs=0.6)  # three share each second
    write_run(tmp_path / "done" / "r", rounds=12)
    assert seconds_left(read_study([tmp_path / "done"]).runs[0]) is None


def test_reports_are_sent_only_where_the_page_cannot_compute_them(tmp_path):
    run = write_run(tmp_path / "r")
    shown = the_run(tmp_path)
    assert shown["report"] is None
    assert shown["reference"] == [2.45, 2.45]
    change(run, r2={"report": [9.0, 9.0]})
    assert the_run(tmp_path)["report"][0][1] == 9


def test_every_row_has_its_rates_and_unequal_ones_are_said(tmp_path):
    write_run(tmp_path / "a", method="uniform", parameters={"local_lr": 0.1})
    write_run(tmp_path / "b")
    (setting,) = payload(read_study([tmp_path]))["settings"]
    assert [(series["label"], series["rates"]) for series in setting["series"]] == [
        ("Uniform", "1.2/0.1"),
        ("FedHV", "1.2/0.3"),
    ]
    assert "differ" in setting["rates"]
    assert [run["rates"] for run in setting["runs"]] == ["1.2/0.1", "1.2/0.3"]


def test_rounds_without_labels_of_a_task_are_counted_for_methods_without_reports(tmp_path):
    """Uniform's history does not say them: it showed 0 where FedHV, with the same cohorts, had all rounds."""
    for method in ("uniform", "fedhv"):
        run = write_run(tmp_path / method, method=method, rounds=2)
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"labels": [20, 10], "client_labels": [[10, 10, 0], [10, 10, 10]]}
        (run / "summary.json").write_text(json.dumps(summary))
    for method in ("uniform", "fedhv"):
        cohort = {"present": 2, "asked": [0], "taken": [0]}
        told = {"absent": [1]} if method == "fedhv" else {}
        change(tmp_path / method, r1={"cohort": cohort, **told}, r2={"cohort": cohort | {"taken": [1]}})
    assert without(tmp_path) == ["0/2", "1/2"] * 2
    lines = [json.loads(line) for line in (tmp_path / "uniform" / "history.jsonl").read_text().splitlines()]
    del lines[0]["cohort"]
    (tmp_path / "uniform" / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert without(tmp_path) == ["–", "–", "0/2", "1/2"]


def without(folder):
    return [row[-1].plain for section in missing_labels(read_study([folder])).sections for row in section]
