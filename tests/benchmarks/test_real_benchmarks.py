"""The four benchmarks of the paper, on datasets of a few images."""

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from tiny_datasets import idx_contents, write_celeba, write_cifar, write_idx

from fedhv.benchmarks import celeba5, cifar10_mnist, load_benchmark, mnist_fmnist, multimnist
from fedhv.benchmarks.augment import Rotate
from fedhv.benchmarks.compose import compose
from fedhv.data import load_cifar10, load_fashion_mnist, load_mnist
from fedhv.data.catalogue import MNIST, SOURCES, Official
from fedhv.data.celeba import ATTRIBUTES
from fedhv.problem.problem import Benchmark
from fedhv.problem.random import Purpose, stream
from fedhv.support.errors import InputError

TWO_TASKS = ["multimnist", "mnist-fmnist", "cifar10-mnist"]


@pytest.fixture
def root(tmp_path):
    write_idx(tmp_path / "MNIST/raw")
    write_idx(tmp_path / "FashionMNIST/raw", seed=5)
    write_cifar(tmp_path)
    return tmp_path


def test_multimnist(root):
    images, labels, _, test_labels = load_mnist(root)
    benchmark = multimnist.load(root)
    assert [task.name for task in benchmark.tasks] == ["left", "right"]
    assert (benchmark.train.inputs.shape, benchmark.test.inputs.shape) == ((12, 1, 28, 28), (6, 1, 28, 28))
    assert benchmark.train.inputs.dtype == torch.uint8
    assert benchmark.train.targets[0].tolist() == labels.tolist()
    right = stream(0, Purpose.BENCHMARK, part=0).integers(12, size=12)
    assert benchmark.train.targets[1].tolist() == labels[right].tolist()
    expected = compose(images, images[right], canvas=36, offsets=(0, 6), size=28)
    assert (benchmark.train.inputs[:, 0].numpy() == expected).all()
    assert benchmark.test.targets[0].tolist() == test_labels.tolist()
    assert benchmark.augment == Rotate(25)
    # by hand: row and column 0 show the left digit alone, the last ones the black margin
    assert (benchmark.train.inputs[:, 0, 0, 0].numpy() == images[:, 0, 0]).all()
    assert (benchmark.train.inputs[:, 0, 27] == 0).all()
    assert benchmark.train.inputs[3, 0, 10, 10] == max(images[3, 12, 12], images[right[3], 6, 6])


def test_mnist_fmnist(root):
    digits, clothing = load_mnist(root), load_fashion_mnist(root)
    benchmark = mnist_fmnist.load(root)
    assert [task.name for task in benchmark.tasks] == ["digit", "clothing"]
    right = stream(0, Purpose.BENCHMARK, part=1).permutation(6)
    assert sorted(right) == list(range(6))
    assert benchmark.test.targets[0].tolist() == digits[3].tolist()
    assert benchmark.test.targets[1].tolist() == clothing[3][right].tolist()
    composite = benchmark.test.inputs[:, 0].numpy()
    # by hand: pixel i shows canvas pixel floor(1.5 i); clothing starts at 14, the digit ends at 27
    assert (composite[:, 4, 9] == digits[2][:, 6, 13]).all()
    assert (composite[:, 20, 27] == clothing[2][right][:, 16, 26]).all()
    assert (composite[:, 12, 12] == np.maximum(digits[2][:, 18, 18], clothing[2][right][:, 4, 4])).all()
    assert (composite[:, 0, 27] == 0).all()


