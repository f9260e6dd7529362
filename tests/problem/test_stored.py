"""Inputs on disk, large ones and those of different lengths: read by index, with the same results bit for bit."""

import numpy as np
import pytest
import torch

from fedhv import Examples, FedHVError, InputError, Problem, padded
from fedhv.engines import choose_engine
from fedhv.problem import arrays as reading
from fedhv.problem import joining, stored
from fedhv.problem.mapped import RowFile
from fedhv.problem.stored import Collated, Joined, Rows

from .ward import TASKS, Net, Words, arrays, clients, sentences, trained


def on_disk(folder, name, array, dtype=np.float32):
    mapped = np.memmap(folder / name, dtype=dtype, mode="w+", shape=array.shape)
    mapped[:] = array
    mapped.flush()
    return np.memmap(folder / name, dtype=dtype, mode="r", shape=array.shape)


def plain():
    return Problem.from_clients(Net, TASKS, clients(), arrays(9, seed=9))


# --- memory maps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8"])
@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
def test_a_memory_mapped_problem_trains_as_one_in_memory(tmp_path, engine, dtype):
    parts = [(on_disk(tmp_path, f"{k}", x, dtype), y) for k, (x, y) in enumerate(clients())]
    x, y = arrays(9, seed=9)
    problem = Problem.from_clients(Net, TASKS, parts, (on_disk(tmp_path, "test", x, dtype), y))
    assert isinstance(problem.train.inputs, Joined)
    assert not problem.train.resident
    model, losses = trained(problem, engine)
    expected, expected_losses = trained(plain(), engine)
    assert torch.equal(model, expected)
    assert losses == expected_losses


def test_a_memory_map_stays_one_and_is_not_read_when_a_problem_is_made(tmp_path, monkeypatch):
    x, y = arrays(20)
    mapped = on_disk(tmp_path, "x", x)
    monkeypatch.setattr(Rows, "read", lambda *_: pytest.fail("read"))
    problem = Problem.from_clients(Net, TASKS, [(mapped, y)], arrays(5))
    assert problem.train.inputs.array is mapped


def test_a_view_of_a_memory_map_is_not_in_memory(tmp_path):
    mapped = on_disk(tmp_path, "x", arrays(20)[0])
    assert not Rows(np.asarray(mapped)[3:]).resident
    assert Rows(np.zeros((3, 2))).resident


def test_rows_are_read_from_the_file_and_not_through_the_map(tmp_path):
    x, _ = arrays(20)
    mapped = on_disk(tmp_path, "x", x)
    file = RowFile.open(mapped)
    for positions in ([7, 3], [4, 5, 6], [19], list(range(20)), []):
        assert np.array_equal(file.read(np.array(positions, np.int64)), x[positions])


@pytest.mark.parametrize(
    "view",
    [
        lambda m: m[5:],
        lambda m: m[::2],
        lambda m: np.asarray(m)[3:9],
        lambda m: m.reshape(20, 2, 2),
        lambda m: m[4:, 0],
    ],
)
def test_views_of_a_memory_map_know_where_their_rows_are(tmp_path, view):
    x, _ = arrays(20)
    part = view(on_disk(tmp_path, "x", x))
    index = np.arange(len(part))[::-1]
    assert np.array_equal(RowFile.open(part).read(index), view(x)[index])


def test_a_file_with_a_header(tmp_path):
    x, _ = arrays(20)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.array_equal(RowFile.open(mapped).read(np.array([19, 0])), x[[19, 0]])
    assert torch.equal(Examples.of(mapped, []).inputs[[2, 5]], torch.from_numpy(x[[2, 5]]))


