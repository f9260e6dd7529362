"""The command line, as a user types it."""

import io
import json
import os
import re
import shlex
import signal
import sys
import tomllib
from dataclasses import replace

import pytest
import torch
from problems import SETTING, everything_random
from rich.console import Console
from runs_on_disk import contents
from waiting import HANG, wait_until

import fedhv
from fedhv import load_setting, run
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.request import Refusal
from fedhv.report.progress import Lines, RunBars, observer
from fedhv.runs.config import setting_tables, shipped_settings
from fedhv.runs.reference import read_reference
from fedhv.simulation.observer import Progress
from fedhv.simulation.record import Round

FAST = ("--rounds", 2, "--set", "training.local_steps=1", "--set", "federation.participants=2")
REFERENCE = ("--set", "methods.fedhv.reference=[2.0, 2.0]")


@pytest.fixture
def small(setting_file):
    """The name of the setting file in the working directory."""
    return setting_file.name


# --- run --------------------------------------------------------------------------------------------------


def test_run_prints_a_table_and_says_where_the_run_is(command, small, tmp_path):
    done = command("run", small, "--method", "uniform", "--seed", 3)
    assert done.code == 0
    assert "uniform on small, seed 3" in done.out
    assert "colour" in done.out
    assert "größe" in done.out
    assert "The run is in runs/small/uniform-seed3" in done.out
    assert "Next:\n  fedhv report runs/small/uniform-seed3  tables, figures and a page\n" in done.out
    assert "fedhv compare small.toml" in done.out
    assert (tmp_path / "runs/small/uniform-seed3/summary.json").exists()
    assert "round 4/4" in done.err


def test_run_without_a_method_is_fedhv_and_calibrates_first(command, small, tmp_path):
    done = command("run", small)
    assert done.code == 0
    assert "Calibrating a reference with 2 uniform-weight rounds on small" in done.err
    assert (tmp_path / "runs/small/fedhv-seed0/reference.toml").exists()


def test_json_is_all_that_is_printed_and_has_every_key(command, small, tmp_path):
    done = command("run", small, "--json", "--out", "r")
    assert done.code == 0
    assert done.err == ""
    summary = json.loads(done.out)
    assert summary == json.loads((tmp_path / "r" / "summary.json").read_text())
    assert set(summary) >= {
        "setting", "method", "seed", "rounds", "mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "tasks",
        "weights", "reference", "min_report_slack", "floor_activations", "communication", "seconds",
    }  # fmt: skip
    assert set(summary["communication"]) >= {
        "downlink_bytes", "uplink_bytes", "calibration_bytes", "auxiliary_scalars_per_client_round"
    }  # fmt: skip
    assert summary["communication"]["auxiliary_scalars_per_client_round"] == 4


@pytest.mark.parametrize("option", ["--quiet", "-q"])
def test_quiet_prints_nothing(option, command, small):
    done = command("run", small, option)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_every_option_of_run_has_its_effect(command, small, tmp_path):
    (tmp_path / "r.toml").write_text("values = [2.0, 3.0]\n")
    done = command(
        "run", small, "--method", "fedhv", "--seed", 5, "--rounds", 3, "--out", "x/y", "--engine", "sequential",
        "--device", "cpu", "--reference", "r.toml", "--set", "training.batch_size=4", "--set", "evaluation.every=0",
        "--json",
    )  # fmt: skip
    summary = json.loads(done.out)
    assert (summary["seed"], summary["rounds"], summary["reference"]) == (5, 3, [2.0, 3.0])
    assert (summary["engine"], summary["device"]) == ("sequential", "cpu")
    config = tomllib.loads((tmp_path / "x/y/config.toml").read_text())
    assert config["setting"]["training"]["batch_size"] == 4
    assert config["setting"]["evaluation"]["every"] == 0
    same = run(
        str(tmp_path / small), seed=5, rounds=3, reference=[2.0, 3.0],
        override=["training.batch_size=4", "evaluation.every=0"],
    )  # fmt: skip
    assert summary["tasks"] == same.summary.as_dict()["tasks"]


