"""`fedhv.run`: what comes back, what is on disk, and that nothing is written when the input is bad."""

import copy
import json
import tomllib

import numpy as np
import pytest
import torch
from problems import Small, benchmark, everything_random
from safetensors.torch import load_file

from fedhv import (
    Clients,
    FedHV,
    FedHVError,
    InputError,
    Problem,
    Reference,
    Uniform,
    classification,
    load_setting,
    run,
)
from fedhv.runs.config import setting_from_tables
from fedhv.runs.record import read_finished
from fedhv.simulation.observer import Observer

CHANGES = ["federation.participants=3", "training.local_steps=2", "training.batch_size=4"]
KEYS = {
    "setting", "method", "seed", "rounds", "mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "tasks",
    "weights", "reference", "min_report_slack", "floor_activations", "communication", "seconds",
}  # fmt: skip


def play(method="fedhv", **options):
    options = {"rounds": 5, "override": CHANGES, "reference": [2.0, 2.0] if method == "fedhv" else None} | options
    return run(everything_random(), method, **options)


# --- what comes back --------------------------------------------------------------------------------------


def test_the_summary_says_all_that_it_should():
    result = play(seed=4)
    written = result.summary.as_dict()
    assert set(written) >= KEYS
    assert (result.setting, result.method, result.seed, len(result.rounds)) == ("random", "fedhv", 4, 5)
    assert [task.name for task in result.tasks] == ["colour", "größe"]
    assert set(written["tasks"][0]) == {"name", "accuracy", "loss"}
    assert set(written["communication"]) >= {
        "downlink_bytes", "uplink_bytes", "calibration_bytes", "auxiliary_scalars_per_client_round"
    }  # fmt: skip
    assert result.summary.reference == (2.0, 2.0)


def test_the_summary_agrees_with_the_history():
    result = play(override=[*CHANGES, "evaluation.every=2"])
    last = result.rounds[-1]
    for key in ("mean_accuracy", "worst_accuracy", "mean_loss", "hypervolume", "tasks"):
        assert getattr(result, key) == getattr(last.evaluation, key)
    assert result.weights == last.weights
    assert result.min_report_slack == min(min(played.slack) for played in result.rounds)
    assert result.communication.downlink_bytes == sum(played.downlink_bytes for played in result.rounds)
    assert result.communication.uplink_bytes == sum(played.uplink_bytes for played in result.rounds)


def test_accuracies_are_percentages_and_the_aggregates_those_of_the_tasks():
    result = play("uniform", rounds=20)
    accuracies, losses = [task.accuracy for task in result.tasks], [task.loss for task in result.tasks]
    assert max(accuracies) > 30
    assert result.mean_accuracy == pytest.approx(sum(accuracies) / 2)
    assert result.worst_accuracy == min(accuracies)
    assert result.mean_loss == pytest.approx(sum(losses) / 2)
    assert result.hypervolume == pytest.approx((3 - losses[0]) * (3 - losses[1]))


def test_floor_activations_are_counted_over_the_run():
    # losses start near log 3 and log 4, far above these references: both tasks are at the floor in every round
    with pytest.warns(UserWarning, match="the reference was too low in 5 rounds"):
        result = play(reference=[0.01, 0.01])
    assert result.floor_activations == 10
    assert result.min_report_slack < -1
    assert result.weights == (0.5, 0.5)


def test_methods_without_a_reference_have_none():
    result = play("fsmgda")
    assert result.summary.reference is None
    assert result.min_report_slack is None
    assert result.floor_activations == 0
    assert result.reference is None


@pytest.mark.parametrize(("every", "evaluated"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (0, [5]), (99, [5])])
def test_models_are_evaluated_every_so_many_rounds_and_after_the_last(every, evaluated):
    history = play("uniform", override=[*CHANGES, f"evaluation.every={every}"]).history
    assert [record["round"] for record in history if "evaluation" in record] == evaluated


