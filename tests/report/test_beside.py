"""Fronts and the paper's numbers beside runs: read where they are, left out with a note where they are not usable."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from fedhv.report import read_study
from fedhv.report.agreement import welch
from fedhv.report.fronts import fronts
from fedhv.report.payload import payload
from fedhv.report.render import comma_separated
from fedhv.report.tables import tables
from report.studies import write_run

HEADS = "setting,method,metric,ours_mean,ours_std,ours_runs,paper_mean,paper_std,difference,ours_rank,paper_rank"


def front(points=3, tasks=("clear", "faint")):
    """A front as `fedhv front` writes it."""

    def method(name, over, shift):
        made = [
            {"value": [k / points, 1 - k / points] if over else None, "seed": seed, "run": f"{name}/{k}",
             "scores": [90 + k + shift + seed / 9 for _ in tasks][:1] + [80 - k + shift for _ in tasks][1:],
             "losses": [0.3 - k / 50 for _ in tasks], "training_losses": None, "weights": [0.5 for _ in tasks],
             "nondominated": True}
            for k in range(points if over else 1) for seed in (0, 1)
        ]  # fmt: skip
        volume = {"mean": 7000 + shift, "low": 6900 + shift, "high": 7100 + shift, "by_seed": {}}
        return {"label": name, "method": name, "over": over, "points": made, "attainment": [],
                "hypervolume": {"score": volume, "loss": volume}}  # fmt: skip

    pair = {"methods": ["fedhv", "fixed"], "score": {"mean": 12.0, "low": 3.0, "high": 21.0},
            "loss": {"mean": 0.1, "low": -0.2, "high": 0.4}}  # fmt: skip
    beaten = [{"space": "score", "method": "uniform", "by": "fedhv", "dominated": 1, "points": 1}]
    return {"version": 1, "setting": "digits", "tasks": list(tasks), "rounds": 12, "seeds": [0, 1],
            "reference": {"score": 0.0, "loss": 3.0}, "differences": [pair], "dominated": beaten,
            "methods": [method("fedhv", "preferences", 0), method("fixed", "weights", -1),
                        method("uniform", None, -2)]}  # fmt: skip


def test_a_front_beside_runs_is_on_the_page(tmp_path):
    write_run(tmp_path / "r")
    (tmp_path / "front.json").write_text(json.dumps(front()))
    (found,) = payload(read_study([tmp_path]))["fronts"]
    assert [method["label"] for method in found["methods"]] == ["fedhv", "fixed", "uniform"]
    assert len({json.dumps(method["style"]) for method in found["methods"]}) == 3
    assert found["methods"][0]["points"][0]["scores"] == [90.0, 80.0]


def labels_and_volumes(table):
    return [[cell.plain for cell in row] for row in table.rows]


def test_a_front_beside_runs_is_a_table_of_its_setting(tmp_path):
    write_run(tmp_path / "r")
    found = front()
    found["methods"][0]["hypervolume"]["score"] = {"mean": 0.25, "by_seed": {"0": 0.2, "1": 0.3}}
    (tmp_path / "front.json").write_text(json.dumps(found))
    study = read_study([tmp_path])
    table = fronts(study)
    assert [column.full for column in table.columns] == [
        "Setting", "Method", "Over", "Points", "HV of accuracies ↑", "HV of losses ↑"
    ]  # fmt: skip
    assert labels_and_volumes(table) == [
        ["digits", "FedHV", "preferences", "3", "0.2500 ± 0.0707", "7000.0000"],
        ["digits", "fixed", "weights", "3", "6999.0000", "6999.0000"],
        ["digits", "Uniform", "one point", "1", "6998.0000", "6998.0000"],
    ]
    assert "standard deviation over seeds" in table.caption
    rows = list(csv.DictReader(io.StringIO(comma_separated(table))))
    assert [float(row["HV of accuracies mean"]) for row in rows] == [0.25, 6999.0, 6998.0]
    assert float(rows[0]["HV of accuracies std"]) == pytest.approx(0.0707, abs=1e-4)
    assert "fronts" in [each.name for each in tables(study)]
    assert not fronts(replace(study, settings=())).sections


def test_a_front_without_accuracies_or_methods_has_what_there_is(tmp_path):
    write_run(tmp_path / "r")
    found = front()
    for method in found["methods"]:
        method["hypervolume"] = {"loss": {"mean": 0.5, "low": None, "high": None}}
    (tmp_path / "front.json").write_text(json.dumps(found))
    table = fronts(read_study([tmp_path]))
    assert table.columns[-1].full == "HV of losses ↑"
    assert [row[-1].plain for row in table.rows] == ["0.5000"] * 3
    (tmp_path / "front.json").write_text(json.dumps(front() | {"methods": []}))
    assert not fronts(read_study([tmp_path])).sections


def test_a_front_belongs_to_the_setting_of_its_points(tmp_path):
    """Two problems under one name are digits and digits #2; each has a front."""
    for name, tasks in (("one", ("clear", "faint")), ("two", ("near", "far"))):
        run = f"{name}/fixed-preferences-0/fixed-seed0"
        write_run(tmp_path / run, method="fixed", tasks=tasks, parameters={"preferences": [0.5, 0.5]})
        found = front(tasks=tasks)
        found["methods"] = found["methods"][:1]
        found["methods"][0]["points"][0]["run"] = "fixed-preferences-0/fixed-seed0"
        (tmp_path / name / "front.json").write_text(json.dumps(found))
    study = read_study([tmp_path])
    assert [setting.name for setting in study.settings] == ["digits", "digits #2"]
    assert [front["setting"] for front in study.beside.fronts] == ["digits", "digits #2"]
    for setting in study.settings:
        assert len(fronts(replace(study, settings=(setting,))).rows) == 1


