"""Tasks: losses and scores per example, and labels that are checked before anything runs."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedhv import InputError, classification, multilabel, regression


def test_classification_is_cross_entropy_on_logits_and_top_one_accuracy():
    task = classification("digit", 3)
    logits = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 5.0]])
    labels = torch.tensor([1, 2])
    losses = task.loss(logits, labels)
    assert losses[0].item() == pytest.approx(math.log(3))
    assert losses[1].item() == pytest.approx(-math.log(math.exp(5) / (math.exp(5) + math.exp(2) + math.exp(1))))
    assert task.score(logits, labels).tolist() == [0.0, 1.0]


def test_log_probabilities_give_the_same_classification_loss_as_logits():
    task, logits, labels = classification("digit", 4), torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(task.loss(logits, labels), task.loss(F.log_softmax(logits, dim=1), labels))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_class_labels_may_be_any_whole_numbers(dtype):
    task = classification("digit", 3)
    labels = torch.tensor([0, 2], dtype=dtype)
    task.check(labels)
    assert task.loss(torch.zeros(2, 3), labels).shape == (2,)


@pytest.mark.parametrize(
    ("labels", "found"),
    [([0, 3], "0 to 3"), ([-1, 2], "-1 to 2"), ([0.0, 1.0], "float32")],
)
def test_class_labels_out_of_range_or_not_whole_are_refused(labels, found):
    with pytest.raises(InputError, match=f"'digit' expects.*{found}"):
        classification("digit", 3).check(torch.tensor(labels))


def test_multilabel_is_the_mean_binary_cross_entropy_and_the_share_of_right_attributes():
    task = multilabel("face", 4)
    logits = torch.tensor([[0.0, 10.0, -10.0, 1.0]])
    labels = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    expected = (math.log(2) + math.log1p(math.exp(-10)) + 10 + math.log1p(math.exp(-10)) + math.log1p(math.exp(-1))) / 4
    assert task.loss(logits, labels).tolist() == pytest.approx([expected])
    # a logit of 0 is a probability of 0.5, which is not above 0.5
    assert task.score(logits, labels).tolist() == [0.5]


@pytest.mark.parametrize("labels", [[[0, 2]], [[0.5, 1.0]], [[0, 1, 1]], [0, 1]])
def test_attributes_that_are_not_zero_or_one_or_of_another_number_are_refused(labels):
    with pytest.raises(InputError, match="'face' expects"):
        multilabel("face", 2).check(torch.tensor(labels))


def test_regression_is_the_mean_squared_error_and_the_share_within_the_tolerance():
    task = regression("age", tolerance=0.5)
    outputs, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([1.4, 5.0])
    assert task.loss(outputs, targets).tolist() == pytest.approx([0.16, 4.0])
    assert task.score(outputs, targets).tolist() == [1.0, 0.0]


def test_regression_takes_several_numbers_an_example():
    task = regression("place", tolerance=1.0)
    outputs, targets = torch.zeros(2, 2), torch.tensor([[0.5, 3.0], [0.0, 1.0]])
    assert task.loss(outputs, targets).tolist() == pytest.approx([4.625, 0.5])
    assert task.score(outputs, targets).tolist() == [0.5, 1.0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_regression_targets_that_are_not_finite_are_refused(value):
    with pytest.raises(InputError, match="'age' expects finite"):
        regression("age", 1.0).check(torch.tensor([1.0, value]))


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan")])
def test_a_tolerance_that_is_not_positive_is_refused(tolerance):
    with pytest.raises(InputError, match="tolerance"):
        regression("age", tolerance)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: classification(3, 2), r"^A task's name should be text\. Found 3; give the column by `targets`\.$"),
        (lambda: regression("age", 1.0, missing="-999"), r"'age': `missing` should be a number\. Found '-999'\.$"),
        (lambda: regression("age", "1.0"), r"`tolerance` should be a positive number\. Found `tolerance = '1\.0'`\.$"),
    ],
)
def test_what_is_no_name_and_no_number_is_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_numbers_of_numpy_are_numbers():
    task = regression("age", np.float32(0.5), missing=np.float32(-999), scale=np.float32(2))
    assert (task.missing, task.scale, task.scored) == (-999, 2.0, "share within 0.5")
