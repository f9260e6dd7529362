"""Runs as tasks of a Ray cluster: the same results, never done twice, going on where they were."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from problems import SETTING, everything_random
from runs_on_disk import records, timeless
from waiting import HANG, started

import fedhv.runs.cluster
from fedhv import InputError, compare
from fedhv.runs.cluster import Parcel, _parcel, on_ray, pack, play, unpack
from fedhv.runs.study import StudyFailed
from fedhv.runs.study_run import StudyRun
from fedhv.simulation.observer import Observer
from fedhv.support.errors import Interrupted

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedhv[ray]'")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray of two cores on this machine; its workers see the variables that `problems:dies_once` reads."""
    import ray

    mark = tmp_path_factory.mktemp("death") / "mark"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("DEATH_MARK", str(mark))
        patch.setenv("DEATH_SPARES", str(os.getpid()))
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        started(lambda: ray.init(num_cpus=2, **options), ray.shutdown)
        yield mark
        ray.shutdown()


OPTIONS = {"seeds": [0, 1], "rounds": 3}


def test_a_cluster_gives_what_one_process_gives_and_tells_how_far_it_is(setting_file, tmp_path, cluster):
    ticks = []

    class Ticks(Observer):
        def runs(self, states):
            ticks.append(states)

    methods = ["fedhv", "fedcmoo"]
    here = compare(str(setting_file), methods, **OPTIONS, out=tmp_path / "here", jobs=1, engine="sequential")
    there = compare(
        str(setting_file), methods, **OPTIONS, out=tmp_path / "there", executor="ray", jobs=1, observer=Ticks(),
        engine="sequential",
    )  # fmt: skip
    assert list(map(timeless, there)) == list(map(timeless, here))
    for run in ("fedhv-seed0", "fedcmoo-seed1"):
        model = f"{run}/model.safetensors"
        assert (tmp_path / "there" / model).read_bytes() == (tmp_path / "here" / model).read_bytes()
    assert next(state[:3] for state in ticks[-1]) == ("fedhv seed 0", 3, 3)
    assert not list((tmp_path / "there").glob(".study-*"))


def test_what_is_finished_is_not_run_again_and_what_was_interrupted_goes_on(setting_file, tmp_path, cluster):
    class Stop(Observer):
        def round(self, round):
            if round.number == 2:
                raise KeyboardInterrupt

    whole = compare(str(setting_file), ["uniform"], [0, 1], rounds=4, out=tmp_path / "whole", jobs=1)
    compare(str(setting_file), ["uniform"], [0], rounds=4, out=tmp_path / "s", jobs=1)
    finished = tmp_path / "s" / "uniform-seed0" / "summary.json"
    before = finished.stat().st_mtime_ns
    with pytest.raises(Interrupted):
        compare(str(setting_file), ["uniform"], [1], rounds=4, out=tmp_path / "s", jobs=1, observer=Stop())
    kept = [record["seconds"] for record in records(tmp_path / "s" / "uniform-seed1")]
    assert len(kept) == 2
    both = compare(str(setting_file), ["uniform"], [0, 1], rounds=4, out=tmp_path / "s", executor="ray")
    assert [timeless(s) | {"engine": ""} for s in both] == [timeless(s) | {"engine": ""} for s in whole]
    assert finished.stat().st_mtime_ns == before
    assert [record["seconds"] for record in records(tmp_path / "s" / "uniform-seed1")][:2] == kept


def test_a_run_that_fails_leaves_the_others_alone(tmp_path, cluster):
    setting = tmp_path / "wild.toml"
    setting.write_text(SETTING + "\n[methods.uniform]\nlocal_lr = 1e30\n")
    with pytest.raises(StudyFailed, match=r"uniform seed 0.*The other runs \(1\) are finished") as failed:
        compare(str(setting), ["uniform", "fsmgda"], [0], rounds=2, out=tmp_path / "s", executor="ray")
    assert [run.method for run in failed.value.runs] == ["fsmgda"]


def test_a_run_whose_process_dies_is_started_again(tmp_path, cluster):
    setting = tmp_path / "mortal.toml"
    setting.write_text(SETTING.replace("problems:benchmark", "problems:dies_once"))
    (expected,) = compare(str(setting), ["uniform"], [0], rounds=3, out=tmp_path / "expected", jobs=1)
    assert not cluster.exists()
    (found,) = compare(str(setting), ["uniform"], [0], rounds=3, out=tmp_path / "s", executor="ray")
    assert cluster.exists()
    assert timeless(found) | {"engine": ""} == timeless(expected) | {"engine": ""}


