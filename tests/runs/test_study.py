"""A study: every method with every seed, one shared reference, and nothing done twice."""

import io
import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from observers import Watch
from problems import SETTING, everything_random
from rich.console import Console
from runs_on_disk import records, timeless
from waiting import HANG, wait_until

from fedhv import FedHV, InputError, Uniform, compare, run
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.report.summaries import comparison_table, summary_table
from fedhv.runs.reference import Reference, read_reference
from fedhv.runs.study import StudyFailed
from fedhv.runs.summary import Communication, Summary
from fedhv.simulation.observer import Observer
from fedhv.support import toml
from fedhv.support.errors import Interrupted


def times(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.glob("*/*")) if path.name in CONTENT}


CONTENT = ("summary.json", "history.jsonl", "model.safetensors", "reference.toml")


def test_every_method_runs_with_every_seed_into_a_folder_of_its_own(setting_file, tmp_path):
    runs = compare(str(setting_file), ["uniform", "fedhv"], [0, 42], rounds=2, out=tmp_path / "study", jobs=1)
    assert [(run.method, run.seed) for run in runs] == [
        ("uniform", 0), ("fedhv", 0), ("uniform", 42), ("fedhv", 42)
    ]  # fmt: skip
    for each in runs:
        folder = tmp_path / "study" / f"{each.method}-seed{each.seed}"
        assert json.loads((folder / "summary.json").read_text()) == each.summary.as_dict()


def test_a_run_of_a_study_is_the_same_as_that_run_alone(setting_file, tmp_path):
    (in_study,) = compare(str(setting_file), ["fsmgda"], [7], rounds=2, out=tmp_path / "study", jobs=1)
    alone = run(str(setting_file), "fsmgda", seed=7, rounds=2)
    assert timeless(in_study) == timeless(alone)


def test_all_runs_of_fedhv_share_one_reference_that_is_calibrated_once(setting_file, tmp_path):
    watch = Watch()
    runs = compare(str(setting_file), ["fedhv", "fsmgda"], [0, 1], rounds=1, out=tmp_path / "s", jobs=1, observer=watch)
    kept = read_reference(tmp_path / "s" / "reference.toml")
    assert [run.summary.reference for run in runs] == [kept.values, None, kept.values, None]
    assert sum("Calibrating" in text for text in watch.said) == 1
    assert all(run.communication.calibration_bytes > 0 for run in runs if run.method == "fedhv")


def test_a_given_reference_is_used_by_all_and_kept(setting_file, tmp_path):
    watch = Watch()
    compare(str(setting_file), ["fedhv"], [0], rounds=1, out=tmp_path / "s", reference=[4, 5], jobs=1, observer=watch)
    assert read_reference(tmp_path / "s" / "reference.toml").values == (4.0, 5.0)
    assert not any("Calibrating" in text for text in watch.said)
    with pytest.raises(InputError, match="holds another reference than the given one"):
        compare(str(setting_file), ["fedhv"], [0], rounds=1, out=tmp_path / "s", reference=[4, 6], jobs=1)


class Tight(FedHV):
    """A method of one's own that brings its reference."""

    name = "tight"


def test_a_method_that_brings_its_own_reference_keeps_it(tmp_path):
    methods = [FedHV(), Tight(reference=(1.5, 1.75))]
    shared, own = compare(
        everything_random(), methods, [0], rounds=1, out=tmp_path / "s", override=["calibration.rounds=1"]
    )
    assert own.reference.values == (1.5, 1.75)
    assert shared.reference.values == read_reference(tmp_path / "s" / "reference.toml").values
    assert shared.reference.values != own.reference.values


def test_what_is_finished_is_not_run_again(setting_file, tmp_path):
    first = compare(str(setting_file), ["uniform", "fedhv"], [0], rounds=2, out=tmp_path / "s", jobs=1)
    before = times(tmp_path / "s")
    watch = Watch()
    again = compare(str(setting_file), ["uniform", "fedhv"], [0], rounds=2, out=tmp_path / "s", jobs=1, observer=watch)
    assert [run.summary for run in again] == [run.summary for run in first]
    assert times(tmp_path / "s") == before
    assert watch.started == []


