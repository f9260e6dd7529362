"""Files are whole or not there, whatever happens while they are written."""

import os

import pytest

from fedhv import FedHVError, InputError
from fedhv.files import locked, make_folder, write_atomic
from fedhv.history import History


def refuse(*_):
    raise OSError(28, "No space left on device")


def test_a_file_is_replaced_as_a_whole(tmp_path):
    write_atomic(tmp_path / "f", "one")
    write_atomic(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failed_write_leaves_the_old_file_and_no_other(step, tmp_path, monkeypatch):
    write_atomic(tmp_path / "f", "old")
    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(FedHVError, match="could not be written: No space left on device") as caught:
        write_atomic(tmp_path / "f", "new")
    assert caught.value.exit_code == 1
    assert (tmp_path / "f").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_an_interrupt_while_writing_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    write_atomic(tmp_path / "f", "old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_history_that_cannot_be_written_is_a_failure_with_its_name(tmp_path):
    history = History(tmp_path)
    history.close()
    history._file = open("/dev/full", "w")  # noqa: SIM115 - every write to it fails
    with pytest.raises(FedHVError, match="could not be written: No space left on device"):
        history.append({"round": 1})


def test_a_folder_is_made_with_its_parents(tmp_path):
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b").is_dir()


def test_a_folder_that_cannot_be_made_is_bad_input_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .* Choose another with --out"):
        make_folder(tmp_path / "file" / "folder")


def test_a_lock_keeps_others_out_and_goes_with_its_holder(tmp_path):
    with locked(tmp_path), pytest.raises(InputError, match="Another process is using"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