def test_cifar10_mnist(root):
    photographs, digits = load_cifar10(root), load_mnist(root)
    benchmark = cifar10_mnist.load(root)
    assert [task.name for task in benchmark.tasks] == ["CIFAR-10", "MNIST"]
    assert (benchmark.train.inputs.shape, benchmark.test.inputs.shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert benchmark.train.targets[0].tolist() == photographs[1].tolist()
    assert benchmark.train.targets[1].tolist() == digits[1][:10].tolist()
    blended = (99 * photographs[0][4, 1, 7, 9].astype(int) + 156 * int(digits[0][4, 5, 7])) / 255
    assert int(benchmark.train.inputs[4, 1, 7, 9]) == round(blended)
    assert (benchmark.train.inputs[:, :, :2].numpy() == photographs[0][:, :, :2]).all()
    assert benchmark.augment == Rotate(30, whole=True, mirror=0.4, mode="nearest")


def test_celeba5(tmp_path):
    pytest.importorskip("PIL")
    attributes = write_celeba(tmp_path)
    benchmark = celeba5.load(tmp_path)
    assert [task.name for task in benchmark.tasks] == ["T1", "T2", "T3", "T4", "T5"]
    assert benchmark.augment is None
    assert list(benchmark.strata) == list(ATTRIBUTES)
    assert benchmark.strata["Male"].tolist() == attributes[:3, 20].tolist()
    # the paper's table, by the official numbers of the attributes
    groups = [
        [0, 9, 3, 15, 22, 33, 25, 29],
        [1, 8, 7, 10, 16, 32, 26, 34],
        [2, 11, 12, 14, 21, 28, 35, 39],
        [4, 6, 13, 18, 19, 20, 30, 31],
        [5, 17, 23, 24, 27, 36, 37, 38],
    ]
    for targets, group in zip(benchmark.test.targets, groups, strict=True):
        assert targets.tolist() == attributes[4:][:, group].tolist()
    assert sorted(i for group in groups for i in group) == list(range(40))


@pytest.mark.parametrize(
    ("prepare", "black", "white"),
    [
        (multimnist.GREY, [-0.4242], [2.8215]),
        (cifar10_mnist.COLOUR, [-2.4291, -2.4183, -2.2214], [2.5141, 2.5968, 2.7537]),
        (celeba5.COLOUR, [-0.28389, -0.32513, -0.28690], [0.71611, 0.67487, 0.71310]),
    ],
)
def test_normalisation_values(prepare, black, white):
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, len(black), 2, 2)
    torch.testing.assert_close(prepare(images)[:, :, 0, 0], torch.tensor([black, white]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", TWO_TASKS)
def test_strata_are_the_labels_of_the_training_examples(root, name):
    benchmark = load_benchmark(name, str(root))
    assert list(benchmark.strata) == [task.name for task in benchmark.tasks]
    for column, targets in zip(benchmark.strata.values(), benchmark.train.targets, strict=True):
        assert column.tolist() == targets.tolist()


@pytest.mark.parametrize("name", TWO_TASKS)
def test_the_model_takes_what_augmentation_gives(root, name):
    benchmark = load_benchmark(name, str(root))
    draws = benchmark.augment.draw(np.random.default_rng(0), 1, 4)[0]
    inputs = benchmark.augment.apply(benchmark.prepare(benchmark.train.inputs[:4]), torch.from_numpy(draws))
    assert [out.shape for out in benchmark.model()(inputs)] == [(4, 10), (4, 10)]


def test_pairings_are_the_same_on_every_machine():
    assert stream(0, Purpose.BENCHMARK, part=0).integers(60_000, size=6).tolist() == [
        53815,
        25315,
        50693,
        37704,
        9907,
        52292,
    ]
    assert stream(0, Purpose.BENCHMARK, part=0).permutation(60_000)[:6].tolist() == [
        58921,
        29339,
        6472,
        911,
        46428,
        22005,
    ]


# --- composites are kept --------------------------------------------------------------------------------------


def cache(root):
    return root / "fedhv-cache/multimnist-v1.npz"


def same(a, b):
    return all(
        torch.equal(x.inputs, y.inputs) and all(map(torch.equal, x.targets, y.targets))
        for x, y in ((a.train, b.train), (a.test, b.test))
    )


def test_composites_are_built_once(root, monkeypatch):
    first = multimnist.load(root)
    assert cache(root).exists()
    monkeypatch.setattr(multimnist, "load_mnist", lambda data: pytest.fail("built again"))
    assert same(first, multimnist.load(root))


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-50], lambda b: b[:300] + b"\xff" * 20 + b[320:]])
def test_a_damaged_cache_is_built_again(root, damage):
    first = multimnist.load(root)
    whole = cache(root).read_bytes()
    cache(root).write_bytes(damage(whole))
    assert same(first, multimnist.load(root))
    assert cache(root).read_bytes() == whole


