"""Files are whole or not there, whatever happens while they are written."""

import errno
import fcntl
import os
import shutil
import signal
import tempfile
import time

import pytest
import torch
from runs_on_disk import contents, save_every_round

from fedhv import FedHVError, InputError, State, run
from fedhv.engines import Sequential
from fedhv.runs.checkpoint import NAME, PREVIOUS, read_checkpoint
from fedhv.runs.history import History
from fedhv.simulation.observer import Observer
from fedhv.simulation.record import Round
from fedhv.support.files import cannot_write, locked, make_folder, write_atomic


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


def test_the_old_file_is_kept_beside_only_once_the_new_one_is_on_the_disk(tmp_path, monkeypatch):
    write_atomic(tmp_path / "f", "1", previous=tmp_path / "p")
    assert not (tmp_path / "p").exists()
    write_atomic(tmp_path / "f", "2", previous=tmp_path / "p")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)  # the disk is full while the third is written
        with pytest.raises(FedHVError):
            write_atomic(tmp_path / "f", "3", previous=tmp_path / "p")
    assert [(tmp_path / name).read_text() for name in ("f", "p")] == ["2", "1"]  # the pair is still a pair
    write_atomic(tmp_path / "f", "3", previous=tmp_path / "p")
    assert [(tmp_path / name).read_text() for name in ("f", "p")] == ["3", "2"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.ENOSPC, "Free some space and continue with --resume"), (errno.EROFS, "Make the disk writable"),
     (errno.ENOENT, "Has the folder been removed?"), (errno.EDQUOT, "quota")],
)  # fmt: skip
def test_the_remedy_goes_with_the_reason(number, text):
    assert text in str(cannot_write("f", OSError(number, os.strerror(number))))


def test_a_vanished_folder_is_a_failure_with_its_name(tmp_path):
    with pytest.raises(FedHVError, match=r"could not be written: No such file.*Has the folder been removed"):
        write_atomic(tmp_path / "gone" / "f", "new")


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
        history.append(Round(number=1, weights=(1.0,), downlink_bytes=4, uplink_bytes=4, exchanges=1))


def test_a_history_on_a_full_disk_fails_once_and_closes_quietly(tmp_path):
    history = History(tmp_path)
    history.close()
    history._file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(FedHVError, match="Free some space and continue with --resume"):
        history.append(Round(number=1, weights=(1.0,), downlink_bytes=4, uplink_bytes=4, exchanges=1))
    history.close()  # what is left in the buffer cannot be written either, and was reported


def test_a_history_that_cannot_be_flushed_to_the_disk_is_a_failure_with_its_name(tmp_path, monkeypatch):
    history = History(tmp_path)
    history.append(Round(number=1, weights=(1.0,), downlink_bytes=4, uplink_bytes=4, exchanges=1))
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(FedHVError, match=r"history.jsonl could not be written: No space left"):
        history.sync()
    history.close()


class FullAfter(Observer):
    """Fills the disk, or takes the folder away, after a round."""

    def __init__(self, monkeypatch, folder, how):
        self.monkeypatch, self.folder, self.how = monkeypatch, folder, how

    def round(self, round):
        if round.number == 3:
            if self.how == "vanished":
                shutil.rmtree(self.folder)
            else:
                number = {"full": errno.ENOSPC, "read-only": errno.EROFS}[self.how]

                def refuse(*_, **__):
                    raise OSError(number, os.strerror(number))

                self.monkeypatch.setattr(tempfile, "mkstemp", refuse)


@pytest.mark.parametrize("how", ["full", "read-only", "vanished"])
def test_a_run_stops_with_the_reason_and_what_was_written_before_is_intact(how, tmp_path, monkeypatch, random_problem):
    save_every_round(monkeypatch)
    folder, changes = tmp_path / "r", ["training.batch_size=4", "training.local_steps=1"]
    options = {"rounds": 6, "override": changes, "engine": "sequential"}
    with monkeypatch.context() as broken, pytest.raises(FedHVError, match="could not be written") as caught:
        run(random_problem, "uniform", out=folder, observer=FullAfter(broken, folder, how), **options)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    if how == "vanished":
        return
    start = State(torch.zeros(Sequential(random_problem).layout.d), torch.zeros(2))
    pair = [read_checkpoint(folder / name, start).round for name in (NAME, PREVIOUS)]
    assert pair == [3, 2]
    run(random_problem, "uniform", out=folder, resume=True, **options)
    run(random_problem, "uniform", out=tmp_path / "whole", **options)
    assert contents(folder) == contents(tmp_path / "whole")


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


def test_a_lock_does_not_live_on_in_the_workers_of_a_process_that_was_killed(tmp_path):
    # a worker is forked while the folder is locked, and goes on a little after its parent's end
    ready, started = os.pipe()
    parent = os.fork()
    if parent == 0:
        with locked(tmp_path):
            worker = os.fork()
            if worker == 0:
                time.sleep(20)
                os._exit(0)
            os.write(started, str(worker).encode())
            time.sleep(20)
            os._exit(0)
    worker = int(os.read(ready, 20))
    try:
        with pytest.raises(InputError, match="Another process is using"), locked(tmp_path):
            pass
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with locked(tmp_path):
            os.kill(worker, 0)  # it is still there, and has no part in the lock
    finally:
        os.kill(worker, signal.SIGKILL)
        for end in (ready, started):
            os.close(end)


def test_a_file_system_without_locks_is_named_as_such(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InputError, match="cannot be locked: No locks available"), locked(tmp_path):
        pass
