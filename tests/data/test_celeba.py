import logging
import zipfile
from logging.handlers import BufferingHandler

import numpy as np
import pytest
from tiny_datasets import write_celeba

from fedhv.data import load_celeba, verify
from fedhv.data.arrays import read_arrays, write_arrays
from fedhv.data.celeba import ATTRIBUTES
from fedhv.support.errors import InputError

pytest.importorskip("PIL")
ARRAYS = ("images", "attributes", "names", "attribute_names")


def test_jpegs_become_arrays_of_the_official_splits(tmp_path):
    from PIL import Image

    attributes = write_celeba(tmp_path)
    told = []
    train, test = load_celeba(tmp_path, lambda what, done, total: told.append((done, total)))
    assert told == [(i, 5) for i in range(1, 6)]
    assert train.images.shape == (3, 3, 32, 32)
    assert test.images.shape == (2, 3, 32, 32)
    assert train.names.tolist() == ["000001.jpg", "000002.jpg", "000003.jpg"]
    assert test.names.tolist() == ["000005.jpg", "000006.jpg"]
    assert (train.attributes == attributes[:3]).all()
    assert (test.attributes == attributes[4:]).all()
    with Image.open(tmp_path / "celeba/img_align_celeba/000005.jpg") as image:
        expected = np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR))
    assert (test.images[0] == expected.transpose(2, 0, 1)).all()


def test_the_arrays_are_kept_and_used_without_the_jpegs(tmp_path):
    write_celeba(tmp_path)
    first = load_celeba(tmp_path)
    kept = read_arrays(tmp_path / "celeba/celeba-32x32-train.npz", ARRAYS)
    assert kept["attribute_names"].tolist() == list(ATTRIBUTES)
    assert (kept["images"].dtype, kept["attributes"].dtype) == (np.uint8, np.uint8)
    for path in (tmp_path / "celeba/img_align_celeba").iterdir():
        path.unlink()
    again = load_celeba(tmp_path)
    for a, b in zip(first, again, strict=True):
        assert (a.images == b.images).all()
        assert (a.attributes == b.attributes).all()
        assert (a.names == b.names).all()
    assert not list((tmp_path / "celeba").glob("*.tmp"))


def test_arrays_of_a_subset_beside_other_lists_are_refused_and_left_alone(tmp_path):
    write_celeba(tmp_path / "small", partitions=(0, 0, 2))
    write_celeba(tmp_path / "whole")
    load_celeba(tmp_path / "small")
    folder = tmp_path / "whole/celeba"
    for cache in (tmp_path / "small/celeba").glob("*.npz"):
        cache.rename(folder / cache.name)
    with pytest.raises(InputError, match=r"train\.npz: expected the 3 train images .* found 2.*Delete it"):
        load_celeba(tmp_path / "whole")
    (folder / "list_eval_partition.txt").unlink()
    assert len(load_celeba(tmp_path / "whole")[0].images) == 2


@pytest.mark.parametrize("header", [None, "{'shape': ((3,", "  x\n y"])
def test_a_damaged_cache_is_named_and_found_by_verify(tmp_path, header):
    write_celeba(tmp_path)
    images = load_celeba(tmp_path)[0].images
    cache = tmp_path / "celeba/celeba-32x32-train.npz"
    if header is None:
        cache.write_bytes(cache.read_bytes()[:1000])
    else:
        text = header.encode() + b"\n"
        with zipfile.ZipFile(cache, "w") as archive:
            for name in ARRAYS:
                archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    assert next(found.state for found in verify(tmp_path) if found.path == cache) == "damaged"
    with pytest.raises(InputError, match=r"celeba-32x32-train\.npz.*damaged"):
        load_celeba(tmp_path)
    cache.unlink()
    assert (load_celeba(tmp_path)[0].images == images).all()
    assert next(found.state for found in verify(tmp_path) if found.path == cache) == "readable"


