"""Calibration: uniform-weight rounds, the componentwise maximum over rounds and runs, plus a margin."""

from pathlib import Path

import pytest
import torch
from problems import SETTING, everything_random, quadratic

from fedhv import EarlyStop, FedHV, InputError, Reference, calibrate, load_setting, run
from fedhv.runs.calibration import find_reference
from fedhv.runs.config import override_setting
from fedhv.runs.reference import read_reference
from fedhv.runs.resolve import setting_of
from fedhv.simulation.observer import Observer

CHANGES = ["federation.participants=3", "training.local_steps=2", "training.batch_size=4"]


def rule(problem, *changes):
    return override_setting(setting_of(problem), [*CHANGES, *changes])


def test_the_reference_is_the_largest_report_of_every_task_plus_the_margin():
    # Uniform on the quadratic problem, by hand (see test_methods_by_hand): reports (6, 2), then (201/128, 457/128)
    problem = quadratic()
    changes = ["federation.participants=2", "training.local_steps=2", "training.batch_size=2",
               "calibration.rounds=2", "calibration.margin=0.25"]  # fmt: skip
    setting = override_setting(setting_of(problem), changes)
    reference = find_reference(setting, FedHV(server_lr=2.0, local_lr=0.5), problem)
    assert reference.provenance.maxima == pytest.approx((6, 457 / 128))
    assert reference.values == pytest.approx((6.25, 457 / 128 + 0.25))
    assert reference.tasks == ("left", "right")


def test_several_runs_give_the_componentwise_maximum():
    problem = everything_random()
    one, two, both = (
        find_reference(rule(problem, f"calibration.seeds={seeds}", "calibration.rounds=4"), None, problem)
        for seeds in ([5], [6], [5, 6])
    )
    assert one.values != two.values
    assert both.values == tuple(max(pair) for pair in zip(one.values, two.values, strict=True))
    assert both.cost.rounds == 8
    assert both.cost.traffic == one.cost.traffic + two.cost.traffic


def test_reports_of_a_calibration_use_all_examples():
    # with every client in every round, the first report is the mean over clients of their full losses
    problem = everything_random()
    setting = rule(problem, "federation.participants=5", "calibration.rounds=1")
    one = find_reference(setting, FedHV(report=1), problem)
    assert one.values == find_reference(setting, FedHV(report="all"), problem).values


def test_calibration_uses_the_rates_of_the_method():
    problem = everything_random()
    setting = rule(problem, "calibration.rounds=3", "methods.fedhv.local_lr=0.7", "methods.uniform.local_lr=9.0")
    own = find_reference(setting, None, problem)
    assert own.provenance.local_lr == 0.7
    assert own.values == find_reference(setting, FedHV(local_lr=0.7), problem).values
    assert own.values != find_reference(setting, FedHV(local_lr=0.1), problem).values


def test_the_reference_remembers_where_it_came_from():
    problem = everything_random()
    changes = ["calibration.seeds=[4, 2]", "calibration.rounds=3", "calibration.margin=0.5"]
    found = find_reference(rule(problem, *changes), FedHV(server_lr=1.5, local_lr=0.2), problem).provenance
    assert (found.source, found.setting) == ("calibration", "random")
    assert (found.seeds, found.rounds, found.margin) == ((4, 2), 3, 0.5)
    assert (found.server_lr, found.local_lr) == (1.5, 0.2)
    assert len(found.maxima) == 2


def test_another_setting_may_be_calibrated_under(tmp_path):
    (tmp_path / "other.toml").write_text(SETTING.replace("alpha = 0.5", "alpha = 50.0"))
    path = tmp_path / "small.toml"
    path.write_text(SETTING.replace("rounds = 2\n", f'rounds = 2\nsetting = "{tmp_path / "other.toml"}"\n', 1))
    reference = find_reference(load_setting(str(path)))
    assert reference.provenance.setting == "other"
    assert reference.values == find_reference(load_setting(str(tmp_path / "other.toml"))).values
    assert reference.values != find_reference(load_setting(str(path), ["calibration.setting=small"])).values


@pytest.fixture
def family(tmp_path, monkeypatch):
    """Two shipped settings; `one` is calibrated under `two`."""
    (tmp_path / "two.toml").write_text(SETTING.replace("alpha = 0.5", "alpha = 50.0"))
    (tmp_path / "one.toml").write_text(SETTING.replace("[calibration]\n", '[calibration]\nsetting = "two"\n'))
    shipped = {name: tmp_path / f"{name}.toml" for name in ("one", "two")}
    monkeypatch.setattr("fedhv.runs.config.shipped_settings", lambda: shipped)


