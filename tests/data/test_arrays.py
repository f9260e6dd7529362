import io
import zipfile

import numpy as np
import pytest

from fedhv.data.arrays import read_arrays, write_arrays
from fedhv.data.files import write_atomically
from fedhv.support.errors import InputError


def npy(array, **options):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


def test_what_is_written_is_read(tmp_path):
    arrays = {"a": np.arange(12, dtype=np.uint8).reshape(3, 4), "names": np.array(["x", "é"]), "one": np.array(1.5)}
    write_arrays(tmp_path / "new/folder/f.npz", arrays)
    back = read_arrays(tmp_path / "new/folder/f.npz", list(arrays))
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)
        assert back[name].flags.writeable


def test_compressed_files_are_read_too(tmp_path):
    np.savez_compressed(tmp_path / "f.npz", a=np.zeros(5000, np.uint8))
    assert read_arrays(tmp_path / "f.npz", ["a"])["a"].shape == (5000,)


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (npy(np.array([{}], dtype=object), allow_pickle=True), "objects"),
        (npy(np.zeros((2, 3), order="F")), "transposed"),
        (npy(np.zeros(4, np.uint8))[:-1], "should have 4 bytes and has 3"),
        (npy(np.zeros(4, np.uint8)) + b"!", "should have 4 bytes and has 5"),
        (npy(np.zeros(4, np.uint8)).replace(b"(4,)", b"(9999999999999999,)")[:-15], "should have"),
        (b"not an array", "magic"),
        (b"", "EOF"),
    ],
)
def test_untrustworthy_members_are_refused(tmp_path, member, says):
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", member)
    with pytest.raises(InputError, match=says) as caught:
        read_arrays(path, ["a"])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def with_header(header):
    """An array with this text where its form should be."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


HEADERS = (
    "{'shape': ((3,",
    "  x\n y",
    "-" * 3000 + "1",
    "{[]: 1}",
    "{1: 2, 'a': 3}",
    "{'descr': (), 'fortran_order': False, 'shape': (0,)}",
    "\0",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_is_no_header_is_damage_whatever_numpy_makes_of_it(tmp_path, header):
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", with_header(header))
    with pytest.raises(InputError, match=r"damaged file \(a\.npy") as caught:
        read_arrays(path, ["a"])
    assert "\n" not in str(caught.value)


def test_damaged_and_incomplete_files_are_named(tmp_path):
    path = tmp_path / "f.npz"
    write_arrays(path, {"a": np.arange(1000)})
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[600] ^= 1
    for content in (b"", b"PK", whole[:-30], whole[:500], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            read_arrays(path, ["a"])
    path.write_bytes(whole)
    with pytest.raises(InputError, match="none called b"):
        read_arrays(path, ["a", "b"])


def test_a_member_whose_name_is_no_text_is_damage(tmp_path):
    path = tmp_path / "f.npz"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as members:
        members.writestr("ä.npy", npy(np.arange(3)))  # a name that is marked as UTF-8
    path.write_bytes(out.getvalue().replace("ä.npy".encode(), b"\xff\xfe.npy"))
    with pytest.raises(InputError, match="damaged"):
        read_arrays(path, ["a"])


def test_a_failed_write_leaves_nothing_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")

    def write(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="no space left"):
        write_atomically(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