@pytest.mark.parametrize("hide", ["columns", "gone", "replaced", "private", "system"])
def test_the_map_is_read_where_its_file_cannot_be(tmp_path, monkeypatch, hide):
    x, _ = arrays(20)
    mapped = on_disk(tmp_path, "x", x)
    if hide == "columns":
        mapped, x = mapped.T, x.T
    elif hide == "gone":
        (tmp_path / "x").unlink()
    elif hide == "replaced":
        (tmp_path / "x").unlink()
        on_disk(tmp_path, "x", x + 1)
    elif hide == "private":
        mapped = np.memmap(tmp_path / "x", dtype=np.float32, mode="c", shape=x.shape)
        mapped[4] = x[4] = 5
    else:
        monkeypatch.delattr("os.preadv")
    assert RowFile.open(mapped) is None
    assert torch.equal(Rows(mapped)[[3, 1]], torch.from_numpy(x[[3, 1]].copy()))


def test_a_file_that_was_cut_off_during_a_run_is_said(tmp_path):
    x, _ = arrays(20)
    rows = Rows(on_disk(tmp_path, "x", x))
    with open(tmp_path / "x", "r+b") as file:
        file.truncate(100)
    with pytest.raises(
        FedHVError, match=r"^The file of the memory map is too short for row 12: it was changed during the run\.$"
    ):
        rows.read(np.array([12]))


def test_nan_on_disk_is_refused_with_its_row_when_it_is_read(tmp_path):
    x, y = arrays(20)
    x[13, 1] = np.nan
    problem = Problem.from_clients(Net, TASKS, [(on_disk(tmp_path, "x", x), y)], arrays(5))
    with pytest.raises(InputError, match=r"^Expected finite inputs\. Found NaN or infinity in row 13; clean the data"):
        trained(problem)


def test_examples_that_are_not_resident_get_the_sequential_engine(tmp_path):
    x, y = arrays(20)
    problem = Problem.from_clients(Net, TASKS, [(on_disk(tmp_path, "x", x), y)], arrays(5))
    choice = choose_engine("stacked", "cpu", problem=problem)
    assert choice.engine == "sequential"
    assert choice.announce
    assert "read or collated in minibatches" in str(choice)


# --- large arrays in memory ---------------------------------------------------------------------------------