def test_more_seeds_and_methods_are_added_to_what_is_there(setting_file, tmp_path):
    compare(str(setting_file), ["uniform"], [0], rounds=2, out=tmp_path / "s", jobs=1)
    before = times(tmp_path / "s")
    watch = Watch()
    both = compare(
        str(setting_file), ["uniform", "fsmgda"], [0, 1], rounds=2, out=tmp_path / "s", jobs=1, observer=watch
    )
    assert len(both) == 4
    assert [label for label, _ in watch.started] == ["fsmgda seed 0", "uniform seed 1", "fsmgda seed 1"]
    assert {path: time for path, time in times(tmp_path / "s").items() if path in before} == before


def test_an_interrupted_study_goes_on_where_it_was(setting_file, tmp_path):
    whole = compare(str(setting_file), ["uniform", "fsmgda"], [0, 1], out=tmp_path / "whole", jobs=1)
    with pytest.raises(Interrupted):
        compare(str(setting_file), ["uniform", "fsmgda"], [0, 1], out=tmp_path / "s", jobs=1,
                observer=Watch(3, "fsmgda seed 0"))  # fmt: skip
    watch = Watch()
    resumed = compare(str(setting_file), ["uniform", "fsmgda"], [0, 1], out=tmp_path / "s", jobs=1, observer=watch)
    assert watch.started == [("fsmgda seed 0", 3), ("uniform seed 1", 0), ("fsmgda seed 1", 0)]
    assert list(map(timeless, resumed)) == list(map(timeless, whole))


def test_several_processes_give_what_one_gives(setting_file, tmp_path):
    options = {"methods": ["fedhv", "fedcmoo"], "seeds": [0, 1], "rounds": 3}
    ticks = []

    class Ticks(Observer):
        def runs(self, states):
            ticks.append(states)

    one = compare(str(setting_file), **options, out=tmp_path / "one", jobs=1)
    two = compare(str(setting_file), **options, out=tmp_path / "two", jobs=2, observer=Ticks())
    # a single run may divide its clients among the cores, several have one core each: the numbers are the same
    assert [timeless(s) | {"engine": ""} for s in two] == [timeless(s) | {"engine": ""} for s in one]
    for folder in ("fedhv-seed1", "fedcmoo-seed0"):
        model = "model.safetensors"
        assert (tmp_path / "one" / folder / model).read_bytes() == (tmp_path / "two" / folder / model).read_bytes()
    assert [state[:3] for state in ticks[-1]] == [
        ("fedhv seed 0", 3, 3), ("fedcmoo seed 0", 3, 3), ("fedhv seed 1", 3, 3), ("fedcmoo seed 1", 3, 3)
    ]  # fmt: skip


def test_a_problem_of_ones_own_can_be_compared(tmp_path):
    runs = compare(everything_random(), ["uniform", "fsmgda"], [0, 1], rounds=1, out=tmp_path / "s")
    assert len(runs) == 4


def test_a_worker_that_fails_ends_the_study_with_its_reason(setting_file, tmp_path):
    compare(str(setting_file), ["uniform"], [0], rounds=1, out=tmp_path / "s", jobs=1)
    with pytest.raises(InputError, match="is of another run"):
        compare(str(setting_file), ["uniform", "fsmgda"], [0, 1], rounds=2, out=tmp_path / "s", jobs=2)


# --- Ctrl-C with workers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"jobs": 1}, {"jobs": 2}, {"engine": "stacked", "device": "cpu"}])
def test_a_run_that_diverges_does_not_stop_the_others(how, setting_file, tmp_path, forked):
    """The others finish; the study says which run failed and why, and keeps what that run had."""
    with pytest.raises(
        StudyFailed, match=r"uniform seed 0, after round \d: .*diverged.*other runs \(2\) are finished"
    ) as end:
        compare(
            str(setting_file),
            ["fsmgda", "uniform", "fedcmoo"],
            [0],
            out=tmp_path / "s",
            override=["methods.uniform.local_lr=1e30"],
            **how,
        )
    assert [run.method for run in end.value.runs] == ["fsmgda", "fedcmoo"]
    assert end.value.exit_code == 1
    assert not (tmp_path / "s" / "uniform-seed0" / "summary.json").exists()
    assert (tmp_path / "s" / "fsmgda-seed0" / "summary.json").exists()


