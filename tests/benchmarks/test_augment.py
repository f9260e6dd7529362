import numpy as np
import pytest
import torch

from fedhv.benchmarks.augment import Normalise, Rotate
from fedhv.support.errors import InputError

MODES = ["bilinear", "nearest"]


def draws(angles, sign=1.0):
    return torch.tensor([[angle, sign] for angle in angles], dtype=torch.float32)


@pytest.fixture
def images():
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mode", MODES)
def test_angle_zero_changes_nothing(images, mode):
    torch.testing.assert_close(Rotate(25, mode=mode).apply(images, draws([0] * 4)), images, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_quarter_turns_are_counter_clockwise(images, mode):
    turned = Rotate(180, mode=mode).apply(images, draws([90, 180, -90, 0]))
    for image, out, quarters in zip(images, turned, (1, 2, -1, 0), strict=True):
        torch.testing.assert_close(out, torch.rot90(image, quarters, dims=(1, 2)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_a_mirrored_minibatch_is_the_mirror_of_the_turned_one(images, mode):
    augment, angles = Rotate(30, mode=mode), [10, -20, 30, 0]
    plain, mirrored = augment.apply(images, draws(angles)), augment.apply(images, draws(angles, -1))
    torch.testing.assert_close(mirrored, plain.flip(-1), atol=1e-5, rtol=0)


def test_corners_become_zero_which_is_the_mean_of_normalised_images():
    turned = Rotate(45).apply(torch.ones(1, 1, 9, 9), draws([45]))
    assert turned[0, 0, 0, 0] == 0
    torch.testing.assert_close(turned[0, 0, 4, 4], torch.tensor(1.0))


def test_bilinear_is_the_affine_grid_of_the_papers_experiments(images):
    angles = torch.tensor([-25.0, -3.3, 12.5, 25.0])
    cos, sin = torch.deg2rad(angles).cos(), torch.deg2rad(angles).sin()
    matrix = torch.stack([cos, -sin, 0 * cos, sin, cos, 0 * cos], dim=1).view(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(matrix, list(images.shape), align_corners=False)
    expected = torch.nn.functional.grid_sample(images, grid, align_corners=False)
    torch.testing.assert_close(Rotate(25).apply(images, draws(angles)), expected, atol=1e-4, rtol=0)


def test_nearest_only_moves_pixels():
    image = torch.arange(1.0, 65.0).view(1, 1, 8, 8)
    turned = Rotate(30, mode="nearest").apply(image, draws([30]))
    assert set(turned.flatten().tolist()) <= {0.0, *image.flatten().tolist()}


def test_draws_have_the_announced_distribution():
    rng = np.random.default_rng(0)
    angles = Rotate(25).draw(rng, 50, 40)
    assert (angles.shape, angles.dtype) == ((50, 40, 2), np.float32)
    assert np.abs(angles[..., 0]).max() <= 25
    assert abs(angles[..., 0].mean()) < 1.5
    assert abs(angles[..., 0].std() - 50 / 12**0.5) < 0.5
    assert (angles[..., 1] == 1).all()
    whole = Rotate(30, whole=True, mirror=0.4).draw(rng, 2000, 8)
    assert (whole[..., 0] == np.round(whole[..., 0])).all()
    assert (whole[..., 0].min(), whole[..., 0].max()) == (-30, 30)
    assert set(np.unique(whole[..., 1])) == {-1, 1}
    assert (whole[..., 1] == whole[:, :1, 1]).all()  # a minibatch is mirrored as a whole
    assert abs((whole[:, 0, 1] == -1).mean() - 0.4) < 0.04


def test_same_stream_same_images(images):
    augment = Rotate(30, whole=True, mirror=0.4, mode="nearest")
    first, second = (augment.draw(np.random.default_rng(7), 3, 4) for _ in range(2))
    assert np.array_equal(first, second)
    one, two = (augment.apply(images, torch.from_numpy(d[1])) for d in (first, second))
    assert torch.equal(one, two)


@pytest.mark.parametrize("mode", MODES)
def test_a_stacked_cohort_sees_the_same_images(mode):
    inputs = torch.randint(256, (3, 5, 3, 8, 8), dtype=torch.uint8)
    augment, prepare = Rotate(30, mirror=0.5, mode=mode), Normalise((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    angles = torch.from_numpy(augment.draw(np.random.default_rng(0), 3, 5))

    def ready(images, draw):
        return augment.apply(prepare(images), draw)

    stacked = torch.func.vmap(ready)(inputs, angles)
    for k in range(3):
        torch.testing.assert_close(stacked[k], ready(inputs[k], angles[k]))


def test_images_need_not_be_square():
    image = torch.arange(6.0).view(1, 1, 2, 3)
    out = Rotate(180, mode="nearest").apply(image, draws([180]))
    assert out[0, 0].tolist() == [[5, 4, 3], [2, 1, 0]]


def test_half_precision_is_turned_as_precisely(images):
    half = images.bfloat16()
    augment, angles = Rotate(25, mode="nearest"), draws([25, -13, 7, 1])
    assert torch.equal(augment.apply(half, angles), augment.apply(half.float(), angles).bfloat16())
    assert augment.apply(images.double(), angles).dtype == torch.float64


def test_normalisation_by_hand():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    out = Normalise((0.1, 0.2, 0.3), (0.5, 0.25, 2.0))(images)
    torch.testing.assert_close(out.flatten(), torch.tensor([-0.2, 0.0, 0.35]))
    assert out.dtype == torch.float32
    assert Normalise((0.1307,), (0.3081,))(torch.zeros(2, 1, 4, 4, dtype=torch.uint8)).shape == (2, 1, 4, 4)


@pytest.mark.parametrize(
    "options",
    [
        {"degrees": -1},
        {"degrees": 181},
        {"degrees": 2.5, "whole": True},
        {"degrees": 5, "mirror": 1.1},
        {"degrees": 5, "mode": "cubic"},
    ],
)
def test_impossible_augmentations_are_refused(options):
    with pytest.raises(InputError, match=r"degrees|mirror|mode"):
        Rotate(**options)