@pytest.mark.parametrize(
    "change",
    ["federation.participants=2", "training.local_steps=1", "server.optimiser.kind=adam", "faults.false_report=0.5"],
)
def test_changes_that_would_not_reach_the_calibration_are_refused(change, family, command):
    done = command("calibrate", "one", "--set", change)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'one' is calibrated under 'two'" in done.err
    assert "--set calibration.setting=one" in done.err
    assert not Path("one-reference.toml").exists()
    assert command("run", "one", "--set", change, "--out", "r").code == 2
    assert not Path("r").exists()
    assert command("run", "one", "--set", change, "--set", "calibration.setting=one", "--out", "r").code == 0
    assert read_reference(Path("r/reference.toml")).provenance.setting == "one"
    own = command("calibrate", "one", "--set", change, "--set", "calibration.setting=one", "--out", "own.toml")
    assert own.code == 0
    assert read_reference(Path("own.toml")).values == read_reference(Path("r/reference.toml")).values


def test_changes_that_a_calibration_never_sees_are_not_refused(family, command):
    changes = ["--set", "training.rounds=1", "--set", "evaluation.every=1", "--set", "calibration.margin=0.5"]
    assert command("calibrate", "one", *changes, "--out", "kept.toml").code == 0
    assert command("compare", "one", "--rounds", 1, "--seeds", 0, "--methods", "fedhv", "--out", "s").code == 0
    assert read_reference(Path("s/reference.toml")).provenance.setting == "two"
    frozen = ["--set", "federation.participants=2", "--reference", "kept.toml"]
    assert command("run", "one", "--rounds", 1, *frozen, "--out", "r").code == 0


def test_held_out_examples_are_held_out_in_a_calibration_under_another_setting(family, command):
    held = "federation.validation=0.5"
    assert command("calibrate", "one", "--set", held, "--out", "of-one.toml").code == 0
    assert command("calibrate", "two", "--set", held, "--out", "of-two.toml").code == 0
    assert command("calibrate", "two", "--out", "of-all.toml").code == 0
    of_one, of_two, of_all = (read_reference(Path(f"of-{name}.toml")).values for name in ("one", "two", "all"))
    assert of_one == of_two != of_all
    assert command("tune", "one", "--methods", "fedhv", "--trials", 2, "--rounds", 1, "--out", "t").code == 0
    assert Path("t/tuned.toml").exists()


def test_a_warm_start_is_one_in_a_calibration_under_another_setting_too(family, command):
    assert command("run", "one", "--method", "uniform", "--rounds", 2, "--out", "trained").code == 0
    for name, init in (("one", "trained"), ("two", "trained"), ("two", None)):
        options = ["--rounds", 1, *(["--init", init] if init else [])]
        assert command("run", name, *options, "--out", f"{name}-{init}").code == 0
    found = [read_reference(Path(at, "reference.toml")).values for at in ("one-trained", "two-trained", "two-None")]
    assert found[0] == found[1] != found[2]


def test_a_setting_calibrated_under_itself_takes_its_changes(family, command):
    changed = ["--set", "calibration.setting=two", "--set", "federation.participants=2"]
    assert command("calibrate", "two", *changed, "--out", "a.toml").code == 0
    assert command("calibrate", "two", "--out", "b.toml").code == 0
    assert read_reference(Path("a.toml")).values != read_reference(Path("b.toml")).values


# --- runs that calibrate ----------------------------------------------------------------------------------


class Listener(Observer):
    def __init__(self):
        self.said, self.started = [], []

    def message(self, text):
        self.said.append(text)

    def start(self, label, rounds, done=0):
        self.started.append((label, rounds))


def test_fedhv_without_a_reference_calibrates_first_says_so_and_keeps_it(tmp_path):
    listener = Listener()
    result = run(
        everything_random(), "fedhv", rounds=2, seed=9, out=tmp_path / "run", observer=listener,
        override=[*CHANGES, "calibration.rounds=3", "calibration.seeds=[1, 2]"],
    )  # fmt: skip
    said = "Calibrating a reference with 3 uniform-weight rounds"
    assert any(said in text and "seeds 1, 2" in text for text in listener.said)
    assert listener.started == [("calibration seed 1", 3), ("calibration seed 2", 3), ("fedhv seed 9", 2)]
    assert read_reference(tmp_path / "run" / "reference.toml") == result.reference
    assert result.reference.provenance.source == "calibration"
    assert result.summary.reference == result.reference.values
    assert {path.name for path in (tmp_path / "run" / "calibration").iterdir()} == {"seed1", "seed2"}


class Ends(Observer):
    """Ends every run after its first round."""

    def round(self, round):
        raise EarlyStop