def test_a_reference_is_calibrated_with_the_rates_of_the_method_that_needs_it(tmp_path):
    """As `run` does, also for a method that is given as an object."""
    method = FedHV(local_lr=0.5, server_lr=2.0, aggregate="median")
    options = {"rounds": 2, "engine": "sequential", "override": ["calibration.rounds=2"]}
    compare(everything_random(), ["uniform", method], [0], out=tmp_path / "s", **options)
    alone = run(everything_random(), method, out=tmp_path / "r", **options)
    kept = read_reference(tmp_path / "s" / "reference.toml")
    assert kept.values == alone.reference.values
    assert (kept.provenance.local_lr, kept.provenance.server_lr) == (0.5, 2.0)
    with pytest.raises(InputError, match="has another calibration"):
        compare(everything_random(), [FedHV(local_lr=0.1)], [1], out=tmp_path / "s", **options)


def test_seeds_may_be_an_array(tmp_path):
    found = compare(everything_random(), ["uniform"], np.arange(2), rounds=1, out=tmp_path / "s", engine="sequential")
    assert [run.seed for run in found] == [0, 1]
    with pytest.raises(InputError, match="at least one"):
        compare(everything_random(), ["uniform"], np.arange(0), rounds=1, out=tmp_path / "s")


@pytest.mark.parametrize("change", ["calibration.margin=0.9", "federation.alpha=5.0", "methods.fedhv.local_lr=0.01"])
def test_a_kept_reference_that_the_setting_would_not_give_is_refused(change, setting_file, tmp_path):
    compare(str(setting_file), ["fedhv"], [0], rounds=1, out=tmp_path / "s")
    with pytest.raises(InputError, match=r"has another calibration|is of another run"):
        compare(str(setting_file), ["fedhv"], [1], rounds=1, out=tmp_path / "s", override=[change])
    assert not (tmp_path / "s" / "fedhv-seed1").exists()


def test_a_folder_of_another_run_is_found_before_any_run_starts(setting_file, tmp_path):
    compare(str(setting_file), ["uniform"], [0], rounds=1, out=tmp_path / "s")
    with pytest.raises(InputError, match="is of another run"):
        compare(str(setting_file), ["uniform"], [8, 0], rounds=2, out=tmp_path / "s")
    assert not (tmp_path / "s" / "uniform-seed8").exists()


@pytest.mark.parametrize("play", [run, compare])
def test_a_calibration_under_an_unknown_setting_leaves_nothing_behind(play, setting_file, tmp_path):
    with pytest.raises(InputError, match="Unknown setting 'nosuch'"):
        play(str(setting_file), out=tmp_path / "x", override=["calibration.setting=nosuch"])
    assert not (tmp_path / "x").exists()


def test_a_reference_that_no_method_takes_is_refused(setting_file, tmp_path):
    with pytest.raises(InputError, match="takes a reference"):
        compare(str(setting_file), ["uniform", "stch"], [0], out=tmp_path / "s", reference=[2.0, 2.0])
    with pytest.raises(InputError, match="'uniform' takes no reference"):
        run(str(setting_file), "uniform", out=tmp_path / "r", reference=[2.0, 2.0])
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "r").exists()


def test_ctrl_c_stops_every_worker_at_a_checkpoint_and_starts_no_further_run(process, tmp_path):
    (tmp_path / "slow.toml").write_text(
        SETTING.replace("problems:benchmark", "problems:with_fuse").replace("rounds = 4", "rounds = 1000000")
    )
    running = process(
        "compare", "slow.toml", "--methods", "uniform,fsmgda", "--seeds", "0,1,2", "--out", "s", "--jobs", "2",
        PATIENT="1",
    )  # fmt: skip
    histories = [tmp_path / "s" / name / "history.jsonl" for name in ("uniform-seed0", "fsmgda-seed0")]
    wait_until(lambda: all(path.exists() and path.stat().st_size for path in histories), "both runs", running)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=HANG)
    assert running.returncode == 130
    assert "Continue with the same command: fedhv compare slow.toml" in err
    assert "Traceback" not in err
    for path in histories:
        assert records(path.parent)
        assert (path.parent / "checkpoint.safetensors").exists()
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"uniform-seed0", "fsmgda-seed0"}


# --- tables -----------------------------------------------------------------------------------------------


def summary(method, seed, accuracy, loss, rates=(1.2, 0.3)):
    tasks = [TaskScore(name, accuracy, loss) for name in ("clear", "[faint]")]
    return Summary(
        setting="digits", method=method, seed=seed, rounds=3, weights=(0.5, 0.5), **vars(Evaluation.of(tasks)),
        communication=Communication(1_000_000, 2_000_000, 0, 3_000_000), rates=rates,
        seconds=1.0, calibration_seconds=0.0, total_seconds=1.0,
    )  # fmt: skip


