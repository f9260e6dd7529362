"""Choices that the paper's text leaves open, as docs/explanation/differences.md lists them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedhv.benchmarks.models import CIFARNet, ResNet18
from fedhv.paper.plan import SETTINGS
from fedhv.runs.config import load_setting


def test_the_first_label_of_celeba5_b_is_three_attributes():
    assert tuple(load_setting("celeba5-b").federation.strata) == ("Attractive", "Male", "Mouth_Slightly_Open")


@pytest.mark.parametrize("name", SETTINGS)
def test_minibatches_of_the_papers_settings_are_epochs(name):
    assert load_setting(name).training.sampling == "epochs"


def test_the_resnet_averages_the_first_window_of_its_last_map():
    *_, pooling, flatten = ResNet18().encoder
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert flatten(pooling(image)).item() == pytest.approx(float(image[..., :3, :3].mean()))


def test_heads_of_cifar10_mnist_have_no_activation_between_their_layers():
    for head in CIFARNet().heads:
        assert [type(layer) for layer in head] == [nn.Linear, nn.Linear]