def test_an_observer_that_ends_runs_early_does_not_end_a_calibration():
    changes = [*CHANGES, "calibration.rounds=3"]
    result = run(everything_random(), "fedhv", rounds=3, observer=Ends(), override=changes)
    assert (len(result.rounds), result.reference.cost.rounds) == (1, 3)


def test_adaptive_training_starts_from_the_normal_initialisation():
    problem, changes = everything_random(), [*CHANGES, "calibration.rounds=3"]
    calibrated = run(problem, "fedhv", rounds=3, override=changes)
    given = run(problem, "fedhv", rounds=3, override=changes, reference=calibrated.reference.values)
    assert all(torch.equal(calibrated.state_dict[name], value) for name, value in given.state_dict.items())
    assert given.communication.calibration_bytes == 0
    assert calibrated.communication.calibration_bytes > 0


def test_the_reference_does_not_depend_on_the_seed_of_the_run():
    problem, changes = everything_random(), [*CHANGES, "calibration.rounds=2"]
    one, two = (run(problem, "fedhv", rounds=1, seed=seed, override=changes) for seed in (0, 1))
    assert one.reference.values == two.reference.values


# --- the file ---------------------------------------------------------------------------------------------


def test_a_reference_survives_its_file(tmp_path):
    problem = everything_random()
    reference = find_reference(rule(problem, "calibration.rounds=2"), None, problem)
    reference.write(tmp_path / "r.toml")
    assert read_reference(tmp_path / "r.toml") == reference
    text = (tmp_path / "r.toml").read_text()
    for key in ("setting", "seeds", "rounds", "margin", "server_lr", "local_lr", "maxima"):
        assert f"\n{key} = " in text


def test_a_reference_in_other_units_is_refused(tmp_path):
    problem, changes = everything_random(), [*CHANGES, "calibration.rounds=2"]
    calibrate(problem, scale="initial", override=changes).write(tmp_path / "scaled.toml")
    calibrate(problem, override=changes).write(tmp_path / "plain.toml")
    with pytest.raises(InputError, match=r"^The reference should have the units of this problem's losses, 1, 1\. "):
        run(problem, "fedhv", reference=tmp_path / "scaled.toml", rounds=1, override=changes)
    with pytest.raises(InputError, match=r"Found one that was calibrated in units of 1, 1\. Calib"):
        run(problem, "fedhv", reference=tmp_path / "plain.toml", scale="initial", rounds=1, override=changes)
    again = run(problem, "fedhv", reference=tmp_path / "scaled.toml", scale="initial", rounds=1, override=changes)
    assert again.reference.provenance.units == read_reference(tmp_path / "scaled.toml").provenance.units
    run(problem, "fedhv", reference=[5.0, 5.0], scale="initial", rounds=1, override=changes)  # in any units


def test_values_alone_are_enough(tmp_path):
    (tmp_path / "r.toml").write_text("values = [1.5, 2]\n")
    assert read_reference(tmp_path / "r.toml") == Reference((1.5, 2.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("values = []", "positive and finite"),
        ("values = [1.0, 0.0]", "positive and finite"),
        ("values = [1.0, -1.0]", "positive and finite"),
        ("values = [1.0, nan]", "positive and finite"),
        ("values = [1.0, inf]", "positive and finite"),
        ("values = 3", "should be a list"),
        ("valus = [1.0]", "Did you mean 'values'"),
        ("tasks = ['a']", "`values` is missing"),
        ("values = [", "not valid TOML"),
    ],
)
def test_a_reference_file_that_is_wrong_is_refused_by_its_name(content, message, tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_reference(path)
    assert str(path) in str(caught.value)


def test_a_reference_for_other_tasks_is_refused():
    with pytest.raises(InputError, match=r"should have 2 values, one for each of colour, größe. Found 3"):
        run(everything_random(), "fedhv", rounds=1, reference=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match=r"should be for tasks colour, größe. Found a, b"):
        run(everything_random(), "fedhv", rounds=1, reference=Reference((1.0, 2.0), ("a", "b")))
    with pytest.raises(InputError, match="should have 2 values"):
        run(everything_random(), FedHV(reference=(1.0,)), rounds=1)


def test_a_setting_that_names_itself_is_calibrated_with_its_changes(setting_file, command):
    """Not with the file as it was before the changes."""
    changes = ["--set", "calibration.setting=small", "--set", "federation.alpha=100.0"]
    assert command("calibrate", setting_file, *changes, "--out", "named.toml", "-q").code == 0
    assert command("calibrate", setting_file, *changes[2:], "--out", "plain.toml", "-q").code == 0
    named, plain = (read_reference(Path(f"{name}.toml")) for name in ("named", "plain"))
    assert named.values == plain.values