def test_the_embedded_benchmark_runs_with_nothing_but_its_name(command, tmp_path):
    done = command("run", "digits", *FAST, "--set", "calibration.rounds=1", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert [task["name"] for task in summary["tasks"]] == ["clear", "faint"]
    assert summary["communication"]["downlink_bytes"] == 2 * 2 * 4 * (34_635 + 2)
    assert (tmp_path / "runs/digits/fedhv-seed0/model.safetensors").exists()


def test_resume_on_the_command_line_returns_a_finished_run(command, small):
    first = command("run", small, "--method", "uniform", "--json")
    again = command("run", small, "--method", "uniform", "--json", "--resume")
    assert again.code == 0
    assert json.loads(again.out) == json.loads(first.out)
    assert command("run", small, "--method", "uniform").code == 2


def test_resume_where_there_is_no_run_starts_one_and_says_so(command, small):
    """A first start that was cut, or whose folder is gone, is resumed by the same command; a mistyped one is seen."""
    arguments = ("run", small, "--method", "uniform", "--out", "new", "--resume")
    note = "new has no run to resume. Starting from the first round."
    done = command(*arguments)
    assert (done.code, done.err.splitlines()[0]) == (0, note)
    assert note not in command(*arguments).err  # now there is one
    wrong = command("run", small, "--method", "uniform", "--out", "other", "--resume", "--set", "training.rounds=0")
    assert (wrong.code, "has no run" in wrong.err) == (2, False)


def test_a_run_that_fails_exits_with_one_and_one_line(command, small):
    done = command("run", small, "--method", "uniform", "--set", "methods.uniform.local_lr=1e30", "--quiet")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "diverged" in done.err


# --- Ctrl-C -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_run_that_is_resumed_as_the_message_says(number, process, command, tmp_path):
    (tmp_path / "a setting.toml").write_text(SETTING.replace("problems:benchmark", "problems:with_fuse"))
    arguments = ("run", "a setting.toml", "--method", "uniform", "--out", "my run")
    history, go = tmp_path / "my run" / "history.jsonl", tmp_path / "go"
    running = process(*arguments, HOLD_WHEN=str(history), HOLD_UNTIL=str(go))
    wait_until(lambda: history.exists() and history.read_text().count("\n") == 1, "the first round", running)
    os.kill(running.pid, number)
    go.touch()
    _, err = running.communicate(timeout=HANG)
    assert running.returncode == 130
    assert "Traceback" not in err
    message = err.strip().splitlines()[-1]
    assert "Stopped after round" in message
    said = shlex.split(message.partition("Continue with: ")[2])
    assert said == ["fedhv", *arguments, "--resume"]
    assert not (tmp_path / "my run" / "summary.json").exists()

    assert command(*said[1:]).code == 0
    assert command(*arguments[:-1], "whole").code == 0
    assert contents(tmp_path / "my run") == contents(tmp_path / "whole")


def test_a_command_that_is_interrupted_and_has_nothing_to_add_says_so(command, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["fedhv.cli.listing"], "shipped_settings", interrupted)
    done = command("list")
    assert (done.code, done.out, done.err) == (130, "", "Error: Interrupted.\n")


# --- compare ----------------------------------------------------------------------------------------------


def test_compare_prints_one_table_over_methods_and_seeds(command, small, tmp_path):
    done = command("compare", small, "--methods", "uniform,fsmgda", "--seeds", "0, 1", "--jobs", 1, "--rounds", 2)
    assert done.code == 0
    for text in ("uniform", "fsmgda", "MeanAcc", "WorstAcc", "MeanLoss", "HV", "±", "seeds 0, 1, 2 rounds"):
        assert text in done.out
    assert "Every run, its history and its model are in runs/small" in done.out
    assert {path.name for path in (tmp_path / "runs/small").iterdir()} == {
        "uniform-seed0", "uniform-seed1", "fsmgda-seed0", "fsmgda-seed1"
    }  # fmt: skip


def test_compare_on_the_embedded_benchmark_and_again_without_running_anything(command, tmp_path, forked):
    arguments = ("compare", "digits", "--methods", "uniform,fedhv", "--seeds", "0,1", *FAST, "--json", "--set",
                 "calibration.rounds=1", "--out", "study", "--jobs")  # fmt: skip
    first = command(*arguments, 2)
    assert first.code == 0, first.err
    summaries = json.loads(first.out)
    assert [(s["method"], s["seed"]) for s in summaries] == [
        ("uniform", 0), ("fedhv", 0), ("uniform", 1), ("fedhv", 1)
    ]  # fmt: skip
    files = sorted((tmp_path / "study").glob("*/summary.json"))
    assert len(files) == 4
    before = [path.stat().st_mtime_ns for path in files]
    again = command(*arguments, 1)
    assert json.loads(again.out) == summaries
    assert [path.stat().st_mtime_ns for path in files] == before


def test_quiet_compare_prints_nothing(command, small):
    done = command("compare", small, "--methods", "uniform", "--seeds", 0, "--jobs", 1, "--rounds", 1, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


# --- calibrate --------------------------------------------------------------------------------------------


def test_calibrate_writes_a_reference_that_run_takes(command, small, tmp_path):
    done = command("calibrate", small, "--seeds", "3,4", "--rounds", 2, "--margin", 0.5, "--out", "refs/r.toml")
    assert done.code == 0
    assert "Wrote refs/r.toml; use it with --reference refs/r.toml" in done.out
    reference = read_reference(tmp_path / "refs/r.toml")
    assert reference.provenance.seeds == (3, 4)
    assert (reference.provenance.rounds, reference.provenance.margin) == (2, 0.5)
    used = command("run", small, "--reference", "refs/r.toml", "--json")
    summary = json.loads(used.out)
    assert summary["reference"] == list(reference.values)
    assert summary["communication"]["calibration_bytes"] == reference.cost.traffic.total


def test_calibrate_has_the_settings_defaults_and_overwrites_nothing(command, small, tmp_path):
    done = command("calibrate", small, "--json")
    assert done.code == 0
    assert done.err == ""
    printed = json.loads(done.out)
    assert printed["provenance"]["rounds"] == 2
    assert printed["values"] == list(read_reference(tmp_path / "small-reference.toml").values)
    again = command("calibrate", small)
    assert again.code == 2
    assert "small-reference.toml already exists" in again.err


# --- list and show ----------------------------------------------------------------------------------------


def test_list_names_settings_methods_and_engines(command):
    done = command("list")
    assert done.code == 0
    for name in ("digits", "fedhv", "uniform", "fsmgda", "fedcmoo", "sequential"):
        assert name in done.out


def test_list_as_json(command):
    listing = json.loads(command("list", "--json").out)
    assert listing["methods"] == ["fedhv", "uniform", "fsmgda", "fedcmoo"]
    assert "digits" in listing["settings"]
    assert "digits" in listing["benchmarks"]


@pytest.mark.parametrize("name", shipped_settings())
def test_show_prints_a_setting_that_can_be_loaded_again(name, command, tmp_path):
    done = command("show", name)
    assert done.code == 0
    (tmp_path / f"{name}.toml").write_text(done.out)
    again = load_setting(str(tmp_path / f"{name}.toml"))
    assert setting_tables(again) == setting_tables(load_setting(name))


def test_show_is_fully_resolved_with_changes(command):
    shown = tomllib.loads(command("show", "digits", "--set", "training.rounds=7").out)
    assert shown["training"]["rounds"] == 7
    assert shown["methods"]["fedcmoo"]["iterations"] == 1000
    assert shown["federation"]["seed"] == 10


# --- help and version -------------------------------------------------------------------------------------


def test_the_version_is_the_packages(finished):
    done = finished("--version")
    assert (done.code, done.out.strip()) == (0, f"fedhv {fedhv.__version__}")


def test_help_lists_the_commands(command):
    done = command("--help")
    assert done.code == 0
    for name in ("run", "compare", "calibrate", "list", "show"):
        assert name in done.out
    assert "--resume" in command("run", "--help").out


def test_no_command_at_all_prints_the_help_and_no_error(command):
    done = command()
    assert "Usage" in done.out + done.err
    assert "Error" not in done.out + done.err


# --- one's own method and benchmark -----------------------------------------------------------------------

OWN_METHOD = '''
from dataclasses import dataclass

from fedhv import Method, State, Train


@dataclass(frozen=True, kw_only=True)
class Halved(Method):
    """Uniform weights, half the step."""

    name = "halved"
    factor: float = 0.5

    def round(self, state):
        replies = yield Train(state.model)
        memory = {"rounds": state.memory["rounds"] + 1 if state.memory else replies.mean_update.new_ones(())}
        return State(state.model + self.factor * replies.mean_update, state.weights, memory)
'''

OWN_BENCHMARK = """
import torch
from fedhv import Benchmark, Examples, classification
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        return self.layer(x).split([2, 3], dim=1)


def load():
    torch.manual_seed(0)
    x = torch.randn(100, 4)
    data = Examples.of(x, [(x[:, 0] > 0).long(), (x[:, 1] > 0).long() + (x[:, 2] > 0).long()])
    return Benchmark("own", Net, (classification("sign", 2), classification("count", 3)), data, data[:30])
"""


def test_a_method_of_ones_own_is_named_by_module_and_class_from_the_working_directory(command, small, tmp_path):
    (tmp_path / "own_method_alone.py").write_text(OWN_METHOD)
    done = command("run", small, "--method", "own_method_alone:Halved", "--json")
    assert done.code == 0, done.err
    own = json.loads(done.out)
    assert own["method"] == "halved"
    assert (tmp_path / "runs/small/halved-seed0/summary.json").exists()
    uniform = run(str(tmp_path / small), "uniform", override=["methods.uniform.server_lr=0.5"])
    assert own["tasks"] == uniform.summary.as_dict()["tasks"]


def test_a_method_of_ones_own_has_hyper_parameters(command, small, tmp_path):
    (tmp_path / "own_method_tuned.py").write_text(OWN_METHOD)
    name = "own_method_tuned:Halved"
    done = command("run", small, "--method", name, "--set", f"methods.{name}.factor=1.0", "--json")
    same = run(str(tmp_path / small), "uniform", override=["methods.uniform.server_lr=1.0"])  # not the setting's 1.1
    assert json.loads(done.out)["tasks"] == same.summary.as_dict()["tasks"]
    wrong = command("run", small, "--method", name, "--set", f"methods.{name}.factr=1.0", "--out", "w")
    assert (wrong.code, "Did you mean 'factor'" in wrong.err) == (2, True)


@pytest.mark.slow
def test_methods_and_benchmarks_of_ones_own_are_compared_in_worker_processes(finished, tmp_path):
    (tmp_path / "own_method.py").write_text(OWN_METHOD)
    (tmp_path / "own_benchmark.py").write_text(OWN_BENCHMARK)
    (tmp_path / "own.toml").write_text(
        SETTING.replace("problems:benchmark", "own_benchmark:load").replace(
            "samples_per_client = 30", "samples_per_client = [10, 12, 14, 16, 18, 20]"
        )
    )
    done = finished(
        "compare", "own.toml", "--methods", "fedcmoo,own_method:Halved", "--seeds", 0, "--jobs", 2, "--json"
    )
    assert done.code == 0, done.err
    assert [summary["method"] for summary in json.loads(done.out)] == ["fedcmoo", "halved"]
    assert [task["name"] for task in json.loads(done.out)[0]["tasks"]] == ["sign", "count"]


# --- progress ---------------------------------------------------------------------------------------------


def watched(kind, **console):
    file = io.StringIO()
    watch = kind(Console(file=file, width=200, **console))
    changes = ["federation.participants=2", "training.local_steps=1"]
    run(everything_random(), "uniform", rounds=3, override=changes, observer=watch)
    return file.getvalue()


def test_a_terminal_shows_a_bar_with_round_accuracies_weights_and_time_left():
    shown = watched(RunBars, force_terminal=True, force_interactive=True)
    for text in ("uniform seed 0", "3/3", "mean", "worst", "w 0.50 0.50", "0:00:00"):
        assert text in shown


def test_a_log_shows_a_line_when_a_run_starts_and_ends():
    lines = watched(Lines).splitlines()
    assert lines[0].startswith("Engine: ")
    assert lines[1] == "uniform seed 0: 3 rounds"
    assert "round 3/3" in lines[-1]
    assert "w 0.50 0.50" in lines[-1]


def test_text_in_square_brackets_is_shown_as_it_is():
    file = io.StringIO()
    for kind in (RunBars, Lines):
        kind(Console(file=file, width=200)).message("a folder [/home/me] and [bold]")
    assert file.getvalue().count("[/home/me] and [bold]") == 2


def played(number, weights, evaluation=None):
    return Round(
        number=number, weights=weights, downlink_bytes=8, uplink_bytes=8, exchanges=1, evaluation=evaluation
    )  # fmt: skip


STATES = [
    Progress("fedhv seed 0", 3, 3, played(3, (0.1,) * 10, Evaluation(50.0, 40.0, 1.0, 4.0, ()))),
    ("uniform seed 0", 1, 3, None),
    ("fsmgda seed 0", 0, 3, None),
]


EVALUATED = STATES[0][3]


def bars_at(width, height=25):
    file = io.StringIO()
    return RunBars(Console(file=file, width=width, height=height, force_terminal=True, force_interactive=True)), file


def seen(file):
    """What a terminal shows, without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())


def test_the_active_runs_of_a_study_are_shown_below_an_overall_bar():
    bars, file = bars_at(200)
    bars.runs(STATES)
    bars.stop()
    assert "1 of 3 runs" in seen(file)
    assert "4/9" in seen(file)  # rounds of all runs
    assert "uniform seed 0" in seen(file)
    assert "fsmgda" not in seen(file)  # has not begun
    assert "fedhv seed 0" not in seen(file)  # has ended


def test_a_run_that_ends_leaves_a_line_and_no_bar():
    bars, file = bars_at(200)
    begun = [("fedhv seed 0", 2, 3, None), *STATES[1:]]
    for states in (begun, STATES, STATES):
        bars.runs(states)
    bars.stop()
    ended = "fedhv seed 0: 3 rounds done, mean 50.0 % worst 40.0 %  w 0.10 0.10 0.10 0.10 0.10 …"
    assert seen(file).count(ended) == 1
    assert [line.split(" ━")[0].strip() for line in seen(file).splitlines()[-2:]] == ["1 of 3 runs", "uniform seed 0"]


def test_a_study_that_goes_on_with_fewer_runs_shows_only_these():
    """As in `fedhv tune`, where a run that diverged leaves the next rung."""
    bars, file = bars_at(200)
    bars.runs([("a seed 0", 1, 2, None), ("b seed 0", 1, 2, None)])
    bars.runs([("a seed 0", 2, 6, None)])
    bars.stop()
    last = [line.split(" ━")[0].strip() for line in seen(file).splitlines()[-2:]]
    assert last == ["0 of 1 runs", "a seed 0"]
    assert "2/6" in seen(file).splitlines()[-2]


def test_a_study_that_is_only_read_shows_no_bars():
    bars, file = bars_at(120)
    for _ in range(40):
        bars.runs(STATES[:1])
    assert file.getvalue() == ""


def test_a_study_that_ends_is_shown_once():
    bars, file = bars_at(120)
    bars.runs([("fedhv seed 0", 2, 3, None)])
    for _ in range(40):
        bars.runs(STATES[:1])
    assert seen(file).count("fedhv seed 0: 3 rounds done") == 1
    assert seen(file).count("1 of 1 runs") == 1


def test_more_runs_than_lines_are_counted():
    bars, file = bars_at(80, height=10)
    bars.runs([(f"fedhv seed {i}", 1, 3, None) for i in range(50)])
    bars.stop()
    assert "44 more active" in seen(file)
    assert "fedhv seed 5 " in seen(file)
    assert "fedhv seed 6 " not in seen(file)


@pytest.mark.parametrize("width", [60, 80, 100, 110, 140])
def test_every_terminal_has_a_bar_and_the_time_left(width):
    bars, file = bars_at(width)
    bars.runs([("fedcmoo seed 2026", 35, 70, EVALUATED), ("uniform seed 0", 70, 70, EVALUATED)])
    bars.stop()
    line = next(line for line in seen(file).splitlines() if line.startswith("fedcmoo seed 2026"))
    assert "━━" in line
    assert "35/70" in line
    assert "-:--:--" in line
    assert ("mean 50.0 % worst 40.0 %" in line) == (width > 60)
    assert "…" not in line.replace("0.10 …", "")
    assert len(line) <= width


@pytest.fixture
def log(monkeypatch):
    """What a log gets, where every look is due."""
    monkeypatch.setattr("fedhv.report.progress.SECONDS_BETWEEN_LINES", 0.0)
    file = io.StringIO()
    lines = Lines(Console(file=file, width=200))

    def told(*states):
        file.seek(0)
        file.truncate()
        lines.runs(states)
        return file.getvalue().splitlines()

    told.stop = lines.stop
    return told


def test_a_log_of_a_study_is_silent_between_two_periods():
    file = io.StringIO()
    Lines(Console(file=file, width=200)).runs(STATES[1:])
    assert file.getvalue() == ""


def test_a_log_names_a_finished_run_once_and_one_that_goes_on_now_and_then(log):
    done = "fedhv seed 0: 3 rounds done, mean 50.0 % worst 40.0 %  w 0.10 0.10 0.10 0.10 0.10 …"
    assert log(*STATES) == [done, "uniform seed 0: round 1/3"]
    assert log(*STATES) == ["uniform seed 0: round 1/3"]
    assert log(STATES[0], ("uniform seed 0", 2, 3, EVALUATED)) == [
        "uniform seed 0: round 2/3, mean 50.0 % worst 40.0 %  w 0.10 0.10 0.10 0.10 0.10 …"
    ]
    assert log(STATES[0], ("uniform seed 0", 3, 3, None)) == ["uniform seed 0: 3 rounds done"]
    log.stop()  # another study follows, whose runs have the same labels
    assert log(STATES[0]) == [done]


def test_a_log_of_many_runs_at_once_is_one_short_line_a_period(log):
    """However many there are: some are named, with what is odd about them, the others counted."""
    odd = replace(EVALUATED, refused=(Refusal(3, "no answer"), Refusal(5, "no answer")))
    going = [(f"fedcmoo seed {2000 + i}", 100 + i, 500, odd if i == 1 else EVALUATED) for i in range(30)]
    ended = [(f"fedhv seed {i}", 500, 500, EVALUATED) for i in range(6)]
    assert len(log(*ended, *going)) == 7
    (line,) = log(*ended, *going)
    assert line == (
        "6 of 36 runs done; fedcmoo seed 2000 100/500, fedcmoo seed 2001 101/500  2 left out, "
        "fedcmoo seed 2002 102/500, fedcmoo seed 2003 103/500 and 26 more"
    )


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_study_in_a_log_says_everything_once(engine, command, small, forked):
    """In worker processes and in one: a line for every run."""
    study = ("compare", small, "--seeds", "0,1", *REFERENCE, "--methods", "fedhv,uniform")
    err = command(*study, "--engine", engine, "--jobs", 2).err
    assert sorted(line.partition(",")[0] for line in err.splitlines() if "rounds done" in line) == [
        f"{method} seed {seed}: 4 rounds done" for method in ("fedhv", "uniform") for seed in (0, 1)
    ]
    assert max(map(len, err.splitlines())) < 140


def test_a_log_of_a_run_has_no_gap_before_the_first_evaluation(monkeypatch):
    monkeypatch.setattr("fedhv.report.progress.SECONDS_BETWEEN_LINES", 0.0)
    file = io.StringIO()
    lines = Lines(Console(file=file, width=200))
    lines.start("fedhv seed 0", 9)
    lines.round(played(4, (0.2, 0.8)))
    assert "fedhv seed 0: round 4/9, w 0.20 0.80" in file.getvalue()


def test_the_observer_suits_the_terminal():
    assert type(observer(Console(force_terminal=True), quiet=False)) is RunBars
    assert type(observer(Console(file=io.StringIO()), quiet=False)) is Lines
    assert type(observer(Console(force_terminal=True), quiet=True)) not in (RunBars, Lines)


def test_folders_in_square_brackets_are_no_markup(command, small, tmp_path):
    done = command("run", small, "--method", "uniform", "--out", "[bold]/[x]")
    assert done.code == 0
    assert "The run is in [bold]/[x]" in done.out


def test_the_command_line_leaves_the_number_of_threads_alone(command, small):
    before = torch.get_num_threads()
    command("run", small, "--method", "uniform")
    assert torch.get_num_threads() == before
