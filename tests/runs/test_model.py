"""The model of a run afterwards: the user's module, evaluation on other data, export."""

import sys

import numpy as np
import pytest
import torch
from problems import TASKS, Normalised, Small, everything_random, examples
from torch import nn

import fedhv
from fedhv import Examples, InputError, Problem
from fedhv.runs import export as exporting
from fedhv.support.errors import FedHVError

SHORT = {"rounds": 2, "local_steps": 2, "participants": 3, "quiet": True}


def prepared(inputs):
    return 2 * inputs - 1


class Buffered(Small):
    """With a buffer that no state dict has, and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("noise", torch.randn(6), persistent=False)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, inputs):
        return super().forward(self.frozen(inputs) + self.noise)


class Words(nn.Module):
    """Sequences of different lengths with a mask, as keyword arguments."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 4)])

    def forward(self, tokens, mask):
        mean = (self.embedding(tokens) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return [head(mean) for head in self.heads]


def words(n=40, seed=0):
    rng = np.random.default_rng(seed)
    texts = [rng.integers(0, 10, rng.integers(2, 7)) for _ in range(n)]
    items = [{"tokens": text, "mask": np.ones(len(text), np.float32)} for text in texts]
    return Examples.of(items, [rng.integers(0, 3, n), rng.integers(0, 4, n)], collate=fedhv.padded)


def sentences() -> Problem:
    return Problem.from_clients(Words, TASKS, [words(seed=k) for k in range(3)], words(seed=9), name="sentences")


def of_model(model, norm="refuse", **options) -> Problem:
    train = examples(60, seed=1)
    clients = [train[start : start + 20] for start in (0, 20, 40)]
    return Problem.from_clients(model, TASKS, clients, examples(30, seed=2), name="own", norm=norm, **options)


def accuracies(module, problem):
    """Every task's accuracy on the test examples, by the module alone."""
    inputs = problem.test.inputs if problem.prepare is None else problem.prepare(problem.test.inputs)
    with torch.no_grad():
        outputs = module(inputs)
    pairs = zip(outputs, problem.test.targets, strict=True)
    return [100 * float((output.argmax(1) == target).double().mean()) for output, target in pairs]


@pytest.mark.parametrize(
    ("model", "norm", "kind"),
    [
        (Small, "refuse", None),
        (Buffered, "refuse", None),
        (Normalised, "average", nn.BatchNorm1d),
        (Normalised, "local", nn.BatchNorm1d),
        (Normalised, "frozen", nn.BatchNorm1d),
        (Normalised, "group", nn.GroupNorm),
    ],
)
def test_a_runs_model_is_the_users_module_with_the_results_of_the_run(model, norm, kind, tmp_path):
    problem = of_model(model, norm, prepare=prepared)
    run = fedhv.run(problem, "uniform", out=tmp_path / "run", **SHORT)
    torch.manual_seed(5)
    for source, given in ((run, None), (tmp_path / "run", problem), (str(tmp_path / "run"), model)):
        module = fedhv.load_model(source, given)
        assert type(module) is model
        assert not module.training
        assert accuracies(module, problem) == pytest.approx([task.accuracy for task in run.tasks])
        if kind is not None:
            assert type(module.encoder[1]) is kind
    if norm == "average":
        assert float(fedhv.load_model(run).encoder[1].running_mean.abs().sum()) > 0
    assert torch.equal(torch.randn(1), torch.randn(1, generator=torch.Generator().manual_seed(5)))


def test_benchmarks_are_found_by_their_names(tmp_path):
    run = fedhv.run("digits", "uniform", rounds=1, out=tmp_path / "run", override=["federation.participants=2"])
    assert run.problem is None
    module = fedhv.load_model(tmp_path / "run")
    assert all(torch.equal(value, run.state_dict[name]) for name, value in module.state_dict().items())
    assert fedhv.evaluate(tmp_path / "run").tasks == run.tasks


def test_runs_of_a_study_have_their_models():
    problem = everything_random()
    for run in fedhv.compare(problem, ["uniform"], seeds=[0, 1], **SHORT):
        assert accuracies(fedhv.load_model(run), problem) == pytest.approx([task.accuracy for task in run.tasks])


@pytest.fixture
def folder(tmp_path):
    fedhv.run(everything_random(), "uniform", out=tmp_path / "run", **SHORT)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "on your own problem, which no folder holds. Give the problem again"),
        (Words, "Found 'embedding.weight' with shape \\(10, 8\\) in the model and None in the run"),
        (nn.Linear(2, 2), "`problem` should be a Problem, or make a model"),
        ("problems:nothing", "The problem 'problems:nothing' could not be imported"),
        (lambda: 3, "should return a torch module. Found int"),
    ],
)
def test_what_is_not_the_model_of_a_run_is_refused(given, message, folder):
    with pytest.raises(InputError, match=message):
        fedhv.load_model(folder, given)


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="Name the folder of one run"):
        fedhv.load_model(tmp_path)
    with pytest.raises(InputError, match=r"a run's folder\. Found 3"):
        fedhv.load_model(3)


# --- evaluation on other data -----------------------------------------------------------------------------


def test_evaluation_on_the_problems_own_test_set_is_that_of_the_run(folder):
    run = fedhv.read_run(folder)
    found = fedhv.evaluate(run, problem=everything_random())
    assert (found.tasks, found.hypervolume) == (run.tasks, run.hypervolume)


