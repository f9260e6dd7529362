import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhv.benchmarks.cifar10_mnist import overlay
from fedhv.benchmarks.compose import compose, nearest
from fedhv.support.errors import InputError

FIRST = np.array([[[1, 2], [3, 4]]], np.uint8)
SECOND = np.array([[[10, 20], [30, 1]]], np.uint8)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (3, [[1, 2, 0], [3, 10, 20], [0, 30, 1]]),  # the canvas itself
        (2, [[1, 2], [3, 10]]),  # rows and columns 0 and 1
        (4, [[1, 1, 2, 0], [1, 1, 2, 0], [3, 3, 10, 20], [0, 0, 30, 1]]),  # rows and columns 0, 0, 1, 2
        (1, [[1]]),
    ],
)
def test_composition_by_hand(size, expected):
    out = compose(FIRST, SECOND, canvas=3, offsets=(0, 1), size=size)
    assert out.tolist() == [expected]
    assert out.dtype == np.uint8


def test_the_order_of_overlapping_images_does_not_matter():
    there = compose(FIRST, SECOND, canvas=4, offsets=(1, 2), size=4)
    assert (there == compose(SECOND, FIRST, canvas=4, offsets=(2, 1), size=4)).all()
    assert there[0].tolist() == [[0, 0, 0, 0], [0, 1, 2, 0], [0, 3, 10, 20], [0, 0, 30, 1]]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_composition_is_paste_maximum_and_pytorchs_resize(data):
    side, margin = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 6))
    canvas = side + margin
    a, b = data.draw(st.integers(0, margin)), data.draw(st.integers(0, margin))
    size = data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    first, second = rng.integers(256, size=(2, 3, side, side), dtype=np.uint8)
    board = np.zeros((3, canvas, canvas), np.uint8)
    board[:, a : a + side, a : a + side] = first
    window = board[:, b : b + side, b : b + side]
    np.maximum(window, second, out=window)
    expected = F.interpolate(torch.from_numpy(board)[:, None].float(), size=(size, size), mode="nearest")[:, 0]
    out = compose(first, second, canvas=canvas, offsets=(a, b), size=size)
    # PyTorch's index is computed in single precision; where i · canvas / size is whole it may fall one short
    sure = [i for i in range(size) if i * canvas % size]
    assert (out[:, sure][:, :, sure] == expected.numpy()[:, sure][:, :, sure]).all()


@pytest.mark.parametrize("canvas", [36, 42])
def test_the_papers_canvases_resize_exactly_as_pytorch_does(canvas):
    ramp = torch.arange(canvas, dtype=torch.uint8).view(1, 1, 1, canvas)
    assert nearest(canvas, 28).tolist() == F.interpolate(ramp, size=(1, 28), mode="nearest").flatten().tolist()


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="canvas = 3"):
        compose(FIRST, SECOND, canvas=3, offsets=(0, 2), size=3)
    with pytest.raises(InputError, match="one shape"):
        compose(FIRST, SECOND[:, :1], canvas=3, offsets=(0, 1), size=3)


def test_overlay_by_hand():
    photograph = np.full((1, 3, 4, 4), 100, np.uint8)
    photograph[0, 2] = 200
    digit = np.array([[[0, 1], [128, 255]]], np.uint8)
    out = overlay(photograph, digit)
    # (99 · photograph + 156 · digit) / 255, rounded; untouched where the digit is black and in the border
    assert out[0, 0].tolist() == [[100] * 4, [100, 100, 39, 100], [100, 117, 195, 100], [100] * 4]
    assert out[0, 2, 1:3, 1:3].tolist() == [[200, 78], [156, 234]]
    assert (photograph[0, 0] == 100).all()


def test_overlay_is_pillows_paste_with_a_mask():
    Image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    photographs = rng.integers(256, size=(4, 3, 32, 32), dtype=np.uint8)
    digits = rng.integers(256, size=(4, 28, 28), dtype=np.uint8) * rng.integers(2, size=(4, 28, 28), dtype=np.uint8)
    out = overlay(photographs, digits)
    for photograph, digit, composite in zip(photographs, digits, out, strict=True):
        picture, grey = Image.fromarray(photograph.transpose(1, 2, 0)), Image.fromarray(digit)
        picture.paste(grey, (2, 2), mask=grey.point(lambda value: 156 if value > 0 else 0))
        assert (np.asarray(picture).transpose(2, 0, 1) == composite).all()
