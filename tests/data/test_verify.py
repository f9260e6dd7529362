import dataclasses
import gzip
import hashlib

import pytest
from tiny_datasets import cifar_contents, idx_contents, write_celeba, write_cifar, write_idx

from fedhv.data import verify
from fedhv.data.catalogue import CIFAR10, MNIST, SOURCES, Official


@pytest.fixture(autouse=True)
def _tiny_catalogue(monkeypatch):
    """The official files are those of the tiny datasets."""
    for source, contents in ((MNIST, idx_contents()), (CIFAR10, cifar_contents())):
        files = tuple(Official(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in contents.items())
        monkeypatch.setitem(SOURCES, source.name, dataclasses.replace(source, files=files))


def states(root):
    return {(f.dataset, f.path.name): f.state for f in verify(root)}


def test_an_empty_directory_misses_everything(tmp_path):
    findings = verify(tmp_path / "not there")
    assert [f.dataset for f in findings] == ["MNIST", "Fashion-MNIST", "CIFAR-10", "Tox21", "STAR", "CelebA"]
    assert {f.state for f in findings} == {"missing"}
    assert not any(f.ok for f in findings)
    assert all("fedhv data download" in f.detail for f in findings)


@pytest.mark.parametrize("compressed", [True, False])
def test_official_content_is_verified_however_it_is_packed(tmp_path, compressed):
    write_idx(tmp_path / "MNIST/raw", compressed)
    write_cifar(tmp_path)
    findings = [f for f in verify(tmp_path) if f.state != "missing"]
    assert [f.state for f in findings] == ["verified"] * 10
    assert all(f.ok for f in findings)


def test_truncated_and_foreign_files_are_named(tmp_path):
    folder = tmp_path / "MNIST/raw"
    write_idx(folder, compressed=False)
    write_cifar(tmp_path)
    images, labels, test = (folder / n for n in list(idx_contents())[:3])
    images.write_bytes(images.read_bytes()[:-1])
    changed = bytearray(labels.read_bytes())
    changed[-1] ^= 1
    labels.write_bytes(changed)
    test.write_bytes(gzip.compress(test.read_bytes())[:-10])
    (tmp_path / "cifar-10-batches-bin/test_batch.bin").unlink()
    by_name = {f.path.name: f for f in verify(tmp_path)}
    assert by_name[images.name].state == by_name[labels.name].state == by_name[test.name].state == "damaged"
    assert f"found {12 * 784 + 15:,}" in by_name[images.name].detail
    assert "SHA-256" in by_name[labels.name].detail
    assert "truncated" in by_name[test.name].detail
    assert by_name["test_batch.bin"].state == "missing"
    assert by_name["data_batch_1.bin"].state == "verified"


def test_a_pickled_cifar_is_mentioned(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (finding,) = (f for f in verify(tmp_path) if f.dataset == "CIFAR-10")
    assert "never loaded" in finding.detail


def test_celeba_is_counted(tmp_path):
    pytest.importorskip("PIL")
    from fedhv.data import load_celeba

    write_celeba(tmp_path)
    (finding,) = (f for f in verify(tmp_path) if f.dataset == "CelebA")
    assert (finding.state, finding.detail) == ("readable", "6 JPEGs, as listed; the official release has 202,599")
    load_celeba(tmp_path)
    details = {f.path.name: f.detail for f in verify(tmp_path) if f.dataset == "CelebA"}
    assert details["celeba-32x32-train.npz"] == "a subset of 3 of the 162,770 images of the train partition, 32x32"
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba/000001.jpg").unlink()
    (folder / "celeba-32x32-test.npz").write_bytes(b"")
    assert states(tmp_path)["CelebA", "celeba-32x32-test.npz"] == "damaged"
    (folder / "celeba-32x32-test.npz").unlink()
    assert states(tmp_path)["CelebA", "img_align_celeba"] == "damaged"
    (folder / "list_eval_partition.txt").unlink()
    assert "list_eval_partition.txt not found" in next(
        f.detail for f in verify(tmp_path) if f.path.name == "img_align_celeba"
    )


@pytest.mark.parametrize("image", [b"no image", "half"])
def test_celebas_images_are_decoded_as_a_run_would(tmp_path, image):
    pytest.importorskip("PIL")
    write_celeba(tmp_path)
    path = tmp_path / "celeba/img_align_celeba/000003.jpg"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if image == "half" else image)
    told = []
    (finding,) = (f for f in verify(tmp_path, lambda *what: told.append(what)) if f.dataset == "CelebA")
    assert (finding.state, finding.path.name) == ("damaged", "img_align_celeba")
    assert "000003.jpg: expected a whole JPEG" in finding.detail
    assert told[-1] == ("CelebA: decoding images", 2, 5)  # those before it


def test_lists_without_a_partition_are_found(tmp_path):
    pytest.importorskip("PIL")
    write_celeba(tmp_path)
    path = tmp_path / "celeba/list_eval_partition.txt"
    path.write_text(path.read_text().replace(" 2\n", " 1\n"))
    (finding,) = (f for f in verify(tmp_path) if f.dataset == "CelebA")
    assert finding.state == "damaged"
    assert "expected images of the test partition (2), found none" in finding.detail


def test_arrays_of_other_lists_are_found(tmp_path):
    pytest.importorskip("PIL")
    from fedhv.data import load_celeba

    write_celeba(tmp_path)
    load_celeba(tmp_path)
    path = tmp_path / "celeba/list_eval_partition.txt"
    path.write_text(path.read_text().replace("000001.jpg 0", "000001.jpg 2"))
    found = {f.path.name: f for f in verify(tmp_path) if f.dataset == "CelebA"}
    assert {found[f"celeba-32x32-{split}.npz"].state for split in ("train", "test")} == {"damaged"}
    assert "of another list. Delete it" in found["celeba-32x32-train.npz"].detail


@pytest.mark.parametrize("gone", ["img_align_celeba/000001.jpg", "list_eval_partition.txt", "list_attr_celeba.txt"])
def test_arrays_that_a_run_uses_need_no_originals(tmp_path, gone):
    pytest.importorskip("PIL")
    from fedhv.data import load_celeba

    write_celeba(tmp_path)
    load_celeba(tmp_path)
    (tmp_path / "celeba" / gone).unlink()
    load_celeba(tmp_path)
    assert {f.state for f in verify(tmp_path) if f.dataset == "CelebA"} == {"readable"}


def test_a_folder_that_cannot_be_looked_into_is_found_and_hides_nothing(tmp_path):
    (tmp_path / "celeba").symlink_to("celeba")
    found = {f.dataset: f.state for f in verify(tmp_path)}
    assert found["CelebA"] == "damaged"
    assert found["MNIST"] == "missing"