def test_the_evaluation_reference_is_the_settings():
    result = play("uniform", override=[*CHANGES, "evaluation.reference=5.0"])
    losses = [task.loss for task in result.tasks]
    assert result.hypervolume == pytest.approx((5 - losses[0]) * (5 - losses[1]))


def test_the_state_dict_is_the_models():
    result = play("uniform")
    model = Small()
    model.load_state_dict(result.state_dict)
    model.eval()
    test = everything_random().test
    with torch.no_grad():
        right = (model(test.inputs)[0].argmax(dim=1) == test.targets[0]).float().mean()
    assert 100 * right.item() == pytest.approx(result.tasks[0].accuracy)


def test_what_the_summary_lacks_is_no_attribute_of_a_result():
    with pytest.raises(AttributeError, match="colour"):
        play("uniform").colour  # noqa: B018


def test_the_whole_run_uses_one_thread_and_gives_the_threads_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    seen = []

    class Watch(Observer):
        def round(self, round):
            seen.append(torch.get_num_threads())

    try:
        play("uniform", observer=Watch())
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# --- what is on disk --------------------------------------------------------------------------------------


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert play().folder is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_holds_config_history_summary_model_and_checkpoint(tmp_path):
    result = play(out=tmp_path / "deep" / "run")
    names = {path.name for path in result.folder.iterdir() if not path.name.startswith(".")}
    assert names == {
        "config.toml", "history.jsonl", "summary.json", "model.safetensors", "checkpoint.safetensors", "reference.toml"
    }  # fmt: skip
    assert json.loads((result.folder / "summary.json").read_text()) == result.summary.as_dict()
    lines = (result.folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.history
    stored = load_file(result.folder / "model.safetensors")
    assert all(torch.equal(stored[name], value) for name, value in result.state_dict.items())


def test_a_line_of_the_history_has_all_that_a_round_was():
    record = play().history[-1]
    assert set(record) == {
        "round", "report", "slack", "floored", "weights", "downlink_bytes", "uplink_bytes", "exchanges", "seconds",
        "evaluation", "cohort", "step_norm",
    }  # fmt: skip


def test_the_config_is_fully_resolved_and_can_be_run_again(setting_file, tmp_path):
    first = run(str(setting_file), "fedhv", seed=2, reference=[2.0, 2.0], out=tmp_path / "run")
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["run"]["method"] == "fedhv"
    assert config["run"]["seed"] == 2
    assert config["machine"]["engine"] in ("sequential", "parallel", "stacked")
    assert config["setting"]["methods"]["fedhv"] == {
        "server_lr": 1.1, "local_lr": 0.1, "report": 2, "floor": 1e-6, "aggregate": "mean", "trim": 0.2,
        "smoothing": 0.0, "watch": "warn", "watch_slack": 0.0, "watch_margin": 0.15,
    }  # fmt: skip
    assert config["setting"]["training"]["sampling"] == "epochs"
    again = run(setting_from_tables(config["setting"]), "fedhv", seed=2, reference=[2.0, 2.0])
    assert all(torch.equal(again.state_dict[name], value) for name, value in first.state_dict.items())


def test_a_result_is_read_back_from_its_folder(tmp_path):
    first = play(out=tmp_path / "run")
    again = read_finished(tmp_path / "run")
    assert again.summary == first.summary
    assert again.history == first.history
    assert again.reference == first.reference


def test_what_is_no_finished_run_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"has no run: config\.toml is missing"):
        read_finished(tmp_path)
    (tmp_path / "config.toml").write_text('[run]\nmethod = "fedhv"\n')
    with pytest.raises(InputError, match=r"should have `run.method` and `run.seed`"):
        read_finished(tmp_path)
    (tmp_path / "config.toml").write_text('[run]\nmethod = "fedhv"\nseed = 0\n')
    with pytest.raises(InputError, match=r"summary\.json is missing"):
        read_finished(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(InputError, match="could not be read"):
        read_finished(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(InputError, match="JSON object"):
        read_finished(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"summary\.json is damaged: `setting` should be text"):
        read_finished(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("tasks", "x"), ("tasks", []), ("mean_accuracy", None), ("mean_accuracy", "a"), ("communication", {}),
     ("weights", []), ("seconds", "a"), ("seed", 1.5), ("tasks", [{"name": "one"}])],
)  # fmt: skip
def test_a_summary_that_is_none_is_refused_with_the_remedy_and_written_again(key, value, tmp_path):
    whole = play(out=tmp_path / "run").summary
    (tmp_path / "run" / "summary.json").write_text(json.dumps(whole.as_dict() | {key: value}))
    with pytest.raises(InputError, match=r"damaged: `.* Delete it and resume the run: it is written again"):
        play(out=tmp_path / "run", resume=True)
    (tmp_path / "run" / "summary.json").unlink()
    assert play(out=tmp_path / "run", resume=True).summary == whole


def test_a_finished_run_whose_model_is_lost_writes_it_again(tmp_path):
    model = play(out=tmp_path / "run").state_dict
    path = tmp_path / "run" / "model.safetensors"
    path.write_bytes(b"no model")
    with pytest.raises(InputError, match="Delete it and resume the run"):
        play(out=tmp_path / "run", resume=True)
    path.unlink()
    again = play(out=tmp_path / "run", resume=True).state_dict
    assert path.exists()
    assert all(torch.equal(again[name], value) for name, value in model.items())
    path.unlink()
    for checkpoint in (tmp_path / "run").glob("checkpoint*"):
        checkpoint.unlink()
    before = (tmp_path / "run" / "history.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"model\.safetensors is missing\. Delete .*run to start the run again"):
        play(out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == before


# --- ways to say what to run ------------------------------------------------------------------------------


def test_a_setting_is_named_given_as_a_file_or_as_an_object(setting_file):
    by_path = run(str(setting_file), "uniform", rounds=2)
    by_object = run(load_setting(str(setting_file)), "uniform", rounds=2)
    overridden = run(load_setting(str(setting_file)), "uniform", override=["training.rounds=2"])
    assert by_path.tasks == by_object.tasks == overridden.tasks


def test_a_method_is_named_or_given(setting_file):
    named = run(str(setting_file), "uniform", rounds=1, override=["methods.uniform.local_lr=0.7"])
    given = run(str(setting_file), Uniform(local_lr=0.7), rounds=1)
    assert named.tasks == given.tasks


def test_a_reference_is_given_as_values_file_name_or_object(setting_file, tmp_path):
    Reference((2.0, 2.5)).write(tmp_path / "r.toml")
    ways = [[2.0, 2.5], (2.0, 2.5), str(tmp_path / "r.toml"), tmp_path / "r.toml", "tight", Reference((2.0, 2.5))]
    results = [
        run(str(setting_file), "fedhv", reference=way, rounds=2, override=["references.tight=[2.0, 2.5]"])
        for way in ways
    ]
    own = run(str(setting_file), FedHV(reference=(2.0, 2.5), server_lr=1.1, report=2), rounds=2)
    assert all(result.tasks == own.tasks for result in results)
    assert results[4].reference.provenance.source == "small, tight"


def test_an_unknown_reference_is_refused_with_the_nearest(setting_file):
    with pytest.raises(InputError, match=r"'tigth'. Did you mean 'tight'"):
        run(str(setting_file), "fedhv", reference="tigth", override=["references.tight=[2.0, 2.5]"])


def test_the_observer_is_told_every_round():
    told = []

    class Watch(Observer):
        def start(self, label, rounds, done=0):
            told.append((label, rounds, done))

        def round(self, round):
            told.append((round.number, len(round.weights)))

        def stop(self):
            told.append("stop")

    play("uniform", rounds=2, observer=Watch())
    assert told == [("uniform seed 0", 2, 0), (1, 2), (2, 2), "stop"]


# --- bad input and failure --------------------------------------------------------------------------------

BAD = {
    "seed": {"seed": -1},
    "participants": {"override": ["federation.participants=6"]},
    "reference": {"reference": [1.0]},
    "own reference": {"method": FedHV(reference=(1.0, 2.0, 3.0)), "reference": None},
    "engine": {"engine": "warp"},
    "device": {"device": "abacus"},
    "other device": {"device": "meta"},
    "precision": {"precision": "float8"},
    "method": {"method": "fedhw"},
    "rounds": {"rounds": 0},
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_leaves_no_folder(bad, tmp_path):
    with pytest.raises(InputError):
        play(**{"out": tmp_path / "run"} | BAD[bad])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("with_batch_norm", "GroupNorm"),
        ("with_one_output", "list of 2 outputs"),
        ("with_mean_loss", "reduction='none'"),
        ("with_mean_score", "score of task 'colour' should return one number per example"),
        ("with_nan", "NaN or infinity"),
        ("with_wrong_label", "labels from 0 to 2. Found 0 to 3"),
        ("nothing", "could not be imported"),
        ("TASKS", "should be a function"),
        ("examples", "should take no argument"),
        ("Small", "should return a fedhv.Benchmark"),
    ],
)
def test_a_benchmark_that_does_not_fit_leaves_no_folder(name, message, setting_file, tmp_path):
    with pytest.raises(InputError, match=message):
        run(str(setting_file), out=tmp_path / "run", override=[f"benchmark=problems:{name}"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["fedhv", "uniform", "fsmgda", "fedcmoo"])
def test_a_run_that_diverges_fails_with_the_remedy(method, tmp_path):
    changes = [*CHANGES, f"methods.{method}.local_lr=1e30"]
    with pytest.raises(FedHVError, match=r"diverged\. Lower the method's local_lr") as caught:
        play(method, override=changes, out=tmp_path / "run")
    assert not isinstance(caught.value, InputError)
    assert caught.value.exit_code == 1
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_calibration_that_diverges_gives_no_reference(tmp_path):
    with pytest.raises(FedHVError, match="diverged"):
        play(reference=None, override=[*CHANGES, "methods.fedhv.local_lr=1e30"], out=tmp_path / "run")
    assert not (tmp_path / "run" / "reference.toml").exists()


def test_a_benchmark_may_be_divided_by_hand():
    problem = Problem.divide(benchmark(), Clients.of([range(50), range(40, 120), [200, 201]]))
    assert run(problem, "uniform", rounds=1, override=["training.local_steps=1"]).summary.rounds == 1


def test_a_result_can_be_copied(tmp_path):
    result = play("uniform")
    assert copy.deepcopy(result).summary == result.summary
    with pytest.raises(AttributeError):
        _ = result.nothing_of_the_kind


class Apart(torch.nn.Module):
    """Tasks that share nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])

    def forward(self, inputs):
        return [head(inputs) for head in self.heads]


def apart(**options):
    rng = np.random.default_rng(0)
    client = (rng.standard_normal((6, 2)).astype(np.float32), [rng.integers(0, 2, 6)] * 2)
    tasks = [classification("a", 2), classification("b", 2)]
    return Problem.from_clients(Apart, tasks, [client], client, **options)


@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
@pytest.mark.parametrize("method", ["uniform", "fsmgda", "fedcmoo"])
def test_a_model_whose_tasks_share_nothing_runs_with_every_method(method, engine):
    result = run(apart(), method, rounds=2, engine=engine, device="cpu")
    assert np.isfinite(result.mean_loss)


def test_heads_that_leave_nothing_to_share_are_refused():
    with pytest.raises(InputError, match="should leave parameters to share"):
        run(apart(heads=("heads.0", "heads.1")), "fsmgda", rounds=1)


def test_tf32_is_refused_on_a_cpu():
    with pytest.raises(InputError, match="tf32"):
        run("digits", "uniform", rounds=1, device="cpu", precision="tf32")