def test_a_front_is_read_once_and_at_any_depth(tmp_path):
    folder = tmp_path / "all" / "deep" / "study"
    write_run(folder / "fixed-preferences-0/fixed-seed0", method="fixed", parameters={"preferences": [0.5, 0.5]})
    (folder / "front.json").write_text(json.dumps(front()))
    for given in ([tmp_path / "all"], [tmp_path / "all", folder], [folder]):
        assert len(read_study(given).beside.fronts) == 1


def test_several_fronts_of_a_setting_are_told_apart_by_their_folders(tmp_path):
    for name in ("few", "many"):
        write_run(tmp_path / name / "r")
        (tmp_path / name / "front.json").write_text(json.dumps(front()))
    table = fronts(read_study([tmp_path]))
    assert table.columns[1].heading == "Folder"
    assert [row[1].plain for row in table.rows] == ["few"] * 3 + ["many"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        "no json",
        '{"setting": "a", "tasks": ["x"], "methods": [{}]}',
        '{"setting": "a", "tasks": ["x"], "methods": [{"points": [1]}]}',
        json.dumps(front() | {"methods": [front()["methods"][0] | {"hypervolume": {"loss": {"by_seed": [1.0]}}}]}),
    ],
)
def test_what_is_no_front_is_left_out_with_a_note(tmp_path, text):
    write_run(tmp_path / "r")
    (tmp_path / "front.json").write_text(text)
    study = read_study([tmp_path])
    assert study.beside.fronts == ()
    assert any("front.json is left out" in note for note in study.notes)


def test_welchs_interval_by_hand():
    # s² / n = 0.03 and 0.01; four degrees would be for equal deviations, here 3.2: t = 3.0717.
    low, middle, high = welch((90.0, 0.3, 3), (91.0, 0.173205080757, 3))
    assert middle == -1.0
    assert high - middle == pytest.approx(3.0717 * 0.2, abs=1e-3)
    assert middle - low == pytest.approx(high - middle)


def test_numbers_of_a_reproduction_agree_or_differ_by_their_intervals(tmp_path):
    write_run(tmp_path / "r")
    (tmp_path / "tables").mkdir()
    rows = [
        "digits,fedhv,mean_accuracy,90.1,0.2,3,90.0,0.2,0.1,1,1",
        "digits,uniform,mean_accuracy,92.0,0.1,3,90.0,0.1,2.0,1,1",
        "digits,fsmgda,mean_loss,0.10,0.01,3,0.20,0.01,-0.1,1,1",
        "digits,fedcmoo,mean_accuracy,90.0,,1,90.0,0.1,0,1,1",
        "digits,other,mean_accuracy,,,,90.0,0.1,,,",
    ]
    (tmp_path / "tables" / "main.csv").write_text("\n".join([HEADS, *rows]) + "\n")
    found = payload(read_study([tmp_path]))["paper"]
    assert [(entry["competitor"], entry["agreement"]) for entry in found] == [
        ("FedHV", "agree"), ("Uniform", "above"), ("FSMGDA", "below"), ("FedCMOO", "unknown")
    ]  # fmt: skip
    assert found[0]["ours"] == "90.10 ± 0.20"
    assert found[2]["difference"] == "−0.100"


def test_other_tables_are_no_reproduction(tmp_path):
    write_run(tmp_path / "r")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "main.csv").write_text("Setting,Method\na,b\n")
    study = read_study([tmp_path])
    assert study.beside.paper == ()
    assert study.notes == read_study([tmp_path / "r"]).notes
