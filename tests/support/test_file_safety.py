"""Nothing that is read can run code, escape its folder or fill the memory; and the source does nothing of the kind."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

import pytest
import torch
from runs_on_disk import records
from safetensors.torch import save

import fedhv
from fedhv import InputError, State
from fedhv.data.celeba import _read_attributes
from fedhv.runs.checkpoint import NAME, load_checkpoint
from fedhv.runs.config import load_setting
from fedhv.runs.record import read_summary
from fedhv.runs.reference import read_reference
from fedhv.support import toml
from fedhv.support.jsonfile import LARGEST, parse_object, read_object

SOURCE = Path(fedhv.__file__).parent
MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
NAMES = {"eval", "exec", "__import__", "compile"}
CALLS = {
    "torch.load", "torch.save", "torch.jit.load", "os.system", "os.popen", "yaml.load", "pickle.loads",
    "subprocess.getoutput", "numpy.fromfile",
}  # fmt: skip
METHODS = {"extractall"}
KEYWORDS = {("shell", True), ("allow_pickle", True), ("trust_remote_code", True), ("weights_only", False)}


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def forbidden(tree: ast.AST) -> list[str]:
    """What a module imports or calls that could run what it reads."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in NAMES | CALLS or method in METHODS:
                found.append(name or method)
            for keyword in node.keywords:
                if isinstance(keyword.value, ast.Constant) and (keyword.arg, keyword.value.value) in KEYWORDS:
                    found.append(f"{keyword.arg}={keyword.value.value}")
    return found


def test_the_source_has_no_forbidden_call():
    found = {path: forbidden(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCE.rglob("*.py")}
    assert {path: calls for path, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from joblib import load", "eval('1')", "torch.load('f')", "np.load('f', allow_pickle=True)",
     "tar.extractall('.')", "subprocess.run('ls', shell=True)", "exec(text)", "import yaml", "os.system('ls')"],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(code):
    assert forbidden(ast.parse(code))


def test_the_search_does_not_mind_a_module_in_evaluation_mode():
    assert forbidden(ast.parse("model.eval()\nre.compile('x')\ntorch.compile(f)")) == []


# --- JSON and TOML within limits --------------------------------------------------------------------------

DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 50_000, "[1]", "null", "", "{", '{"a": ' + "9" * 5000 + "}"])
def test_json_that_is_no_object_is_refused_in_one_line(text, tmp_path):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(InputError, match=r"summary.json could not be read: .+") as caught:
        read_summary(tmp_path)
    assert "\n" not in str(caught.value)


def test_json_beyond_its_size_is_not_even_read(tmp_path):
    with (tmp_path / "summary.json").open("wb") as file:
        file.truncate(LARGEST + 1)  # a hole: it takes no space on the disk
    with pytest.raises(ValueError, match="more than"):
        read_object(tmp_path / "summary.json")
    with pytest.raises(ValueError, match="more than"):
        parse_object(b" " * (LARGEST + 1))


def test_a_round_that_is_too_deep_or_no_number_is_refused_by_its_line(tmp_path):
    sent = '"weights": [1.0], "downlink_bytes": 4, "uplink_bytes": 4, "exchanges": 1, "seconds": 0.5'
    for number in (DEEP, f"true, {sent}}}", f"1.0, {sent}}}"):
        first, third = (f'{{"round": {t}, {sent}}}\n' for t in (1, 3))
        (tmp_path / "history.jsonl").write_text(f'{first}{{"round": {number}\n{third}')
        with pytest.raises(InputError, match=r"history.jsonl, line 2: not a round"):
            records(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["a." * 200_000 + "b = 1", "[" + "a." * 200_000 + "b]", '"a b" . ' * 100_000 + "b = 1"],
    ids=["key", "table", "quoted"],
)
def test_a_deep_key_is_refused_before_it_is_parsed(text, monkeypatch):
    monkeypatch.setattr("tomllib.loads", None)  # it took a minute for this key, and a hostile file could have many
    with pytest.raises(toml.TOMLError, match="more than 32 parts"):
        toml.read_text(text)


def test_long_values_are_parsed():
    with pytest.raises(toml.TOMLError):
        toml.read_text("a" * 4_000_000)
    numbers = ", ".join(["0.25"] * 10_000)
    assert len(toml.read_text(f'a.b.c = [{numbers}]\nd = "{"x" * 10_000}"')["a"]["b"]["c"]) == 10_000


@pytest.mark.parametrize("text", ["a = " + DEEP, "a = " + "9" * 5000, "a." * 50_000 + "b = 1", "a = 1\na = 2"])
def test_toml_that_is_too_much_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(text)
    for read in (toml.read, read_reference, lambda path: load_setting(str(path))):
        with pytest.raises(InputError, match=r"s\.toml") as caught:
            read(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["9" * 5000, DEEP])
def test_an_override_that_is_too_much_is_refused_in_one_line(value):
    with pytest.raises(InputError, match=r"training\.rounds"):
        load_setting("digits", [f"training.rounds={value}"])


def test_a_list_that_announces_too_many_digits_is_refused(tmp_path):
    path = tmp_path / "list_attr_celeba.txt"
    path.write_text("9" * 5000 + "\nx\ny\n")
    with pytest.raises(InputError, match="expected the number of images"):
        _read_attributes(path)


# --- checkpoints ------------------------------------------------------------------------------------------

START = State(torch.zeros(5), torch.zeros(2))
GOOD = {"model": torch.ones(5), "weights": torch.ones(2) / 2, "round": torch.tensor(3)}


def written(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    content = save(tensors)
    (folder / NAME).write_bytes(content + hashlib.sha256(content).digest())


def test_a_checkpoint_that_fits_is_loaded(tmp_path):
    written(tmp_path, GOOD)
    assert load_checkpoint(tmp_path, START)[0].round == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": torch.tensor([3])}, "`round` as a whole number"),
        ({"round": torch.tensor(3.5)}, "`round` as a whole number"),
        ({"round": torch.tensor(-1)}, "`round` as a whole number"),
        ({"model": torch.full((5,), torch.nan)}, "`model` is not finite"),
        ({"weights": torch.tensor([0.5, torch.inf])}, "`weights` is not finite"),
        ({"model": torch.ones(5, dtype=torch.float16)}, "expected `model` of shape"),
        ({"weights": torch.ones(3)}, "expected `weights` of shape"),
        ({"surprise": torch.ones(3)}, "it holds 'surprise'"),
    ],
)
def test_a_checkpoint_with_a_good_checksum_that_does_not_fit_is_refused(change, message, tmp_path):
    written(tmp_path, GOOD | change)
    with pytest.raises(InputError, match=message) as caught:
        load_checkpoint(tmp_path, START)
    assert "\n" not in str(caught.value)


def test_a_header_that_announces_more_than_there_is_asks_for_no_memory(tmp_path):
    header = json.dumps({"model": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    content = len(header).to_bytes(8, "little") + header
    (tmp_path / NAME).write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(InputError, match="not one of FedHV's"):
        load_checkpoint(tmp_path, START)
