"""Bad input on the command line: one line that says what is wrong, exit code 2, and nothing left behind."""

import errno
import io
import os
import re

import pytest
from problems import SETTING

from fedhv.runs.checkpoint import NAME, PREVIOUS

CASES = {
    "unknown setting": (["run", "digitz"], "Unknown setting 'digitz'. Did you mean 'digits'?"),
    "unknown method": (["run", "small.toml", "--method", "fedhw"], "Unknown method 'fedhw'. Did you mean 'fedhv'?"),
    "unknown key": (["run", "small.toml", "--set", "training.round=3"], "Did you mean 'training.rounds'?"),
    "unknown section": (["run", "small.toml", "--set", "trainig.rounds=3"], "Did you mean 'training'?"),
    "unknown hyper-parameter": (["run", "small.toml", "--set", "methods.fedhv.flor=1"], "Did you mean 'floor'?"),
    "unknown benchmark": (["run", "small.toml", "--set", "benchmark=digit"], "Did you mean 'digits'?"),
    "unknown engine": (["run", "small.toml", "--engine", "sequentail"], "Did you mean 'sequential'?"),
    "unknown device": (["run", "small.toml", "--device", "gpu0"], "Unknown device 'gpu0'"),
    "unknown precision": (["run", "small.toml", "--precision", "float31"], "float31"),
    "unknown reference": (["run", "small.toml", "--reference", "tight"], "Unknown reference 'tight'"),
    "unknown option": (["run", "small.toml", "--round", "3"], "--round"),
    "unknown command": (["ru"], "No such command 'ru'"),
    "unknown column": (["run", "small.toml", "--set", 'federation.strata=["color"]'], "Did you mean 'colour'?"),
    "values without commas": (["compare", "small.toml", "--methods", "fedhv", "uniform"], "by commas without spaces"),
    "missing setting": (["run"], "Missing argument 'SETTING'"),
    "missing file": (["run", "none.toml"], "none.toml could not be read"),
    "broken file": (["run", "broken.toml"], "broken.toml is not valid TOML"),
    "file with unknown key": (["run", "typo.toml"], "Did you mean 'training.momentum'?"),
    "file without training": (["run", "half.toml"], "The key `training` is missing"),
    "long reference": (["run", "small.toml", "--reference", "three.toml"], "should have 2 values"),
    "long reference in the setting": (
        ["run", "small.toml", "--set", "methods.fedhv.reference=[1.0, 2.0, 3.0]"],
        "should have 2 values",
    ),
    "reference of zero": (["run", "small.toml", "--reference", "zero.toml"], "positive and finite"),
    "negative reference": (
        ["run", "small.toml", "--set", "methods.fedhv.reference=[1.0, -2.0]"],
        "positive and finite",
    ),
    "words for a reference": (["run", "small.toml", "--set", "methods.fedhv.reference=high"], "could not be made"),
    "M > N": (["run", "small.toml", "--set", "federation.participants=7"], "(N = 6). Found M = 7"),
    "M = 0": (["run", "small.toml", "--set", "federation.participants=0"], "at least 1. Found 0"),
    "K = 0": (["run", "small.toml", "--set", "training.local_steps=0"], "`training.local_steps` should be at least 1"),
    "T = 0": (["run", "small.toml", "--rounds", "0"], "--rounds"),
    "b = 0": (["run", "small.toml", "--set", "training.batch_size=0"], "`training.batch_size` should be at least 1"),
    "negative local rate": (["run", "small.toml", "--set", "methods.fedhv.local_lr=-0.1"], "`local_lr` should be"),
    "negative server rate": (["run", "small.toml", "--set", "methods.fedhv.server_lr=-1"], "`server_lr` should be"),
    "words for a rate": (["run", "small.toml", "--set", "methods.fedhv.local_lr=fast"], "`local_lr` should be"),
    "fractional iterations": (["run", "small.toml", "--set", "methods.fedcmoo.iterations=1.5"], "whole number"),
    "negative seed": (["run", "small.toml", "--seed", "-1"], "--seed"),
    "negative alpha": (["run", "small.toml", "--set", "federation.alpha=-1"], "`federation.alpha` should be positive"),
    "NaN in the data": (["run", "small.toml", "--set", "benchmark=problems:with_nan"], "NaN or infinity"),
    "label out of range": (
        ["run", "small.toml", "--set", "benchmark=problems:with_wrong_label"],
        "Task 'colour' expects labels from 0 to 2. Found 0 to 3",
    ),
    "empty client": (
        ["run", "small.toml", "--set", "federation.samples_per_client=[5, 5, 0, 5, 5, 5]"],
        "between 1 and 240 examples each. Found 0 to 5",
    ),
    "client larger than the data": (
        ["run", "small.toml", "--set", "federation.samples_per_client=241"],
        "between 1 and 240 examples",
    ),
    "BatchNorm": (["run", "small.toml", "--set", "benchmark=problems:with_batch_norm"], "Use nn.GroupNorm instead"),
    "too few outputs": (["run", "small.toml", "--set", "benchmark=problems:with_one_output"], "list of 2 outputs"),
    "output of another width": (
        ["run", "small.toml", "--set", "benchmark=problems:with_a_narrow_head"],
        "output for task 'colour' should have shape (2, 3) for 2 examples. Found (2, 2)",
    ),
    "model that cannot take the inputs": (
        ["run", "small.toml", "--set", "benchmark=problems:with_whole_numbers"],
        "of torch.int64. Found RuntimeError",
    ),
    "mean loss": (["run", "small.toml", "--set", "benchmark=problems:with_mean_loss"], "use reduction='none'"),
    "method that cannot be imported": (["run", "small.toml", "--method", "nowhere:Method"], "could not be imported"),
    "method that is none": (["run", "small.toml", "--method", "problems:Small"], "subclass of fedhv.Method"),
    "override without value": (["run", "small.toml", "--set", "training.rounds"], "section.key=value"),
    "words for seeds": (["compare", "small.toml", "--seeds", "0,one"], "--seeds should be whole numbers"),
    "negative seeds": (["compare", "small.toml", "--seeds", "0,-1"], "from 0 to 2^63 - 1. Found -1"),
    "a seed that no file could hold": (["run", "small.toml", "--seed", str(2**63)], "from 0 to 2^63 - 1. Found 92"),
    "a seed twice": (["compare", "small.toml", "--seeds", "1,1"], "none twice"),
    "no method": (["compare", "small.toml", "--methods", ","], "at least one"),
    "unknown method to compare": (["compare", "small.toml", "--methods", "uniform,fsmga"], "Did you mean 'fsmgda'?"),
    "no jobs": (["compare", "small.toml", "--jobs", "0"], "--jobs"),
    "negative margin": (["calibrate", "small.toml", "--margin", "-0.1"], "`calibration.margin` should be positive"),
    "no calibration": (["calibrate", "small.toml", "--rounds", "0"], "--rounds"),
    "calibration on nothing": (["calibrate", "small.toml", "--engine", "warp"], "Unknown engine 'warp'"),
    "calibration of a bad model": (
        ["calibrate", "small.toml", "--set", "benchmark=problems:with_batch_norm"],
        "Use nn.GroupNorm instead",
    ),
    "show of nothing": (["show", "digitz"], "Did you mean 'digits'?"),
}


