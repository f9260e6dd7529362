import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_datasets import idx_bytes, write_idx

from fedhv.data import load_fashion_mnist, load_mnist
from fedhv.data.idx import read_idx
from fedhv.support.errors import InputError

# two 2x3 images, byte by byte
GOLDEN = bytes.fromhex("00000803 00000002 00000002 00000003 000102030405 fafbfcfdfeff")


def test_golden_bytes(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(GOLDEN)
    expected = [[[0, 1, 2], [3, 4, 5]], [[250, 251, 252], [253, 254, 255]]]
    assert read_idx(path, 3).tolist() == expected
    assert read_idx(path, 3).dtype == np.uint8
    path.write_bytes(gzip.compress(GOLDEN))
    assert read_idx(path, 3).tolist() == expected


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "0 bytes in all"),
        (GOLDEN[:15], "15 bytes in all"),
        (GOLDEN[:-1], "cut after 11"),
        (GOLDEN + b"\0", "more bytes"),
        (b"\1" + GOLDEN[1:], "magic number 01000803"),
        (b"\0\0\x0d" + GOLDEN[3:], "magic number 00000d03"),
        (b"\0\0\x08\x01" + GOLDEN[4:], "magic number 00000801"),
        (GOLDEN[:4] + b"\xff" * 12 + GOLDEN[16:], "dimensions"),
        (GOLDEN[:4] + bytes(12) + GOLDEN[16:], "dimensions"),
        (b"\x80\x04\x95pickle, not idx!", "magic number"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_malformed_files_are_named(tmp_path, content, says, pack):
    path = tmp_path / "bad-images"
    path.write_bytes(pack(content))
    with pytest.raises(InputError, match=says) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-9], lambda b: b[:30], lambda b: b[:-6] + b"\0\0" + b[-4:], lambda b: b[:12] + b"\xff" * 9 + b[21:]],
)
def test_damaged_gzip_is_named(tmp_path, damage):
    path = tmp_path / "images.gz"
    content = idx_bytes(np.random.default_rng(0).integers(256, size=(3, 5, 5)))
    path.write_bytes(damage(gzip.compress(content)))
    with pytest.raises(InputError, match=r"images\.gz"):
        read_idx(path, 3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=64) | st.binary(max_size=40).map(lambda b: GOLDEN[:16] + b))
def test_any_bytes_are_read_whole_or_refused(tmp_path, content):
    path = tmp_path / "images"
    path.write_bytes(content)
    try:
        array = read_idx(path, 3)
    except InputError:
        return
    assert idx_bytes(array) == content


@pytest.mark.parametrize("compressed", [True, False])
def test_both_layouts_of_torchvision_load(tmp_path, compressed):
    write_idx(tmp_path / "MNIST/raw", compressed)
    write_idx(tmp_path / "FashionMNIST/raw", compressed, seed=5)
    for load in (load_mnist, load_fashion_mnist):
        train, train_labels, test, test_labels = load(tmp_path)
        assert (train.shape, test.shape) == ((12, 28, 28), (6, 28, 28))
        assert train_labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
        assert test_labels.tolist() == [0, 1, 2, 3, 4, 5]
        assert {array.dtype for array in (train, train_labels, test, test_labels)} == {np.dtype(np.uint8)}
    assert (load_mnist(tmp_path)[0] != load_fashion_mnist(tmp_path)[0]).any()


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("train-labels-idx1-ubyte", np.array([0] * 11 + [10]), "found 10"),
        ("train-labels-idx1-ubyte", np.zeros(11), "expected 12 labels"),
        ("train-images-idx3-ubyte", np.zeros((12, 28, 27)), "28x27"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, name, array, says):
    folder = tmp_path / "MNIST/raw"
    write_idx(folder)
    (folder / f"{name}.gz").unlink()
    (folder / name).write_bytes(idx_bytes(array))
    with pytest.raises(InputError, match=says) as caught:
        load_mnist(tmp_path)
    assert name in str(caught.value)