def printed(table, **options):
    console = Console(width=160, record=True, file=io.StringIO(), **options)
    console.print(table)
    return console


def test_a_comparison_shows_mean_and_sample_deviation_with_the_best_bold():
    summaries = [
        summary("a", 0, 80.0, 1.0), summary("a", 1, 84.0, 1.2), summary("b", 0, 90.0, 0.5), summary("b", 1, 94.1, 0.7),
        summary("c", 0, 70.0, 2.0), summary("c", 1, 74.0, 2.2),
    ]  # fmt: skip
    console = printed(comparison_table(summaries, 160), force_terminal=True, color_system="truecolor")
    text = console.export_text(clear=False)
    assert "82.00 ± 2.83" in text  # √((2² + 2²)/1)
    assert "92.05 ± 2.90" in text
    assert "seeds 0, 1, 3 rounds" in text
    assert "WorstAcc: b is best." in text
    styled = console.export_text(styles=True)
    assert "\x1b[1m92.05 ± 2.90\x1b[0m" in styled
    assert "\x1b[1m0.600 ± 0.141\x1b[0m" in styled  # the lowest loss is the best
    assert "\x1b[4m" not in styled  # nothing is level with the best
    assert "\x1b[1m82.00" not in styled


def test_a_comparison_of_runs_that_end_early_names_the_fewest_and_the_most_rounds():
    summaries = [summary("a", 0, 80.0, 1.0), replace(summary("a", 1, 84.0, 1.2), rounds=7)]
    assert "seeds 0, 1, 3 to 7 rounds" in printed(comparison_table(summaries, 160)).export_text()


def test_a_tie_has_no_best_and_says_who_is_level():
    summaries = [
        summary("a", 0, 80.0, 1.0), summary("a", 1, 90.0, 1.2), summary("b", 0, 85.0, 0.5), summary("b", 1, 84.0, 0.7),
        summary("c", 0, 10.0, 2.0), summary("c", 1, 20.0, 2.2),
    ]  # fmt: skip
    console = printed(comparison_table(summaries, 160), force_terminal=True, color_system="truecolor")
    text = console.export_text(clear=False)
    assert "MeanAcc: a is level with b." in text
    assert "is best." not in text
    styled = console.export_text(styles=True)
    assert "\x1b[4m85.00 ± 7.07" in styled
    assert "\x1b[4m84.50 ± 0.71" in styled
    assert "\x1b[1m85.00" not in styled


def test_a_comparison_shows_its_rates_and_says_where_they_differ():
    same = [summary(m, seed, 80.0, 1.0) for m in ("a", "b") for seed in (0, 1)]
    assert "1.2/0.3" in printed(comparison_table(same, 160)).export_text()
    assert "differ" not in comparison_table(same, 160).caption
    other = [*same, summary("c", 0, 80.0, 1.0, rates=(1.0, 0.1))]
    for width in (160, 50):
        assert "Learning rates η_g/η_ℓ differ: a 1.2/0.3, b 1.2/0.3, c 1/0.1." in comparison_table(other, width).caption


def test_a_single_seed_has_no_deviation():
    text = printed(comparison_table([summary("a", 0, 80.0, 1.0), summary("b", 0, 81.0, 1.0)], 160)).export_text()
    assert "80.00" in text
    assert "80.00 ±" not in text


def compared(width, seeds=(0, 1), methods=("uniform", "fsmgda", "fedcmoo", "fedhv")):
    """The lines of a comparison on a terminal of so many columns, and its caption."""
    table = comparison_table([summary(m, seed, 80.0 + seed, 1.0 + seed / 10) for m in methods for seed in seeds], width)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text().splitlines(), table.caption


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (119, None), (118, "MB"), (112, "MB, s"), (106, "MB, s, η_g/η_ℓ"), (96, "MB, s, η_g/η_ℓ, HV"),
        (80, "MB, s, η_g/η_ℓ, HV, MeanLoss"),
        (60, "MB, s, η_g/η_ℓ, HV, MeanLoss"), (56, "MB, s, η_g/η_ℓ, HV, MeanLoss, tasks"),
        (20, "MB, s, η_g/η_ℓ, HV, MeanLoss, tasks"),
    ],
)  # fmt: skip
def test_a_narrow_terminal_leaves_out_columns_and_never_a_method(width, left_out):
    lines, caption = compared(width)
    assert all(any(line.split()[:1] == [m] for line in lines) for m in ("uniform", "fsmgda", "fedcmoo", "fedhv"))
    assert "…" not in "".join(lines)
    if left_out is None:
        assert "left out" not in caption
    else:
        assert f"; left out because the terminal is narrow: {left_out}\n" in caption
    if width >= 50:
        assert sum(line.count("80.50 ± 0.71") == 2 for line in lines) == 4
        assert max(map(len, lines)) <= width