def _run(folder: Path, setting_file: Path) -> StudyRun:
    from fedhv.engines import choose_engine
    from fedhv.runs.config import load_setting

    setting = load_setting(str(setting_file))
    return StudyRun(setting, setting.method("uniform"), 0, folder, None, choose_engine("sequential", "cpu"), None)


def test_where_the_folder_is_not_shared_the_files_travel(setting_file, tmp_path):
    here, elsewhere = _run(tmp_path / "here", setting_file), _run(tmp_path / "elsewhere", setting_file)
    expected = here()
    outcome, files = play(_parcel(elsewhere, tmp_path / "no such mark"))
    assert timeless(outcome) == timeless(expected)
    assert not elsewhere.folder.exists()  # the task left nothing behind
    unpack(files, elsewhere.folder)
    assert set(pack(elsewhere.folder)) == set(pack(here.folder))
    model = "model.safetensors"
    assert (elsewhere.folder / model).read_bytes() == (here.folder / model).read_bytes()
    # What travelled back travels out again: a finished run is read, not run.
    again, files = play(_parcel(elsewhere, tmp_path / "no such mark"))
    assert again == outcome


def test_bad_input_is_an_answer_too(setting_file, tmp_path):
    run = _run(tmp_path / "r", setting_file)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "stranger.txt").write_text("mine")
    parcel = _parcel(run, tmp_path)
    assert isinstance(parcel, Parcel)
    outcome, _ = play(parcel)
    assert isinstance(outcome, InputError)


def test_an_interrupted_study_stops_its_tasks_and_goes_on_later(setting_file, tmp_path, cluster):
    class Stop(Observer):
        def runs(self, states):
            if any(done >= 2 for _, done, _, _ in states):
                os.kill(os.getpid(), signal.SIGINT)

    options = {"methods": ["uniform"], "seeds": [0, 1], "rounds": 400}
    with pytest.raises(Interrupted, match="every run can be resumed"):
        compare(str(setting_file), **options, out=tmp_path / "s", executor="ray", observer=Stop())
    kept = records(tmp_path / "s" / "uniform-seed0")
    assert 2 <= len(kept) < 400
    found = compare(str(setting_file), **options, out=tmp_path / "s", executor="ray")
    assert [len(run.rounds) for run in found] == [400, 400]
    # A task that is slow to stop may have recorded rounds after its last checkpoint: they are computed again.
    assert timeless(records(tmp_path / "s" / "uniform-seed0"))[: len(kept)] == timeless(kept)


def test_interrupted_where_the_folder_is_not_shared_progress_travels_back(setting_file, tmp_path, cluster, monkeypatch):
    from fedhv.runs.config import load_setting

    run = replace(
        _run(tmp_path / "study" / f"uniform-{uuid.uuid4().hex}", setting_file),
        setting=load_setting(str(setting_file), ["training.rounds=100000"]),
    )
    real = fedhv.runs.cluster._parcel
    monkeypatch.setattr(fedhv.runs.cluster, "_parcel", lambda run, mark: real(run, tmp_path / "no such mark"))
    there = Path(tempfile.gettempdir())
    ends = time.monotonic() + HANG

    def tick():
        histories = there.glob(f"fedhv-*/{run.folder.name}/history.jsonl")
        if time.monotonic() > ends or any(path.read_bytes().count(b"\n") >= 3 for path in histories):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="every run can be resumed"):
        on_ray([run], 1, tick)
    assert len(records(run.folder)) >= 3
    assert not list(there.glob(f"fedhv-*/{run.folder.name}"))


def test_a_problem_of_ones_own_cannot_be_sent(tmp_path):
    with pytest.raises(InputError, match="cannot be sent to other processes"):
        compare(everything_random(), ["uniform"], [0], out=tmp_path / "s", executor="ray")


def test_without_ray_one_is_told_how_to_get_it(setting_file, tmp_path, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "ray", None)
    for arguments in (["compare", setting_file], ["reproduce", "main"]):
        outcome = command(*arguments, "--executor", "ray", "--out", tmp_path / "s")
        assert (outcome.code, outcome.out) == (2, "")
        assert "pip install 'fedhv[ray]'" in outcome.err
    assert not (tmp_path / "s").exists()


def test_an_unknown_executor_is_named(setting_file, command):
    outcome = command("compare", setting_file, "--executor", "rai")
    assert outcome.code == 2
    assert "Did you mean 'ray'" in outcome.err
