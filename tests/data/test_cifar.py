import numpy as np
import pytest
from tiny_datasets import write_cifar

from fedhv.data import load_cifar10
from fedhv.data.cifar import RECORD, read_records
from fedhv.support.errors import InputError


def test_golden_record(tmp_path):
    path = tmp_path / "x.bin"
    red, green, blue = (np.full(1024, value, np.uint8) for value in (10, 20, 30))
    red[33] = 99  # row 1, column 1
    path.write_bytes(bytes([7]) + red.tobytes() + green.tobytes() + blue.tobytes())
    images, labels = read_records(path)
    assert labels.tolist() == [7]
    assert images.shape == (1, 3, 32, 32)
    assert images[0, :, 0, 0].tolist() == [10, 20, 30]
    assert images[0, :, 1, 1].tolist() == [99, 20, 30]


def test_five_training_files_in_order_and_one_test_file(tmp_path):
    write_cifar(tmp_path, records=2)
    train, train_labels, test, test_labels = load_cifar10(tmp_path)
    assert (train.shape, test.shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert (train_labels.shape, test_labels.shape) == ((10,), (2,))
    third, third_labels = read_records(tmp_path / "cifar-10-batches-bin/data_batch_3.bin")
    assert (train[4:6] == third).all()
    assert (train_labels[4:6] == third_labels).all()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "found 0 bytes"),
        (bytes(RECORD - 1), "0 records and 3072 bytes"),
        (bytes(2 * RECORD + 5), "2 records and 5 bytes"),
        (bytes(RECORD) + b"\x0a" + bytes(RECORD - 1), "found 10 in record 1"),
    ],
)
def test_malformed_files_are_named(tmp_path, content, says):
    write_cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-bin/data_batch_4.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        load_cifar10(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