def test_a_caption_speaks_of_what_is_there():
    rule = "bold is best (paired 95 % interval over seeds excludes 0), underlined level with the best mean"
    first, *others = compared(160)[1].splitlines()
    assert first == f"mean ± sample standard deviation; {rule}; MB and s include calibration"
    assert others == [f"{what}: uniform is level with fsmgda, fedcmoo and fedhv." for what in ("MeanAcc", "WorstAcc")]
    assert compared(160, seeds=(0,))[1] == "MB and s include calibration"
    assert compared(160, seeds=(0,), methods=("fedhv",))[1] == "MB and s include calibration"
    assert "calibration" not in compared(60)[1]
    assert "η_g/η_ℓ 1.2/0.3 for every method" in compared(60)[1]


def test_a_finished_study_is_read_in_one_line(tmp_path):
    watch = Watch()
    for _ in range(2):
        watch.said.clear()
        compare(everything_random(), ["uniform"], [0, 1], rounds=1, out=tmp_path / "s", engine="sequential",
                      observer=watch)  # fmt: skip
    assert watch.said == [f"2 of 2 runs are read from {tmp_path / 's'}."]
    for config in (tmp_path / "s").glob("*/config.toml"):
        tables = toml.read(config)
        del tables["fingerprint"]
        config.write_text(toml.write(tables))
    compare(everything_random(), ["uniform"], [0, 1], rounds=1, out=tmp_path / "s", engine="sequential",
                  observer=watch)  # fmt: skip
    assert "2 of them were begun by a version without fingerprints" in watch.said[-1]


def test_names_in_square_brackets_are_shown_as_they_are():
    assert "[faint]" in printed(summary_table(summary("a", 0, 80.0, 1.0))).export_text()
    assert "[faint] %" in printed(comparison_table([summary("a", 0, 80.0, 1.0)], 160)).export_text()


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"methods": []},
        {"methods": ["uniform", "uniform"]},
        {"methods": ["uniform", Uniform(local_lr=0.5)]},
        {"methods": ["unifrm"]},
        {"seeds": []},
        {"seeds": [0, 0]},
        {"seeds": [3, -1]},
        {"jobs": 0},
        {"engine": "warp"},
        {"reference": [1.0]},
        {"reference": Reference((1.0, 2.0, 3.0))},
        {"methods": [FedHV(reference=(1.0,))]},
        {"override": ["benchmark=problems:with_batch_norm"]},
        {"rounds": 0},
    ],
    ids=str,
)
def test_bad_input_leaves_no_folder(options, setting_file, tmp_path):
    with pytest.raises(InputError):
        compare(str(setting_file), **{"methods": ["uniform"], "seeds": [0], "out": tmp_path / "s"} | options)
    assert not (tmp_path / "s").exists()


def test_a_run_that_is_done_is_complete_when_its_stack_is_interrupted(setting_file, tmp_path):
    class OneDone(Observer):
        def runs(self, states):
            done = {label: number for label, number, *_ in states}
            if done["uniform seed 0"] == 3 and done["fedcmoo seed 0"] < 3:
                raise KeyboardInterrupt

    options = {"methods": ["uniform", "fedcmoo"], "seeds": [0], "rounds": 3, "engine": "stacked", "device": "cpu"}
    with pytest.raises(Interrupted):
        compare(str(setting_file), **options, out=tmp_path / "s", observer=OneDone())
    assert (tmp_path / "s" / "uniform-seed0" / "summary.json").exists()
    assert not (tmp_path / "s" / "fedcmoo-seed0" / "summary.json").exists()
    assert len(compare(str(setting_file), **options, out=tmp_path / "s")) == 2