def test_where_nothing_can_be_kept_the_images_still_load(tmp_path, monkeypatch, request):
    write_celeba(tmp_path)
    logged, logger = BufferingHandler(capacity=100), logging.getLogger("fedhv.data.celeba")
    logger.addHandler(logged)
    request.addfinalizer(lambda: logger.removeHandler(logged))

    def refuse(*_):
        raise InputError("Cannot write.")

    monkeypatch.setattr("fedhv.data.celeba.write_arrays", refuse)
    assert len(load_celeba(tmp_path)[0].images) == 3
    (record,) = logged.buffer
    assert "could not be stored" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("images", np.zeros((3, 32, 32, 3), np.uint8), r"shape \(n, 3, 32, 32\)"),
        ("images", np.zeros((3, 3, 32, 32), np.float32), "float32"),
        ("images", np.zeros((0, 3, 32, 32), np.uint8), "`images`"),
        ("attributes", np.zeros((3, 39), np.uint8), r"\(n, 40\)"),
        ("attributes", np.full((3, 40), 2, np.uint8), "0 or 1, found 2"),
        ("names", np.array(["a"]), "`names`"),
        ("attribute_names", np.array(ATTRIBUTES[::-1]), "'Young' for '5_o_Clock_Shadow'"),
    ],
)
def test_arrays_of_another_form_are_refused(tmp_path, name, array, says):
    good = {
        "images": np.zeros((3, 3, 32, 32), np.uint8),
        "attributes": np.zeros((3, 40), np.uint8),
        "names": np.array(["a", "b", "c"]),
        "attribute_names": np.array(ATTRIBUTES),
    }
    write_arrays(tmp_path / "celeba/celeba-32x32-test.npz", good)
    write_arrays(tmp_path / "celeba/celeba-32x32-train.npz", good | {name: array})
    with pytest.raises(InputError, match=says) as caught:
        load_celeba(tmp_path)
    assert "celeba-32x32-train.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lists_that_do_not_match_the_images_say_which(tmp_path):
    write_celeba(tmp_path)
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba/000002.jpg").rename(folder / "img_align_celeba/000999.jpg")
    with pytest.raises(InputError) as caught:
        load_celeba(tmp_path)
    message = str(caught.value)
    assert "1 only in list_attr_celeba.txt (000002.jpg)" in message
    assert "1 only in img_align_celeba (000999.jpg)" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("list_attr_celeba.txt", lambda t: t.replace("6\n", "7\n", 1), "expected 7 images .* found 6"),
        ("list_attr_celeba.txt", lambda t: t.replace("Bald", "Bold", 1), "'Bold' for 'Bald'"),
        (
            "list_attr_celeba.txt",
            lambda t: t.replace("000003.jpg -1", "000003.jpg  0").replace("000003.jpg  1", "000003.jpg  0"),
            "line 5",
        ),
        ("list_attr_celeba.txt", lambda t: t.replace("000004.jpg", "000004.jpg 1"), "line 6"),
        ("list_attr_celeba.txt", lambda t: t.replace("000004.jpg", "../evil.jpg"), "line 6.*evil"),
        ("list_attr_celeba.txt", lambda t: t.replace("000004.jpg", "000003.jpg"), "000003.jpg twice"),
        ("list_attr_celeba.txt", lambda t: "", "number of images"),
        ("list_eval_partition.txt", lambda t: t.replace("000005.jpg 2", "000005.jpg 3"), "line 5"),
        ("list_eval_partition.txt", lambda t: t.replace("000005.jpg 2", "000005.jpg"), "line 5"),
        ("list_eval_partition.txt", lambda t: t.replace("000005.jpg 2\n", ""), "1 only in list_attr_celeba.txt"),
        ("list_eval_partition.txt", lambda t: t.replace(" 2", " 1"), r"partition 2 \(test\)|test partition"),
        ("list_eval_partition.txt", lambda t: t + "\udcff", "as text"),
    ],
)
def test_malformed_lists_are_named(tmp_path, name, change, says):
    write_celeba(tmp_path)
    path = tmp_path / "celeba" / name
    path.write_bytes(change(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=says) as caught:
        load_celeba(tmp_path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_that_are_not_aligned_jpegs_are_named(tmp_path):
    from PIL import Image

    write_celeba(tmp_path)
    path = tmp_path / "celeba/img_align_celeba/000003.jpg"
    whole = path.read_bytes()
    png = tmp_path / "x.png"
    Image.new("RGB", (178, 218)).save(png)
    for content, says in ((whole[: len(whole) // 2], "whole JPEG"), (b"", "whole JPEG"), (png.read_bytes(), "JPEG")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=says) as caught:
            load_celeba(tmp_path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert " at 0x" not in str(caught.value)
    Image.new("RGB", (218, 178)).save(path)
    with pytest.raises(InputError, match="178x218, found 218x178"):
        load_celeba(tmp_path)


def test_missing_files_are_named_with_the_way_to_get_them(tmp_path):
    with pytest.raises(InputError, match=r"img_align_celeba, list_attr_celeba\.txt.*fedhv data download celeba"):
        load_celeba(tmp_path)
    write_celeba(tmp_path)
    load_celeba(tmp_path)
    (tmp_path / "celeba/list_attr_celeba.txt").unlink()
    (tmp_path / "celeba/celeba-32x32-test.npz").unlink()
    with pytest.raises(InputError, match=r"celeba-32x32-test\.npz not found"):
        load_celeba(tmp_path)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    write_celeba(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InputError, match=r"fedhv\[data\]"):
        load_celeba(tmp_path)
