"""`fedhv reproduce`, as a user types it."""

import json

import pytest

from fedhv.cli.reproduce import _duration

pytestmark = pytest.mark.usefixtures("six")
ONE = (
    "--settings", "multimnist", "--methods", "uniform,fsmgda", "--seeds", "0", "--jobs", 1, "--engine", "sequential",
    "--out", "r",
)  # fmt: skip


def test_the_command_runs_prints_and_writes(command, tmp_path):
    done = command("reproduce", "main", *ONE)
    assert done.code == 0
    assert "multimnist (study 1 of 1): 2 of 2 runs to do" in done.err
    for text in ("90.17 ± 0.18", "Uniform", "FSMGDA", "Rankings", "The tables are in r/tables/narrowed"):
        assert text in done.out
    assert "| multimnist | Uniform |" in (tmp_path / "r/tables/narrowed/main.md").read_text()
    again = command("reproduce", "main", *ONE)
    assert (again.code, again.err) == (0, "")
    assert again.out == done.out


def test_quiet_prints_nothing_and_json_nothing_else(command):
    quiet = command("reproduce", "main", *ONE, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    done = command("reproduce", "main", *ONE, "--json")
    assert done.err == ""
    (main,) = json.loads(done.out)["experiments"]
    assert main["experiment"] == "main"
    assert [row["method"] for row in main["tables"]["main"]][:2] == ["uniform", "fsmgda"]
    assert len(main["tables"]["main-rankings"]) == 2


def test_rounds_are_those_asked_for(command, tmp_path):
    assert command("reproduce", "main", *ONE, "--rounds", 1, "-q").code == 0
    assert len((tmp_path / "r/multimnist/uniform-seed0/history.jsonl").read_text().splitlines()) == 1


def test_without_runs_what_is_there_is_compared_and_what_is_missing_said(command):
    command("reproduce", "main", *ONE, "--quiet")
    done = command("reproduce", "all", "--no-run", "--out", "r", "--seeds", "0,1")
    assert done.code == 0
    assert "What is missing from main:" in done.out
    assert "multimnist: uniform seed 1; fsmgda seed 1; fedcmoo seeds 0, 1; fedhv seeds 0, 1" in done.out
    assert "What is missing from efficiency:" in done.out
    assert done.err == ""


def test_all_can_be_narrowed_to_what_some_experiments_have(command):
    done = command("reproduce", "all", *ONE, "--json")
    assert done.code == 0
    names = [each["experiment"] for each in json.loads(done.out)["experiments"]]
    assert names == ["main", "loss-hv", "per-task", "last10", "references"]


def test_a_dry_run_lists_and_estimates_and_writes_nothing(command, tmp_path):
    done = command("reproduce", "main", "--dry-run", "--out", "r")
    assert done.code == 0
    assert "calibration/celeba5-b/seed1" in done.out
    assert "cifar10-mnist-b/fedhv-seed2026" in done.out
    assert "77 of 77 to run; time: unknown." in done.out
    assert not (tmp_path / "r").exists()
    command("reproduce", "main", *ONE, "-q")
    after = command("reproduce", "main", "--settings", "multimnist", "--seeds", "0,1", "--dry-run", "--out", "r")
    assert "7 of 9 to run; time: about" in after.out
    assert "and 5 unknown" in " ".join(after.out.split())
    listed = json.loads(command("reproduce", "main", *ONE, "--dry-run", "--json").out)
    assert (listed["to_do"], listed["unknown"]) == (0, 0)
    assert [run["state"] for run in listed["runs"]] == ["finished", "finished"]
    other = command("reproduce", "main", *ONE, "--dry-run", "--rounds", 9)
    assert "`training.rounds` should be 9, found 2" in other.out


def test_runs_in_the_way_are_said_to_block_and_are_not_to_do(command):
    command("reproduce", "main", *ONE, "-q")
    wanted = ("reproduce", "main", *ONE, "--dry-run", "--rounds", 9, "--seeds", "0,1")
    done = command(*wanted)
    assert done.out.count("blocks") == 2
    said = " ".join(done.out.split())
    assert "2 of 4 to run; time: about" in said
    assert "2 cannot be resumed, and nothing will run." in said
    tables = json.loads(command(*wanted, "--json").out)
    assert (tables["to_do"], tables["blocked"], tables["unknown"]) == (2, 2, 0)
    assert [run["blocks"] for run in tables["runs"]] == [run["state"] == "other" for run in tables["runs"]]
    assert command("reproduce", "main", *ONE, "--rounds", 9, "--seeds", "0,1").code == 2  # as was said


def test_without_measurements_and_datasets_a_dry_run_says_roughly_how_long(command, six, tmp_path):
    six["multimnist"].write_text(six["multimnist"].read_text().replace("problems:benchmark", "multimnist"))
    dry = ("reproduce", "main", "--dry-run", "--out", "r", "--seeds", "0", "--data", tmp_path / "nothing")
    done = command(*dry, "--settings", "multimnist")
    assert done.code == 0
    assert done.out.count("missing") == 5
    said = " ".join(done.out.split())
    assert "5 of 5 to run; time: about" in said
    tables = json.loads(command(*dry, "--settings", "multimnist,mnist-fmnist", "--json").out)
    assert (tables["to_do"], tables["unknown"]) == (10, 5)
    assert tables["seconds"] > 0
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("mian",), "Did you mean 'main'?"),
        (("main", "--settings", "multimnst"), "Did you mean 'multimnist'?"),
        (("main", "--methods", "fedcmo"), "Did you mean 'fedcmoo'?"),
        (("main", "--seeds", "a"), "--seeds should be whole numbers"),
        (("main", "--reference", "papr"), "Did you mean 'paper'?"),
        (("main", "--engine", "stackd"), "Did you mean 'stacked'?"),
        (("main", "--no-run", "--out", "nowhere"), "Found no such folder"),
        (("ablations", "--settings", "multimnist"), "The selection has no run of ablations"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command, tmp_path, arguments, reason):
    done = command("reproduce", *arguments)
    assert done.code == 2
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    assert reason in done.err
    assert not (tmp_path / "runs").exists()


def test_missing_data_is_one_line_and_exit_code_2(command, six, tmp_path):
    six["multimnist"].write_text(six["multimnist"].read_text().replace("problems:benchmark", "multimnist"))
    done = command("reproduce", "main", *ONE, "--data", tmp_path / "nothing")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "MNIST is not complete" in done.err
    assert "fedhv data download mnist" in done.err
    assert not (tmp_path / "r").exists()


def test_a_run_that_fails_is_told_after_the_tables(command, six):
    six["multimnist"].write_text(six["multimnist"].read_text() + "\n[methods.fsmgda]\nlocal_lr = 1e30\n")
    done = command("reproduce", "main", *ONE)
    assert done.code == 1
    assert "multimnist: fsmgda seed 0" in done.out
    assert "no longer finite" in done.err


def test_ctrl_c_says_how_to_go_on(command, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedhv.report.progress.Lines.round", stop)
    done = command("reproduce", "main", *ONE)
    assert done.code == 130
    assert "Continue with the same command: fedhv reproduce main" in done.err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (0.2, "under 1 s"), (42.4, "42 s"), (61, "1 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_durations(seconds, text):
    assert _duration(seconds) == text