@pytest.fixture
def folder(tmp_path):
    files = {
        "small.toml": SETTING,
        "broken.toml": "a = = 1\n",
        "typo.toml": SETTING.replace("momentum", "momentun"),
        "half.toml": SETTING.split("[training]")[0],
        "three.toml": "values = [1.0, 2.0, 3.0]\n",
        "zero.toml": "values = [1.0, 0.0]\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}, set(folder.rglob("*"))


def assert_refused(done, message):
    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(r"Error: [^\n]+\n", done.err), done.err
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_line_exit_code_two_and_nothing_left_behind(case, command, folder):
    arguments, message = CASES[case]
    out = ["--out", "new/place.toml" if arguments[0] == "calibrate" else "new/place"]
    before = everything(folder)
    needs_out = arguments[0] in ("run", "compare", "calibrate") and len(arguments) > 1
    assert_refused(command(*arguments, *(out if needs_out else [])), message)
    assert everything(folder) == before


@pytest.mark.parametrize("verb", ["run", "compare", "calibrate"])
@pytest.mark.parametrize("place", ["small.toml/new", "/proc/fedhv/new", "a" * 300])
def test_a_folder_that_cannot_be_written_is_refused(verb, place, command, folder):
    before = everything(folder)
    out = place + ("/r.toml" if verb == "calibrate" else "")
    assert_refused(command(verb, "small.toml", "--out", out), "")
    assert everything(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(command, folder):
    (folder / "locked").mkdir(mode=0o500)
    assert_refused(command("run", "small.toml", "--out", "locked/run"), "cannot be written")


def test_a_file_in_place_of_the_folder_is_refused(command, folder):
    assert_refused(command("run", "small.toml", "--out", "zero.toml"), "should be a folder. Found a file.")


@pytest.mark.parametrize("verb", ["compare", "tune", "front"])
def test_several_runs_need_a_folder_that_is_no_run_and_no_file(verb, command, folder):
    assert command("run", "small.toml", "--method", "uniform", "--rounds", "1", "--out", "run", "--quiet").code == 0
    before = everything(folder)
    methods = ["--methods", "fixed"]
    for place in ("zero.toml", "zero.toml/new"):
        assert_refused(command(verb, "small.toml", *methods, "--out", place), "zero.toml should be a folder. Found a")
    assert_refused(
        command(verb, "small.toml", *methods, "--out", "run"), "run is the folder of one run. Choose another"
    )
    assert everything(folder) == before


def test_a_name_too_long_for_a_file_is_an_unknown_setting(command, folder):
    assert_refused(command("run", "s" * 5000), "")


def test_more_than_the_memory_holds_is_one_line(command, folder):
    before = everything(folder)
    done = command("run", "small.toml", "--set", "federation.clients=1000000000000000")
    assert done.code == 1
    assert re.fullmatch(r"Error: There is not enough memory[^\n]+\n", done.err), done.err
    assert everything(folder) == before


def test_an_output_without_space_is_one_line(command, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    done = command("list", "methods")
    assert done.code == 1
    assert re.fullmatch(r"Error: The output cannot be written: no space is left\.[^\n]+\n", done.err), done.err


def test_a_closed_output_is_no_error(command, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert command("list", "methods").code == 0


def test_corrupt_checkpoints_are_refused_and_everything_stays(command, folder):
    arguments = ("run", "small.toml", "--method", "uniform", "--out", "r")
    assert command(*arguments).code == 0
    (folder / "r" / "summary.json").unlink()
    for name in (NAME, PREVIOUS):
        (folder / "r" / name).write_bytes(b"not a checkpoint")
    before = everything(folder)
    done = command(*arguments, "--resume")
    assert_refused(done, "is corrupt: its checksum does not match")
    assert "Delete r to start the run again." in done.err
    assert everything(folder) == before


def test_another_run_in_the_folder_is_refused_and_stays(command, folder):
    assert command("run", "small.toml", "--method", "uniform", "--out", "r").code == 0
    before = everything(folder)
    assert_refused(command("run", "small.toml", "--method", "uniform", "--out", "r"), "already has this run")
    assert_refused(command("run", "small.toml", "--method", "uniform", "--out", "r", "--seed", 1, "--resume"),
                   "`run.seed` was 0 and is now 1")  # fmt: skip
    assert everything(folder) == before


def test_it_is_the_same_from_a_shell(finished, folder):
    arguments, message = CASES["M > N"]
    assert_refused(finished(*arguments, "--out", "new/place"), message)
    assert not (folder / "new").exists()


@pytest.mark.parametrize("arguments", [("report",), ("diagnose",), ("show",), ("run",), ("data", "verify", "--data")])
def test_a_name_that_is_too_long_is_refused_in_one_line(arguments, command):
    done = command(*arguments, "9" * 5000)
    assert done.code in (1, 2)
    assert re.fullmatch("Error: [^\\n]+\n", done.err), done.err
