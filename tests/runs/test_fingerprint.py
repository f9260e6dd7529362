"""A run's results belong to its problem: whatever changes the numbers makes another run of it."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from observers import Watch
from problems import TASKS, Small, everything_random
from torch import nn

import fedhv
from fedhv import InputError, Problem, Task, classification
from fedhv.problem.drawing import KeyedDropout
from fedhv.problem.network import Network
from fedhv.problem.problem import Clients
from fedhv.problem.stored import Collated, Joined, Rows
from fedhv.runs.fingerprint import WHAT, _arrays, fingerprint
from fedhv.runs.history import read_history
from fedhv.support import toml
from fedhv.support.code import digest, digest_arrays
from fedhv.support.files import locked

ROUNDS = {"rounds": 2, "local_steps": 2, "quiet": True}


class Wider(Small):
    """Another model with the same parameters' names and shapes."""

    def forward(self, inputs):
        return [2 * output for output in super().forward(inputs)]


def other_inputs(problem):
    inputs = problem.train.inputs.clone()
    inputs[-1, -1] += 1e-6  # one number of the last example
    return replace(problem, train=replace(problem.train, inputs=inputs))


def other_labels(problem):
    first = problem.train.targets[0].clone()
    first[-1] = (first[-1] + 1) % 3
    return replace(problem, train=replace(problem.train, targets=(first, *problem.train.targets[1:])))


def other_test(problem):
    return replace(problem, test=problem.test[1:])


def other_loss(problem):
    first = problem.tasks[0]
    task = Task(first.name, lambda o, t: 2 * nn.functional.cross_entropy(o, t, reduction="none"), first.score)
    return replace(problem, tasks=(task, *problem.tasks[1:]))


def other_metric(problem):
    return replace(problem, tasks=(replace(problem.tasks[0], metrics=["roc_auc"]), *problem.tasks[1:]))


def other_entry_loss(problem):
    """Of the package's tasks it follows from the loss; a task of one's own may have any."""
    tasks = (replace(problem.tasks[0], entry_loss=lambda o, t: 0.5 * (o - t).square()), *problem.tasks[1:])
    return replace(problem, tasks=tasks)


def other_order(problem):
    return replace(problem, clients=Clients.of([problem.clients[k] for k in reversed(range(len(problem.clients)))]))