def test_a_cache_with_other_arrays_is_built_again(root):
    first = multimnist.load(root)
    with np.load(cache(root)) as arrays:
        changed = dict(arrays) | {"train_first": np.zeros(3, np.uint8)}
    np.savez(cache(root), **changed)
    assert same(first, multimnist.load(root))


def test_changed_sources_are_composed_anew(root):
    first = multimnist.load(root)
    write_idx(root / "MNIST/raw", seed=8)
    assert not same(first, multimnist.load(root))


def test_where_nothing_can_be_kept_the_benchmark_still_loads(root, monkeypatch):
    def refuse(*_):
        raise InputError("Cannot write.")

    monkeypatch.setattr("fedhv.benchmarks.composites.write_arrays", refuse)
    first = multimnist.load(root)
    assert not cache(root).exists()
    assert same(first, multimnist.load(root))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_of_the_official_length_with_other_content_is_refused(root, monkeypatch, compressed):
    for path in (root / "MNIST/raw").iterdir():
        path.unlink()
    write_idx(root / "MNIST/raw", compressed)
    contents = idx_contents()
    files = tuple(Official(name, len(content), sha256(content).hexdigest()) for name, content in contents.items())
    monkeypatch.setitem(SOURCES, "mnist", replace(MNIST, files=files))
    multimnist.load(root)
    cache(root).unlink()
    write_idx(root / "MNIST/raw", compressed, seed=8)
    with pytest.raises(
        InputError, match=r"train-images.*SHA-256 \w{12}…, found \w{12}….*data download mnist"
    ) as caught:
        multimnist.load(root)
    assert "\n" not in str(caught.value)
    assert not cache(root).exists()
    write_idx(root / "MNIST/raw", compressed, seed=8, train=11, test=7)  # of another length: somebody's own subset
    with monkeypatch.context() as patch:
        multimnist.load(root)
        patch.setattr("fedhv.data.genuine.sha256", lambda *_: pytest.fail("hashed although the composites are kept"))
        multimnist.load(root)


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TWO_TASKS, "celeba5"])
def test_missing_data_is_one_line(tmp_path, name):
    with pytest.raises(InputError, match="fedhv data download") as caught:
        load_benchmark(name, str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_partners_are_refused(root):
    write_idx(root / "FashionMNIST/raw", train=11)
    with pytest.raises(InputError, match="each of 12 digits"):
        mnist_fmnist.load(root)
    write_cifar(root, records=3)
    with pytest.raises(InputError, match="each of 15 photographs"):
        cifar10_mnist.load(root)


def test_unknown_names_are_suggested():
    with pytest.raises(InputError, match="Did you mean 'multimnist'"):
        load_benchmark("multi-mnist")


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_benchmarks.py").write_text(
        "from pathlib import Path\n"
        "from fedhv.benchmarks.digits import load as digits\n"
        "def plain(): return digits()\n"
        "def with_data(data: Path, scale=1): assert isinstance(data, Path); return digits()\n"
        "def demanding(size): return digits()\n"
        "def wrong(): return 3\n"
        "constant = 4\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("module")
def test_a_benchmark_of_ones_own():
    assert isinstance(load_benchmark("my_benchmarks:plain"), Benchmark)
    assert isinstance(load_benchmark("my_benchmarks:with_data", "/somewhere"), Benchmark)
    for name, says in (("demanding", "size"), ("wrong", "int"), ("constant", "function"), ("absent", "absent")):
        with pytest.raises(InputError, match=says):
            load_benchmark(f"my_benchmarks:{name}")
