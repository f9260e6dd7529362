"""From folders to a study: which runs there are, how they are grouped, and what is missing."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from fedhv.report import read_study, tables, write_report
from fedhv.report.payload import payload
from fedhv.report.problems import APART
from fedhv.report.reading import Reader
from fedhv.runs.fingerprint import WHAT
from fedhv.support import toml
from fedhv.support.errors import InputError
from report.studies import write_run, write_study

METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")


def labels(study):
    return [group.label for setting in study.settings for group in setting.groups]


def test_methods_come_in_the_papers_order_with_others_before_its_own(tmp_path):
    study = read_study([write_study(tmp_path / "s", (*reversed(METHODS), "mine", "another"))])
    assert labels(study) == ["Uniform", "FSMGDA", "FedCMOO", "another", "mine", "FedHV"]
    assert study.title == "s"
    assert study.notes == ()


def test_runs_are_found_at_any_depth_and_calibrations_are_not(tmp_path):
    write_study(tmp_path / "a" / "b", seeds=(0,))
    write_run(tmp_path / "a" / "calibration" / "seed0", method="uniform", seed=7)
    write_run(tmp_path / "a" / "b" / "fedhv-seed0" / "calibration" / "seed0", method="uniform", seed=8)
    write_run(tmp_path / "a" / "report", method="uniform", seed=9)  # an odd name, but a run
    study = read_study([tmp_path])
    assert sorted(run.name for run in study.runs) == ["a/b/fedhv-seed0", "a/b/uniform-seed0", "a/report"]


def test_one_run_is_a_study(tmp_path):
    study = read_study([write_run(tmp_path / "only")])
    assert [run.name for run in study.runs] == ["only"]
    assert study.notes == ("digits: one seed only, so there are no standard deviations",)


def test_several_folders_make_one_study_and_a_folder_counts_once(tmp_path):
    write_study(tmp_path / "a", ("fedhv",), (0,))
    write_study(tmp_path / "b", ("uniform",), (0,))
    study = read_study([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    assert sorted(run.name for run in study.runs) == ["a/fedhv-seed0", "b/uniform-seed0"]
    assert study.title == "a, b"


def test_the_same_run_in_two_folders_counts_once_and_the_further_one_wins(tmp_path):
    write_run(tmp_path / "short", rounds=12, done=4)
    write_run(tmp_path / "whole", rounds=12)
    study = read_study([tmp_path])
    assert [run.name for run in study.runs] == ["whole"]
    assert study.notes[0] == "short is left out: whole has its method, hyper-parameters and seed"


def test_a_run_of_an_earlier_version_that_knew_fewer_keys_is_the_same_run(tmp_path):
    older, newer = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    text = (older / "config.toml").read_text()
    assert "floor = " in text
    (older / "config.toml").write_text("\n".join(line for line in text.splitlines() if not line.startswith("floor = ")))
    study = read_study([tmp_path])
    assert [run.name for run in study.runs] == ["a"]
    assert study.notes[0] == f"{newer.name} is left out: {older.name} has its method, hyper-parameters and seed"


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_study([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="at least one"):
        Reader([])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("= broken", "not valid TOML"),
        ("[setting]\nname = 'x'\n", "`run.method` and `run.seed`"),
        ("[run]\nmethod = 3\nseed = 0\n", "`run.method` and `run.seed`"),
    ],
)
def test_a_run_without_a_readable_config_is_left_out(tmp_path, text, reason):
    write_study(tmp_path)
    (tmp_path / "fedhv-seed0" / "config.toml").write_text(text)
    study = read_study([tmp_path])
    assert len(study.runs) == 3
    assert study.notes[0].startswith("fedhv-seed0 is left out: ")
    assert reason in study.notes[0]


def test_folders_and_histories_that_cannot_be_read_are_noted(tmp_path, monkeypatch):
    """As those of another user. Such a folder was missing without a word, such a history was said not to be there."""
    write_study(tmp_path / "study")
    (tmp_path / "study" / "fedhv-seed0" / "history.jsonl").unlink()
    (tmp_path / "study" / "fedhv-seed0" / "history.jsonl").mkdir()
    listed = os.scandir

    def scandir(folder):
        if Path(folder).name == "fedhv-seed42":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr("os.scandir", scandir)
    study = read_study([tmp_path / "study"])
    assert "study/fedhv-seed42 could not be read: Permission denied" in study.notes
    assert any(
        "history.jsonl has no rounds that can be read; only the final values are known" in n for n in study.notes
    )


def test_damaged_summaries_and_references_are_noted(tmp_path):
    run = write_run(tmp_path / "r", finished=False)
    (run / "summary.json").write_text("{")
    (run / "reference.toml").write_text("values = 'none'")
    study = read_study([run])
    assert any("summary.json could not be read" in note for note in study.notes)
    assert any("reference.toml could not be read" in note for note in study.notes)
    assert study.runs[0].finished  # all of its rounds are there


def test_a_report_is_written_with_a_damaged_summary_among_others(tmp_path):
    """What a run came to is then the last of its evaluations."""
    write_study(tmp_path / "study")
    (tmp_path / "study" / "fedhv-seed42" / "summary.json").write_text("{")
    report = write_report([tmp_path / "study"], figures=False)
    assert "digits: fedhv-seed42: summary.json could not be read" in report.notes
    assert [row[-1].text for row in report.tables[0].rows] == ["2", "2"]


def test_files_that_lead_out_of_the_study_are_not_followed(tmp_path):
    secret = write_study(tmp_path / "elsewhere", ("fedhv",), (0,))
    study = write_study(tmp_path / "study", ("uniform",), (0,))
    (study / "linked").symlink_to(secret / "fedhv-seed0")
    (study / "files").mkdir()
    for name in ("config.toml", "history.jsonl"):
        (study / "files" / name).symlink_to(secret / "fedhv-seed0" / name)
    read = read_study([study])
    assert [run.name for run in read.runs] == ["uniform-seed0"]
    assert "files is left out: its files are links" in read.notes


def test_missing_seeds_unfinished_runs_and_different_lengths_are_said(tmp_path):
    write_study(tmp_path, METHODS, (0, 42), rounds=12)
    shutil.rmtree(tmp_path / "fsmgda-seed42")
    for name in ("fedhv-seed42", "uniform-seed0", "uniform-seed42", "fedcmoo-seed0"):
        shutil.rmtree(tmp_path / name)
    write_run(tmp_path / "fedhv-seed42", seed=42, rounds=12, done=5)
    write_run(tmp_path / "uniform-seed0", method="uniform", rounds=12, done=2)
    write_run(tmp_path / "uniform-seed42", method="uniform", seed=42, rounds=12, done=0)
    shutil.rmtree(tmp_path / "fedcmoo-seed42")
    write_study(tmp_path, ("fedcmoo",), (0, 42), rounds=20)
    notes = read_study([tmp_path]).notes
    assert "digits: FSMGDA has no run with seed 42" in notes
    assert "digits: fedhv-seed42 has not finished: 5 of 12 rounds; tables leave it out" in notes
    assert "digits: uniform-seed0 has not finished: 2 of 12 rounds, none of them evaluated" in notes
    assert "digits: uniform-seed42 has no rounds yet" in notes
    lengths = next(note for note in notes if "different numbers" in note)
    assert lengths.endswith("different numbers of rounds: 12, 20")


def test_seeds_are_missed_only_within_one_comparison(tmp_path):
    write_study(tmp_path, ("uniform", "fsmgda"), (0, 42))
    write_run(tmp_path / "both", method="fsmgda", seed=3, local_steps=5, participants=3)  # belongs to no ablation
    assert read_study([tmp_path]).notes == ()
    write_run(tmp_path / "swept", method="fsmgda", seed=0, local_steps=5)
    notes = read_study([tmp_path]).notes
    assert notes == ("digits: FSMGDA (K = 5) has no run with seed 42",)
    write_run(tmp_path / "more", method="uniform", seed=5)
    notes = read_study([tmp_path]).notes
    assert notes == ("digits: FSMGDA has no run with seed 5", "digits: FSMGDA (K = 5) has no run with seed 42")


def test_different_references_are_said(tmp_path):
    write_study(tmp_path, ("fedhv",))
    path = tmp_path / "fedhv-seed42" / "reference.toml"
    path.write_text(path.read_text().replace("2.45", "2.46", 1))
    assert "digits: runs of FedHV have different references" in read_study([tmp_path]).notes


def test_a_setting_name_with_other_tasks_is_another_setting(tmp_path):
    write_run(tmp_path / "a", tasks=("x", "y"))
    write_run(tmp_path / "b", tasks=("x", "y", "z"), method="uniform")
    write_run(tmp_path / "c", tasks=("x", "y"), method="fsmgda", done=0)
    study = read_study([tmp_path])
    assert [(setting.name, setting.tasks, len(setting.runs)) for setting in study.settings] == [
        ("digits", ("x", "y"), 2),
        ("digits #2", ("x", "y", "z"), 1),
    ]


def test_only_what_has_changed_is_read_again(tmp_path):
    reader = Reader([write_study(tmp_path / "s")])
    first, _ = reader.read()
    before = reader.fingerprint()
    second, _ = reader.read()
    assert all(a is b for a, b in zip(first, second, strict=True))
    history = tmp_path / "s" / "fedhv-seed0" / "history.jsonl"
    history.write_text(history.read_text()[:-40])
    assert reader.fingerprint() != before
    third, _ = reader.read()
    assert [a is b for a, b in zip(first, third, strict=True)].count(False) == 1


def test_two_problems_of_one_name_keep_their_runs_although_nothing_else_differs(tmp_path):
    write_run(tmp_path / "a", tasks=("x", "y"))
    write_run(tmp_path / "b", tasks=("x2", "y2"))
    study = read_study([tmp_path])
    assert [(setting.name, setting.tasks, len(setting.runs)) for setting in study.settings] == [
        ("digits", ("x", "y"), 1),
        ("digits #2", ("x2", "y2"), 1),
    ]
    assert not any("left out" in note for note in study.notes)


def edited(run, tables):
    """The run with other tables in its config.toml: keys are dotted."""
    config = toml.read(run / "config.toml")
    for path, value in tables.items():
        *parents, key = path.split(".")
        table = config
        for parent in parents:
            table = table.setdefault(parent, {})
        table[key] = value
    (run / "config.toml").write_text(toml.write(config), encoding="utf-8")
    return run


DIGESTS = {f"fingerprint.{name}": f"{name} 1" for name in WHAT}


def members(folder):
    return {setting.name: sorted(run.name for run in setting.runs) for setting in read_study([folder]).settings}


@pytest.mark.parametrize("name", APART)
def test_runs_of_another_problem_have_tables_of_their_own(name, tmp_path):
    for run in ("a", "b", "c"):
        edited(write_run(tmp_path / run, seed="abc".index(run)), DIGESTS)
    edited(write_run(tmp_path / "d", seed=0), DIGESTS | {f"fingerprint.{name}": "2"})
    edited(write_run(tmp_path / "e", method="uniform", seed=1), DIGESTS | {f"fingerprint.{name}": "2"})
    write_run(tmp_path / "old", method="uniform", seed=2)  # a version without fingerprints
    assert members(tmp_path) == {"digits": ["a", "b", "c", "old"], "digits #2": ["d", "e"]}
    notes = read_study([tmp_path]).notes
    said = "digits #2 is another problem than digits, so they have tables of their own: d differs in "
    assert said + WHAT[name] in notes
    assert not any("left out" in note for note in notes)


def test_an_ablation_of_the_clients_is_of_one_problem(tmp_path):
    edited(write_run(tmp_path / "a"), DIGESTS)
    other = {"setting.federation.clients": 10, "fingerprint.clients": "2"}
    edited(write_run(tmp_path / "b"), DIGESTS | other)
    edited(write_run(tmp_path / "c", participants=3), DIGESTS)
    assert members(tmp_path) == {"digits": ["a", "b", "c"]}


def test_the_server_of_a_federation_does_not_know_the_examples(tmp_path):
    edited(write_run(tmp_path / "a"), DIGESTS)
    other = dict.fromkeys(["fingerprint.inputs", "fingerprint.targets", "fingerprint.clients"], "2")
    edited(write_run(tmp_path / "b", method="uniform"), DIGESTS | other | {"machine.engine": "flower"})
    assert members(tmp_path) == {"digits": ["a", "b"]}


def test_differences_of_code_and_precision_are_said(tmp_path):
    edited(write_run(tmp_path / "a"), DIGESTS | {"machine.precision": "float32"})
    other = dict.fromkeys(["fingerprint.tasks", "fingerprint.method", "fingerprint.numerics"], "2")
    edited(write_run(tmp_path / "b", seed=1), DIGESTS | other | {"machine.precision": "tf32"})
    edited(write_run(tmp_path / "c", method="uniform"), DIGESTS | {"fingerprint.method": "3"})
    edited(write_run(tmp_path / "d", method="uniform", seed=1), DIGESTS | {"fingerprint.method": "3"})
    assert [note for note in read_study([tmp_path]).notes if "differ" in note] == [
        "digits: runs that are compared differ in the tasks (names, losses, scores, metrics)",
        "digits: runs that are compared differ in the version of the package's numbers",
        "digits: runs of FedHV differ in the method's code",
        "digits: runs that are compared have different precisions: float32, tf32",
    ]


@pytest.mark.parametrize(
    ("key", "values", "label"),
    [
        ("setting.evaluation.on", ("test", "validation"), "FedHV (on = validation)"),
        ("setting.evaluation.keep", ("last", "best"), "FedHV (kept = best)"),
    ],
)
def test_scores_of_another_kind_are_no_more_seeds(key, values, label, tmp_path):
    for seed in (0, 1, 2):
        edited(write_run(tmp_path / str(seed), seed=seed), {key: values[seed // 2]})
    (setting,) = read_study([tmp_path]).settings
    assert [(group.label, len(group.runs)) for group in setting.all_groups] == [("FedHV", 2), (label, 1)]


def test_what_changes_no_number_makes_no_variant(tmp_path):
    edited(write_run(tmp_path / "0"), {"setting.record.checkpoints": 10, "setting.baselines.local.local_lr": 0.1})
    edited(
        write_run(tmp_path / "1", seed=1), {"setting.record.checkpoints": 0, "setting.baselines.local.local_lr": 0.2}
    )
    (setting,) = read_study([tmp_path]).settings
    assert [(group.label, len(group.runs)) for group in setting.all_groups] == [("FedHV", 2)]


def test_hypervolumes_against_different_references_are_left_out_and_the_rest_stays(tmp_path):
    write_run(tmp_path / "u0", method="uniform", seed=0)
    write_run(tmp_path / "u1", method="uniform", seed=1, against=9.0)
    write_run(tmp_path / "f0", seed=0)
    write_run(tmp_path / "later", seed=1, done=0, against=5.0)  # not evaluated yet: nothing to compare
    study = read_study([tmp_path])
    left_out = "digits: hypervolumes are left out, as runs have different values of `evaluation.reference`: "
    assert f"{left_out}3, 9" in study.notes
    table = next(table for table in tables(study) if table.name == "loss-hv")
    assert [[cell.plain for cell in row[3:5]] for row in table.rows] == [["0.599 ± 0.011", "–"], ["0.431", "–"]]
    (setting,) = payload(study)["settings"]
    assert "Hypervolume" not in [tile["title"] for tile in setting["highlights"]]
    assert setting["runs"][0]["hypervolume"] == [None] * 3
    assert None not in setting["runs"][0]["mean_loss"]


def test_one_evaluation_reference_whatever_its_value_keeps_the_hypervolumes(tmp_path):
    write_study(tmp_path / "a", against=9.0)
    study = read_study([tmp_path])
    assert study.notes == ()
    table = next(table for table in tables(study) if table.name == "loss-hv")
    assert all(row[4].spread is not None for row in table.rows)


@pytest.mark.parametrize("inside", [".", "study", "deep/study"])
def test_folders_of_the_same_name_are_told_apart_by_their_parents(tmp_path, inside):
    write_study(tmp_path / "a" / inside, ("uniform",))
    write_study(tmp_path / "b" / inside, ("uniform",), local_steps=4)
    study = read_study([tmp_path / "a" / inside, tmp_path / "b" / inside])
    names = [f"{top}/{inside}".removesuffix("/.") for top in "ab"]
    assert study.title == ", ".join(names)
    assert sorted({run.name for run in study.runs}) == [f"{n}/uniform-seed{seed}" for n in names for seed in (0, 42)]


def test_runs_given_by_themselves_are_told_apart_too(tmp_path):
    runs = [write_run(tmp_path / top / "run", seed=seed) for seed, top in enumerate("ab")]
    assert [run.name for run in read_study(runs).runs] == ["a/run", "b/run"]


def test_no_name_of_a_folder_begins_another(tmp_path):
    # k/s/r would be both the run r of the second folder and s/r of the first
    folders = [tmp_path / "1" / "k", tmp_path / "2" / "k" / "s", tmp_path / "3" / "m" / "s"]
    for seed, run in enumerate((folders[0] / "s" / "r", folders[1] / "r", folders[2] / "r")):
        write_run(run, seed=seed)
    assert [run.name for run in read_study(folders).runs] == ["1/k/s/r", "2/k/s/r", "m/s/r"]


def test_a_history_that_is_shorter_than_its_summary_gives_way_to_it(tmp_path):
    run = write_run(tmp_path / "r", rounds=12, every=4)
    whole = read_study([run]).runs[0]
    history = run / "history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:5]))
    study = read_study([run])
    cut = study.runs[0]
    assert "digits: r: history.jsonl ends after round 5 of 12; only the final values are known" in study.notes
    assert (cut.done, cut.finished) == (12, True)
    for metric in ("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "loss.1"):
        assert cut.evaluations.values(metric)[-1] == whole.evaluations.values(metric)[-1]
    assert cut.rounds.up.sum() == whole.rounds.up.sum()
    assert {table.name for table in tables(study)} >= {"main", "loss-hv", "costs"}


@pytest.mark.parametrize(
    "damage", [{"rounds": "12"}, {"rounds": 0}, {"tasks": [1]}, {"tasks": None}, {"communication": "much"}]
)
def test_a_summary_of_something_else_is_noted_and_not_used(tmp_path, damage):
    run = write_run(tmp_path / "r")
    path = run / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    (run / "history.jsonl").unlink()
    study = read_study([run])
    assert "digits: r: summary.json could not be read" in study.notes
    assert not study.runs[0].finished