def test_evaluation_on_other_examples_has_the_problems_metrics():
    tasks = [fedhv.classification("colour", 3, metrics=["balanced_accuracy"]), fedhv.classification("size", 4)]
    train, other = examples(60, seed=1), examples(45, seed=7)
    problem = Problem.from_clients(Small, tasks, [train[:30], train[30:]], examples(30, seed=2))
    run = fedhv.run(problem, "uniform", **{**SHORT, "participants": 2})
    found = fedhv.evaluate(run, (other.inputs, other.targets))
    module = fedhv.load_model(run)
    with torch.no_grad():
        right = module(other.inputs)[0].argmax(1) == other.targets[0]
    assert found.tasks[0].accuracy == pytest.approx(100 * float(right.double().mean()))
    by_class = [float(right[other.targets[0] == c].double().mean()) for c in range(3)]
    assert found.tasks[0].metrics["balanced_accuracy"] == pytest.approx(np.mean(by_class))
    with pytest.raises(InputError, match="should be inputs and a list of targets"):
        fedhv.evaluate(run, 3)
    with pytest.raises(InputError, match=r"should have targets for 2 tasks\. Found 1"):
        fedhv.evaluate(run, (other.inputs, other.targets[:1]))
    with pytest.raises(InputError, match="whose tasks and examples are needed"):
        fedhv.evaluate(run, problem=Small)


def test_sequences_are_collated_as_the_problems_are():
    run = fedhv.run(sentences(), "uniform", **SHORT)
    test = words(seed=9)
    again = fedhv.evaluate(run, (list(test.inputs.items), [target.numpy() for target in test.targets]))
    assert again.tasks == run.tasks


def test_examples_that_the_model_does_not_take_are_one_line():
    run = fedhv.run(of_model(Small), "uniform", **SHORT)
    inputs, targets = run.problem.test.inputs, run.problem.test.targets
    with pytest.raises(InputError, match=r"^The model should take the test examples' inputs, .* \(2, 5\) of torch"):
        fedhv.evaluate(run, (inputs[:, :5], targets))
    gaps = targets[0].double().index_fill(0, torch.arange(3), torch.nan)  # labels may be missing, also the first
    assert fedhv.evaluate(run, (inputs, [gaps, targets[1]])).tasks[1] == run.tasks[1]
    with pytest.raises(InputError, match=r"should have targets for 2 tasks\. Found 1\.$"):
        fedhv.evaluate(run, (inputs, targets[:1]))


def test_evaluation_from_the_command_line(command, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder.parent))
    (folder.parent / "later.py").write_text(
        "from problems import examples\ndef new():\n    return examples(20, seed=3)\n"
    )
    done = command("evaluate", folder, "--problem", "problems:everything_random", "--on", "later:new")
    assert done.code == 0, done.err
    assert "evaluated on later:new" in done.out
    assert all(word in done.out for word in ("colour", "größe", "accuracy", "worst"))
    refused = command("evaluate", folder)
    assert refused.code == 2
    assert "--problem package.module:function" in refused.err
    sys.modules.pop("later", None)


# --- export -----------------------------------------------------------------------------------------------


def test_export_takes_any_number_of_examples_and_prepares_them(tmp_path, command, folder):
    problem = of_model(Small, prepare=prepared)
    run = fedhv.run(problem, "uniform", **SHORT)
    made = fedhv.export(run, tmp_path / "exported", formats=["pt2"])
    assert (made.inputs, made.outputs) == (("inputs",), ("colour", "größe"))
    loaded = torch.export.load(made.files["pt2"]).module()
    expected = fedhv.load_model(run)(prepared(problem.test.inputs))
    for ours, theirs in zip(expected, loaded(problem.test.inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    bare = fedhv.export(run, tmp_path / "bare", formats=["pt2"], prepare=False)
    outputs = torch.export.load(bare.files["pt2"]).module()(prepared(problem.test.inputs))
    torch.testing.assert_close(outputs[0], expected[0])
    done = command("export", folder, "--formats", "pt2", "--problem", "problems:everything_random")
    assert done.code == 0, done.err
    assert (folder / "export" / "model.pt2").exists()


def test_onnx_has_the_same_outputs_for_any_length(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    problem = sentences()
    run = fedhv.run(problem, "uniform", **{**SHORT, "participants": 2})
    made = fedhv.export(run, tmp_path, formats=["onnx"])
    assert made.differences["onnx"] < 1e-5
    session = runtime.InferenceSession(made.files["onnx"])
    assert [each.name for each in session.get_outputs()] == ["colour", "größe"]
    inputs = fedhv.padded([{"tokens": np.arange(9) % 10, "mask": np.ones(9, np.float32)}])
    expected = fedhv.load_model(run)(**inputs)
    found = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    np.testing.assert_allclose(found[0], expected[0].detach().numpy(), atol=1e-5)


class Odd(Small):
    """Its outputs depend on the number of examples in a way that no tracer follows."""

    def forward(self, inputs):
        return [output + float(np.random.default_rng().random()) for output in super().forward(inputs)]


def test_outputs_that_differ_are_an_error_and_leave_no_file(tmp_path, monkeypatch):
    run = fedhv.run(of_model(Small), "uniform", **SHORT)
    monkeypatch.setattr(exporting, "load_model", lambda run, problem: Odd().eval())
    with pytest.raises(FedHVError, match="differ from those of PyTorch by"):
        fedhv.export(run, tmp_path, formats=["pt2"])
    assert list(tmp_path.iterdir()) == []


def test_export_says_what_is_missing(folder, monkeypatch):
    problem = everything_random()
    run = fedhv.run(problem, "uniform", **SHORT)
    with pytest.raises(InputError, match=r"in memory only\. Give the folder for the files"):
        fedhv.export(run, formats=["pt2"])
    with pytest.raises(InputError, match="Unknown format 'pb'"):
        fedhv.export(folder, formats=["pb"], problem=problem)
    with pytest.raises(InputError, match="`formats` should be a list of pt2 and onnx"):
        fedhv.export(folder, formats="pt2", problem=problem)
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'fedhv\[export\]'"):
        fedhv.export(folder, problem=problem)
