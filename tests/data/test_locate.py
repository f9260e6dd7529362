import os
import re
from pathlib import Path

import pytest
from tiny_datasets import write_idx

from fedhv.data import data_directory, data_location, load_cifar10, load_mnist
from fedhv.support.errors import InputError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    monkeypatch.delenv("FEDHV_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_explicit_beats_environment_beats_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_directory(None) == tmp_path / ".cache/fedhv/data"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data_directory(None) == tmp_path / "xdg/fedhv/data"
    assert data_location().origin == "default"
    monkeypatch.setenv("FEDHV_DATA", str(tmp_path / "env"))
    assert data_location() == data_location(None)
    assert (data_directory(), data_location().origin) == (tmp_path / "env", "FEDHV_DATA")
    assert data_directory(str(tmp_path / "explicit")) == tmp_path / "explicit"
    assert data_location(tmp_path).origin == "--data"


def test_relative_xdg_and_empty_environment_are_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("FEDHV_DATA", "")
    assert data_directory("") == tmp_path / ".cache/fedhv/data"


def test_home_is_expanded_and_the_path_is_absolute(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert data_directory("~/d") == tmp_path / "d"
    assert data_directory("d") == tmp_path / "d"


def test_unknown_home_is_one_line():
    with pytest.raises(InputError, match="home folder"):
        data_directory("~nobody-of-that-name/d")


def test_a_file_is_not_a_data_directory(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match=re.escape(str(file))):
        data_directory(str(file))


def test_missing_files_say_which_where_and_how(tmp_path):
    with pytest.raises(InputError) as caught:
        load_mnist(tmp_path)
    message = str(caught.value)
    for part in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", str(tmp_path / "MNIST/raw")):
        assert part in message
    assert "fedhv data download mnist" in message
    assert "--data" in message
    assert "\n" not in message


def test_only_the_absent_files_are_named(tmp_path):
    write_idx(tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError) as caught:
        load_mnist(tmp_path)
    assert "t10k-labels-idx1-ubyte not found" in str(caught.value)
    assert "train-images" not in str(caught.value)


EXPLOSIVE = b"cos\n_exit\n(I77\ntR."
"""A pickle that ends the process when it is loaded."""


def test_pickled_cifar_is_explained_and_never_loaded(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(EXPLOSIVE)
    with pytest.raises(InputError) as caught:
        load_cifar10(tmp_path)
    message = str(caught.value)
    for part in ("pickled", "never loaded", "fedhv data download cifar10", "cifar-10-binary.tar.gz"):
        assert part in message
    assert "\n" not in message


def _unprivileged(function):
    """The message of the InputError that `function` raises for a user who is not root."""
    if os.geteuid() != 0:
        with pytest.raises(InputError) as caught:
            function()
        return str(caught.value)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        text = "no error"
        try:
            os.setgid(65534)
            os.setuid(65534)
            function()
        except InputError as error:
            text = str(error)
        except BaseException as error:
            text = repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_directory_without_permission_is_one_line(tmp_path, mode):
    root = tmp_path / "closed"
    write_idx(root / "MNIST/raw")
    root.chmod(mode)
    try:
        message = _unprivileged(lambda: load_mnist(root))
    finally:
        root.chmod(0o755)
    assert str(root) in message
    assert "permission denied" in message
    assert "--data" in message
    assert "\n" not in message


def test_other_failures_of_the_disk_are_one_line(tmp_path):
    write_idx(tmp_path / "MNIST/raw")
    file = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    file.unlink()
    file.mkdir()
    with pytest.raises(InputError, match="is a directory"):
        load_mnist(tmp_path)
    assert Path(file).is_dir()
