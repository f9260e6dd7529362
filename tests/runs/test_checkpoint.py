"""Checkpoints: whole or not there, checked when read, one more behind the newest."""

import hashlib

import pytest
import torch
from safetensors.torch import save

from fedhv import InputError, State
from fedhv.runs.checkpoint import NAME, PREVIOUS, Checkpoint, load_checkpoint, save_checkpoint

START = State(torch.zeros(5), torch.tensor([0.5, 0.5]))


def state(value):
    memory = {"velocity": torch.full((2, 3), value), "count": torch.tensor(7)}
    return State(torch.full((5,), value), torch.tensor([value, 1 - value]), memory, {"report": [1.0]})


@pytest.fixture
def folder(tmp_path):
    """With the checkpoints of rounds 1 and 2."""
    save_checkpoint(tmp_path, Checkpoint(1, state(0.25)))
    save_checkpoint(tmp_path, Checkpoint(2, state(0.75)))
    return tmp_path


def test_what_is_saved_is_loaded_to_the_bit(folder):
    loaded, note = load_checkpoint(folder, START)
    assert note == ""
    assert loaded.round == 2
    assert torch.equal(loaded.state.model, state(0.75).model)
    assert torch.equal(loaded.state.weights, state(0.75).weights)
    assert torch.equal(loaded.state.memory["velocity"], state(0.75).memory["velocity"])
    assert loaded.state.memory["count"] == 7


def test_a_new_run_has_no_checkpoint(tmp_path):
    assert load_checkpoint(tmp_path, START) == (None, "")


def test_no_temporary_file_is_left(folder):
    assert sorted(path.name for path in folder.iterdir()) == [PREVIOUS, NAME]


def test_equal_states_are_equal_files(tmp_path):
    contents = []
    for _ in range(2):
        save_checkpoint(tmp_path, Checkpoint(3, state(0.25)))
        contents.append((tmp_path / NAME).read_bytes())
    assert contents[0] == contents[1]


FLIPPED = {"a bit of the header": 20, "a bit of a number": -33, "a bit of the checksum": -1}
"""Which byte of the file is changed; the last 32 are its checksum."""


def damage(path, how):
    content = path.read_bytes()
    if how in FLIPPED:
        place = FLIPPED[how] if FLIPPED[how] >= 0 else len(content) + FLIPPED[how]
        content = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    elif how == "truncated":
        content = content[: len(content) // 2]
    elif how == "short":
        content = content[:10]
    elif how == "empty":
        content = b""
    elif how == "foreign":
        content = b"hello" + hashlib.sha256(b"hello").digest()
    path.write_bytes(content)


HOW = [*FLIPPED, "truncated", "short", "empty", "foreign"]


@pytest.mark.parametrize("how", HOW)
def test_the_one_before_takes_the_place_of_a_corrupt_newest_with_a_note(how, folder):
    damage(folder / NAME, how)
    loaded, note = load_checkpoint(folder, START)
    assert loaded.round == 1
    assert torch.equal(loaded.state.model, state(0.25).model)
    assert NAME in note
    assert "Using the previous one, after round 1" in note


@pytest.mark.parametrize("how", HOW)
def test_two_corrupt_checkpoints_are_refused_with_the_remedy(how, folder):
    damage(folder / NAME, how)
    damage(folder / PREVIOUS, how)
    with pytest.raises(InputError, match=r"Delete .* to start the run again") as caught:
        load_checkpoint(folder, START)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_crash_between_the_two_renames_leaves_the_one_before(folder):
    (folder / NAME).unlink()
    loaded, note = load_checkpoint(folder, START)
    assert loaded.round == 1
    assert note == ""


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (State(torch.zeros(6), torch.zeros(2)), "model"),
        (State(torch.zeros(5, dtype=torch.float64), torch.zeros(2)), "model"),
        (State(torch.zeros(5), torch.zeros(3)), "weights"),
    ],
)
def test_a_checkpoint_of_another_shape_or_type_is_refused(start, name, folder):
    with pytest.raises(InputError, match=f"expected `{name}` of shape"):
        load_checkpoint(folder, start)


def test_a_whole_file_that_is_no_checkpoint_is_refused(tmp_path):
    content = save({"model": torch.zeros(5)})
    (tmp_path / NAME).write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(InputError, match="not one of FedHV's"):
        load_checkpoint(tmp_path, START)


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    # a pickle would be; safetensors holds numbers and nothing else
    import pickle

    content = pickle.dumps({"model": 1})
    (tmp_path / NAME).write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(InputError):
        load_checkpoint(tmp_path, START)


def test_a_checkpoint_that_cannot_be_read_falls_back_to_the_one_before(folder):
    (folder / NAME).unlink()
    (folder / NAME).mkdir()
    loaded, note = load_checkpoint(folder, START)
    assert loaded.round == 1
    assert "could not be read" in note