CHANGES = {
    "inputs": (other_inputs, "the training inputs"),
    "labels": (other_labels, "the training targets"),
    "test set": (other_test, "the test examples"),
    "model": (lambda problem: replace(problem, model=Wider), "the model"),
    "loss": (other_loss, "the tasks"),
    "metric": (other_metric, "the tasks"),
    "loss of entries": (other_entry_loss, "the tasks"),
    "order of clients": (other_order, "the examples of each client"),
    "preparation": (lambda problem: replace(problem, prepare=lambda x: x + 1), "how inputs are prepared"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_problem_is_refused_with_what_differs_and_the_two_ways_out(what, tmp_path):
    change, words = CHANGES[what]
    problem = everything_random()
    fedhv.run(problem, "uniform", out=tmp_path / "r", **ROUNDS)
    fedhv.run(everything_random(), "uniform", out=tmp_path / "r", resume=True, **ROUNDS)  # the same, made anew
    with pytest.raises(InputError, match=rf"another problem. Changed since: .*{words}.*--out.*--fresh"):
        fedhv.run(change(problem), "uniform", out=tmp_path / "r", resume=True, **ROUNDS)


def test_compare_refuses_too_and_fresh_runs_anew(tmp_path):
    problem = everything_random()
    first = fedhv.compare(problem, ["uniform"], [0], out=tmp_path, **ROUNDS)
    with pytest.raises(InputError, match="the training targets"):
        fedhv.compare(other_labels(problem), ["uniform"], [0], out=tmp_path, **ROUNDS)
    again = fedhv.compare(other_labels(problem), ["uniform"], [0], out=tmp_path, fresh=True, **ROUNDS)
    assert again[0].summary.mean_loss != first[0].summary.mean_loss


def test_fresh_keeps_the_reference_of_a_study_where_its_methods_need_none(tmp_path):
    problem = everything_random()
    options = {"out": tmp_path, **ROUNDS}
    fedhv.compare(problem, ["fedhv", "uniform"], [0], reference=[99.0] * len(problem.tasks), **options)
    fedhv.compare(problem, ["uniform"], [0], fresh=True, **options)
    for run in fedhv.compare(problem, ["fedhv"], [0, 1], **options):
        assert run.reference.values == (99.0,) * len(problem.tasks)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_fresh_deletes_nothing_where_the_new_run_cannot_begin(tmp_path):
    problem = everything_random()
    fedhv.run(problem, "uniform", out=tmp_path / "run", **ROUNDS)
    fedhv.compare(problem, ["uniform"], [0], out=tmp_path / "study", **ROUNDS)
    before = files(tmp_path)
    other = {"fresh": True, "override": ["calibration.setting=digits"], **ROUNDS}  # its tasks have other names
    with pytest.raises(InputError, match=r"`calibration\.setting` should have the tasks"):
        fedhv.run(problem, "fedhv", out=tmp_path / "run", **other)
    with pytest.raises(InputError, match=r"`calibration\.setting` should have the tasks"):
        fedhv.compare(problem, ["uniform", "fedhv"], [0], out=tmp_path / "study", **other)
    assert files(tmp_path) == before


def test_fresh_deletes_no_run_that_a_process_is_using(tmp_path):
    problem = everything_random()
    fedhv.run(problem, "uniform", out=tmp_path / "run", **ROUNDS)
    options = {"out": tmp_path / "study", "baselines": ["local"], **ROUNDS}
    fedhv.compare(problem, ["uniform", "power"], [0], **options)
    before = files(tmp_path)
    with locked(tmp_path / "run"), pytest.raises(InputError, match="Another process is using"):
        fedhv.run(problem, "uniform", out=tmp_path / "run", fresh=True, **ROUNDS)
    for place in ("power-seed0", "local-seed0/parts/client-1"):
        with locked(tmp_path / "study" / place), pytest.raises(InputError, match="Another process is using"):
            fedhv.compare(problem, ["uniform", "power"], [0], fresh=True, **options)
    assert files(tmp_path) == before


def test_all_changed_keys_are_named(tmp_path):
    fedhv.run(everything_random(), "uniform", out=tmp_path / "r", **ROUNDS)
    both = r"batch_size` was 32 and is now 5, `setting.*local_steps` was 2 and is now 3\. "
    with pytest.raises(InputError, match=both):
        fedhv.run(everything_random(), "uniform", out=tmp_path / "r", **{**ROUNDS, "local_steps": 3, "batch_size": 5})


def test_the_runs_that_are_read_are_counted(tmp_path):

    problem, heard = everything_random(), Watch()
    fedhv.compare(problem, ["uniform"], [0, 1], out=tmp_path, observer=heard, **ROUNDS)
    fedhv.compare(problem, ["uniform", "fsmgda"], [0, 1], out=tmp_path, observer=heard, **ROUNDS)
    assert f"2 of 4 runs are read from {tmp_path}." in heard.said


METHOD = """
from dataclasses import dataclass
from fedhv import Method, State, Train

def factor():
    return {factor}

@dataclass(frozen=True, kw_only=True)
class Own(Method):
    def round(self, state):
        replies = yield Train(state.model)
        return State(state.model + factor() * replies.mean_update, state.weights)
"""


def test_a_methods_changed_code_is_another_run_on_the_command_line(command, setting_file, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "own_method.py"

    def run(factor, *more):
        module.write_text(METHOD.format(factor=factor))
        sys.modules.pop("own_method", None)
        arguments = ("run", str(setting_file), "--method", "own_method:Own", "--out", "r", "--rounds", "2", *more)
        return command(*arguments)

    assert run(1.0).code == 0
    assert run("1.0  # a comment changes nothing", "--resume").code == 0
    refused = run(0.5, "--resume")
    assert refused.code == 2
    assert "the method's code" in refused.err.replace("\n", " ")
    assert run(0.5, "--fresh").code == 0


def test_runs_without_a_fingerprint_stay_readable_with_a_warning(tmp_path):

    problem, heard = everything_random(), Watch()
    fedhv.run(problem, "uniform", out=tmp_path / "r", **ROUNDS)
    path = tmp_path / "r" / "config.toml"
    tables = toml.read(path)
    del tables["fingerprint"]
    path.write_text(toml.write(tables))
    fedhv.run(problem, "uniform", out=tmp_path / "r", resume=True, observer=heard, rounds=2, local_steps=2)
    assert any("without fingerprints" in text for text in heard.said)
    assert len(read_history(tmp_path / "r")) == 2


# --- digests ----------------------------------------------------------------------------------------------


def test_every_digest_has_words_and_does_not_depend_on_the_object():
    one, two = (fingerprint(everything_random(), fedhv.Uniform()) for _ in range(2))
    assert one == two
    assert set(one) == set(WHAT)


def test_digests_of_arrays_see_every_element_their_type_and_shape():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest_arrays([array]) == digest_arrays([array.copy()]) == digest_arrays([np.asfortranarray(array)])
    changed = array.copy()
    changed[2, 3] += 1
    others = [changed, array.astype(np.float64), array.reshape(4, 3), array[:, ::-1]]
    assert len({digest_arrays([each]) for each in [array, *others]}) == 5


def test_stored_inputs_are_read_in_pieces_with_the_digest_of_the_whole(monkeypatch):
    array = np.arange(60, dtype=np.float64).reshape(15, 4)
    monkeypatch.setattr("fedhv.runs.fingerprint.CHECKED", 8)  # two rows at a time
    for stored in (Rows(array), Joined([Rows(array[:7]), Rows(array[7:])])):
        assert digest_arrays(_arrays(stored)) == digest_arrays([array.astype(np.float32)])


def test_examples_of_different_lengths_count_one_by_one():
    def of(items, collate=fedhv.padded):
        return digest_arrays(_arrays(Collated(items, collate)))

    texts = [[1, 2, 3], np.array([4]), {"tokens": torch.tensor([5, 6]), "mask": (True, True)}]
    assert of(texts) == of(list(texts))
    others = [[[1, 2, 4], *texts[1:]], texts[:2], [texts[1], texts[0], texts[2]]]
    assert len({of(each) for each in [texts, *others]} | {of(texts, list)}) == 5


def test_digests_of_code_follow_what_it_computes():
    def make(scale, bias=1):
        def function(x):
            """Words do not count."""
            return scale * x + bias

        return function

    def same(scale, bias=1):
        def function(x):
            return scale * x + bias

        return function

    assert digest(make(2)) == digest(make(2)) == digest(same(2))
    assert digest(make(2)) != digest(make(3))
    assert digest(make(2)) != digest(make(2, bias=0))
    assert digest(lambda x: x * 2) != digest(lambda x: x * 3)
    assert digest(classification("a", 3).loss) == digest(classification("b", 3).loss)
    assert digest(fedhv.regression("a", 0.1).score) != digest(fedhv.regression("a", 0.2).score)
    assert digest(torch.zeros(2)) != digest(torch.ones(2))


def test_an_attribute_is_not_the_global_of_the_same_name():
    """A script's own `seed` or `start` changes from process to process; a model's attribute of that name does not."""

    def of(code, start):
        names = {"start": start}
        exec(f"def function(x):\n    return {code}", names)
        return digest(names["function"])

    assert of("x.start", 1.0) == of("x.start", 2.0)
    assert of("x + start", 1.0) != of("x + start", 2.0)
    assert of("[y + start for y in x]", 1.0) != of("[y + start for y in x]", 2.0)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_values_in_types_that_numpy_lacks_have_digests(kind):
    values = torch.tensor([1.0, 2.0, 3.0]).to(kind)
    changed = torch.tensor([1.0, 2.0, 4.0]).to(kind)
    for of in (digest, lambda tensor: digest_arrays([tensor])):
        assert of(values) == of(values.clone())
        assert len({of(each) for each in (values, changed, values[:2])}) == 3
    assert digest_arrays([values[0]]) != digest_arrays([values[1]])


def test_a_model_with_a_frozen_part_in_bfloat16_runs():
    class Frozen(Small):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1, dtype=torch.bfloat16), requires_grad=False)

        def forward(self, inputs):
            return [output * self.scale.float() for output in super().forward(inputs)]

    base = everything_random()
    made = Problem(name="p", model=Frozen, tasks=TASKS, train=base.train, test=base.test, clients=base.clients)
    run = fedhv.run(made, "uniform", participants=2, **ROUNDS)
    assert run.state_dict["scale"].dtype == torch.bfloat16


def test_frozen_values_of_a_model_count():
    class Frozen(Small):
        value = 1.0

        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(type(self).value))

    def of():
        base = everything_random()
        made = Problem(name="p", model=Frozen, tasks=TASKS, train=base.train, test=base.test, clients=base.clients)
        return fingerprint(made, fedhv.Uniform())["model"]

    first = of()
    Frozen.value = 2.0
    assert of() != first


def test_overrides_beside_a_method_object_are_refused():
    with pytest.raises(InputError, match=r"`methods.uniform.local_lr` would be ignored.*Uniform\(local_lr=…\)"):
        fedhv.run("digits", fedhv.Uniform(), override=["methods.uniform.local_lr=0.5"], rounds=1)


def test_layers_that_take_their_draws_themselves_are_the_users_layers_in_a_fingerprint():
    problem = everything_random()
    module = Network(problem.model, 2, problem.heads, "cpu").module
    assert any(type(each) is KeyedDropout for each in module.modules())
    assert "KeyedDropout" not in repr(module)
    assert repr(module) == repr(Small())


def test_a_file_that_changes_under_its_objects_changes_their_digest(tmp_path, monkeypatch):
    """As with a notebook's autoreload, which keeps functions and classes and replaces what they do."""
    path = tmp_path / "edited_in_place.py"
    path.write_text("class Rule:\n    step = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    rule = importlib.import_module("edited_in_place").Rule
    before = digest(rule)
    assert digest(rule) == before
    path.write_text("class Rule:\n    step = 250\n")
    assert digest(rule) != before
