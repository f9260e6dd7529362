"""`fedhv doctor`: what a bug report needs, and nothing about the reporter."""

import json

import pytest

import fedhv
from fedhv.runs import doctor


def test_it_says_what_is_installed_and_where_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDHV_DATA", str(tmp_path / "secret"))
    done = command("doctor", "--no-self-test")
    assert done.code == 0, done.err
    for words in (f"fedhv: {fedhv.__version__}", "torch: ", "Triton: ", "safetensors", "mnist: not there", "figures: "):
        assert words in done.out
    assert "from FEDHV_DATA; does not exist" in done.out
    assert "secret" not in done.out
    assert "self-test" not in done.out
    assert done.out.endswith("No problem was found.\n")


def test_the_self_test_compares_two_engines(command, monkeypatch):
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2)
    done = command("doctor", "--json")
    found = {each["name"]: each for each in json.loads(done.out) if each["section"] == "self-test"}
    assert done.code == 0, done.err
    assert set(found) == {"sequential engine, cpu device", "auto engine, auto device", "agreement"}
    assert "2 rounds in" in found["sequential engine, cpu device"]["value"]


def test_what_is_broken_is_marked_and_does_not_stop_the_report(command, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError(f"no driver\nin {tmp_path}/lib")

    monkeypatch.setattr(doctor, "choose_engine", broken)
    done = command("doctor")
    assert done.code == 1
    assert "! auto engine, auto device: RuntimeError: no driver in …/lib" in done.out
    assert str(tmp_path) not in done.out
    assert done.out.endswith("Problems: 2, marked with !\n")


def test_results_that_cannot_be_right_are_an_error():
    run = fedhv.run("digits", "uniform", rounds=1, participants=2, local_steps=1, quiet=True)
    assert "losses" in doctor._checked(run, "sequential", "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "LEVEL", 0.1)
        with pytest.raises(fedhv.FedHVError, match="Unexpected results"):
            doctor._checked(run, "sequential", "cpu")


def test_a_missing_package_of_the_core_is_a_problem(monkeypatch):
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda name: ["numpy>=2.0", "nothing-like-it>=1", "x; extra == 'y'"]
    )
    core, extra = doctor._packages()
    assert not core.ok
    assert "nothing-like-it MISSING" in core.value
    assert (extra.name, extra.value, extra.ok) == ("y", "missing: x", True)