@pytest.fixture
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(joining, "LARGE", 0)
    monkeypatch.setattr(reading, "LARGE", 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("engine", ["sequential", "parallel", "stacked"])
def test_large_arrays_are_not_copied_and_train_as_small_ones(nothing_is_small, engine, dtype):
    parts = [(x.astype(dtype), y) for x, y in clients()]
    problem = Problem.from_clients(Net, TASKS, parts, arrays(9, seed=9))
    inputs = problem.train.inputs
    assert isinstance(inputs, Joined)
    assert problem.train.resident
    for (x, _), part in zip(parts, inputs.parts, strict=True):
        assert np.shares_memory(x, part.numpy() if isinstance(part, torch.Tensor) else part.array)
    small = [(x.astype(np.float32), y) for x, y in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "LARGE", 2**26)
        whole = Problem.from_clients(Net, TASKS, small, arrays(9, seed=9))
    assert isinstance(whole.train.inputs, torch.Tensor)
    assert torch.equal(trained(problem, engine)[0], trained(whole, engine)[0])


def test_joined_parts_read_as_their_concatenation():
    parts = [torch.arange(3), torch.tensor([0.5, 1.5]), Rows(np.arange(4, dtype=np.float64) * 10)]
    whole = torch.cat([torch.arange(3).float(), torch.tensor([0.5, 1.5]), torch.arange(4) * 10.0])
    joined = Joined(parts)
    assert (joined.shape, joined.dtype, len(joined)) == ((9,), torch.float32, 9)
    for index in ([8, 0, 4, 4, 3], [1, 2], [-1, 0], [], slice(2, 7), slice(None), torch.tensor([5, 1])):
        assert torch.equal(joined[index], whole[index])
    mask = np.arange(9) % 2 == 0
    assert torch.equal(joined[mask], whole[torch.from_numpy(mask)])


def test_resident_parts_become_one_tensor_on_another_device():
    parts = [torch.zeros(3, 2), Rows(np.zeros((4, 2)))]
    moved = Joined(parts).to("meta")
    assert isinstance(moved, torch.Tensor)
    assert moved.shape == (7, 2)
    assert Rows(np.zeros((4, 2))).to("meta").dtype == torch.float32
    assert Joined(parts).to("cpu").parts[0] is parts[0]


def test_what_is_not_resident_is_read_to_the_device(tmp_path):
    rows = Rows(on_disk(tmp_path, "x", arrays(6)[0]))
    for each in (rows.to("meta"), Joined([rows, rows]).to("meta")):
        assert not isinstance(each, torch.Tensor)
        assert each[[1, 2]].device.type == "meta"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_in_a_large_array_is_refused_when_the_problem_is_made(nothing_is_small, monkeypatch, dtype):
    monkeypatch.setattr(stored, "CHECKED", 8)
    parts = [(x.astype(dtype), y) for x, y in clients()]
    parts[1][0][11, 2] = np.inf
    with pytest.raises(InputError, match="client 1's examples: expected finite inputs"):
        Problem.from_clients(Net, TASKS, parts, arrays(9))


# --- different lengths --------------------------------------------------------------------------------------


def test_sentences_of_different_lengths_train_as_padded_ones():
    parts = [sentences(n, seed=k) for k, n in enumerate((6, 9))]
    test = sentences(7, seed=5)
    problem = Problem.from_clients(Words, TASKS, parts, test, collate=padded)
    full = [(padded([*tokens, np.zeros(8, np.int64)]), y) for tokens, y in [*parts, test]]
    fixed = [((tokens[:-1], mask[:-1]), y) for (tokens, mask), y in full]
    expected = Problem.from_clients(Words, TASKS, fixed[:2], fixed[2])
    assert isinstance(problem.train.inputs, Collated)
    model, losses = trained(problem)
    same, same_losses = trained(expected)
    torch.testing.assert_close(model, same)
    assert losses == pytest.approx(same_losses)
    assert torch.equal(trained(problem, "parallel")[0], model)
    assert choose_engine("stacked", "cpu", problem=problem).engine == "sequential"


def test_padding():
    tokens, mask = padded([[5, 6, 7], [8], []])
    assert tokens.tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert mask.sum(dim=1).tolist() == [3, 1, 0]
    frames, _ = padded([torch.ones(2, 3), torch.ones(1, 3)], value=-1)
    assert frames[1].tolist() == [[1, 1, 1], [-1, -1, -1]]
    items = [{"ids": np.array([1, 2]), "there": np.array([1, 1]), "age": 3}, {"ids": [4], "there": [1], "age": 5}]
    assert {name: value.tolist() for name, value in padded(items).items()} == {
        "ids": [[1, 2], [4, 0]],
        "there": [[1, 1], [1, 0]],
        "age": [3, 5],
    }


def test_what_padding_cannot_fill_up_is_refused():
    with pytest.raises(InputError, match=r"other axes differ, \(2,\) and \(3,\)"):
        padded([np.zeros((4, 2)), np.zeros((4, 3))])


def test_different_lengths_without_a_collate_function_are_refused():
    tokens, targets = sentences(5)
    with pytest.raises(InputError, match=r"different shapes, .*; give `collate=fedhv.padded`, or pad them\.$"):
        Examples.of(tokens, targets)
    with pytest.raises(InputError, match=r"give `collate=fedhv.padded`"):
        Examples.of([torch.from_numpy(t) for t in tokens], targets)


@pytest.mark.parametrize(
    ("collate", "found"),
    [
        (lambda items: 3, "Found int"),
        (lambda items: torch.zeros(1, 2), r"Found \(1, 2\)"),
        (lambda items: {}, "Found nothing"),
    ],
)
def test_a_collate_function_that_makes_no_minibatch_is_told_what_to_make(collate, found):
    tokens, targets = sentences(5)
    with pytest.raises(InputError, match=rf"`collate` should make a tensor from 2 examples, .*{found}"):
        Examples.of(tokens, targets, collate=collate)[:2]


def test_nan_after_collating_is_refused():
    _, targets = sentences(5)
    part = Examples.of([np.array([1.0, np.nan])] * 5, targets, collate=padded)
    with pytest.raises(InputError, match="NaN or infinity after `collate`"):
        part[:2]
