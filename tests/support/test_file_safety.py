"""Nothing that is read can escape its folder or fill the memory; that it cannot run code is ruff's to check."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from runs_on_disk import records
from safetensors.torch import save

from fedhv import InputError, State
from fedhv.data.celeba import _read_attributes
from fedhv.runs.checkpoint import NAME, load_checkpoint
from fedhv.runs.config import load_setting
from fedhv.runs.record import read_summary
from fedhv.runs.reference import read_reference
from fedhv.support import toml
from fedhv.support.jsonfile import LARGEST, parse_object, read_object

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
