"""The mathematics of missing labels: losses, gradients, and labels that are hidden on purpose."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from gaps import gappy, half_labelled
from problems import everything_random

from fedhv import Examples, InputError, LocalTraining, Problem, Task, Uniform
from fedhv.problem.hiding import hide_labels, shown
from fedhv.problem.labels import Holding, holding, label_counts, labels_at
from fedhv.problem.missing import rows
from fedhv.problem.parameters import flatten
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.requests import Train
from fedhv.runs.fingerprint import fingerprint


def member(client, k):
    cohort = Cohort([k], 0, 0, LocalTraining(1, 2, 0.1))
    return client.member(Call(Train(torch.zeros(client.layout.d)), cohort), k)


def own_gradients(client, theta, k):
    """∇F_ki from the definition: the mean over the labelled examples, one by one."""
    found = []
    for i, (task, mask) in enumerate(zip(client.problem.tasks, client.problem.train.labelled, strict=True)):
        gradient = torch.zeros_like(theta)
        mine = [j for j in client.problem.clients[k] if bool(rows(mask)[j])]
        for j in mine:
            at = theta.clone().requires_grad_()
            one = client.problem.train[[j]]
            output, target = client.network(at, one.inputs, training=False)[i], one.targets[i]
            if task.entry_loss is not None and mask.ndim > 1:
                loss = task.entry_loss(output, target)[0][mask[j]].mean()
            else:
                loss = task.loss(output, target).sum()
            gradient += torch.autograd.grad(loss, at)[0] / len(mine)
        found.append(gradient)
    return torch.stack(found)


# --- what a client holds ----------------------------------------------------------------------------------------


def test_a_client_knows_how_many_labels_it_holds():
    problem = half_labelled()
    assert holding(problem, 0) == Holding(2, (1, 2))
    assert holding(problem, 1) == Holding(2, (2, 0))
    assert holding(problem, 0).scales.tolist() == [2.0, 1.0]
    assert holding(problem, 1).scales.tolist() == [1.0, 0.0]
    assert holding(problem, 1).bare() == Holding(2, (2, 0))
    assert Holding(9, (4, 0, 9)).bare() == Holding(9, (9, 0, 9))
    assert labels_at(problem, np.array([0, 3])) == (1, 1)
    assert label_counts(problem.tasks, problem.train).tolist() == [3.0, 2.0]


def test_complete_labels_are_not_scaled():
    problem = everything_random()
    assert holding(problem, 2) == Holding(14)
    assert holding(problem, 2).scales is None
    assert holding(problem, 2).bare() == Holding(14)
    assert holding(problem, 2).of(2) == (14, 14)
    weights = torch.rand(2)
    assert member(Client(problem), 2).scaled(weights) is weights


# --- gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1])
def test_the_mean_over_all_minibatches_is_the_gradient_of_the_clients_loss(k):
    """Every minibatch of two of five examples, drawn with replacement; some hold no label of a task at all."""
    problem = gappy()
    problem = replace(problem, clients=type(problem.clients).of([each[:5] for each in problem.clients]))
    client = Client(problem)
    theta = flatten(client.network.module)
    me = member(client, k)
    assert 0 < sum(me.holding.labels) < 15
    for i, w in enumerate(torch.eye(3)):
        drawn = []
        for pair in product(range(5), repeat=2):
            batch = client.batch(np.array(pair), k)
            at = theta.clone().requires_grad_()
            losses = client.example_losses(at, batch, training=False)  # the same for all: no dropout
            drawn.append(torch.autograd.grad(me.scaled(w) @ losses.mean(dim=1), at)[0])
        expected = own_gradients(client, theta, k)[i]
        torch.testing.assert_close(torch.stack(drawn).mean(dim=0), expected, rtol=1e-4, atol=1e-6)
        assert bool(expected.any()) == (me.holding.labels[i] > 0)


def test_missing_labels_have_no_gradient_at_all():
    client = Client(half_labelled())
    theta = torch.tensor([0.3, -0.2, 0.1, 0.4])
    me = member(client, 1)
    gradient = client.gradient(theta, client.batch(np.arange(2), 1), me.scaled(torch.tensor([0.25, 0.75])))
    assert gradient.tolist() == pytest.approx([0.25 * (0.3 - 4), 0.25 * -0.2, 0.25 * (0.1 - 1), 0.0])


def test_an_example_counts_by_the_entries_that_it_has():
    client = Client(gappy())
    theta = flatten(client.network.module)
    batch = client.batch(np.arange(33), 4)
    outputs = client.network(theta, batch.inputs, training=False)
    losses = client.example_losses(theta, batch, training=False)
    for i in (1, 2):
        each, mask = client.problem.tasks[i].entry_loss(outputs[i], batch.targets[i]), batch.labelled[i]
        assert (mask.any(dim=1) & ~mask.all(dim=1)).any(), "nothing is missing in part"
        for j in range(33):
            expected = float(each[j][mask[j]].mean()) if mask[j].any() else 0.0
            assert float(losses[i, j]) == pytest.approx(expected, rel=1e-5)


def test_entries_may_have_the_shape_of_an_image():
    """A mask of classes per pixel, with pixels that nobody labelled."""

    def entries(outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def right(outputs, targets):
        return (outputs.argmax(dim=1) == targets).float()

    task = Task(
        "mask",
        lambda o, t: entries(o, t).mean(dim=(1, 2)),
        lambda o, t: right(o, t).mean(dim=(1, 2)),
        missing=-1,
        entry_loss=entries,
        entry_score=right,
    )
    targets = torch.tensor([[[0, -1], [1, 1]], [[1, 0], [-1, -1]], [[-1, -1], [-1, -1]], [[0, 1], [1, 0]]])
    images = torch.rand(4, 1, 2, 2)
    problem = Problem.from_clients(lambda: torch.nn.Conv2d(1, 2, 1), [task], [(images, [targets])], (images, [targets]))
    client = Client(problem)
    theta = flatten(client.network.module)
    each = entries(client.network(theta, images, training=False)[0], problem.train.targets[0])
    losses = client.example_losses(theta, problem.train, training=False)[0]
    for j in range(4):
        there = targets[j] >= 0
        assert float(losses[j]) == pytest.approx(float(each[j][there].mean()) if there.any() else 0.0)


# --- what is refused --------------------------------------------------------------------------------------------


def test_entries_may_only_be_missing_where_the_task_knows_the_loss_of_each():
    spread = torch.tensor([[1.0, np.nan, 2.0], [1.0, 2.0, 3.0]])
    bare = Task("own", lambda o, t: (o - t).square().sum(dim=1), lambda o, t: t[:, 0])
    clients = [(torch.zeros(2, 1), [spread])]
    for task, lacks in ((bare, "entry_loss"), (replace(bare, entry_loss=lambda o, t: (o - t).square()), "entry_score")):
        with pytest.raises(
            InputError, match=rf"Task 'own' expects targets .* missing entries; give the task an `{lacks}`"
        ):
            Problem.from_clients(torch.nn.Identity, [task], clients, (torch.zeros(1, 1), [spread[1:]]))
    whole = torch.tensor([[np.nan] * 3, [1.0, 2.0, 3.0]])
    problem = Problem.from_clients(
        torch.nn.Identity, [bare], [(torch.zeros(2, 1), [whole])], (torch.zeros(1, 1), [whole[1:]])
    )
    assert holding(problem, 0) == Holding(2, (1,))


# --- hidden labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["label", "task"])
@pytest.mark.parametrize("make", [everything_random, gappy])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_hidden_labels(make, by, share):
    problem = make()
    hidden = hide_labels(problem, share, by, seed=5)
    assert hidden.test is problem.test or torch.equal(hidden.test.targets[0], problem.test.targets[0])
    before = problem.train.labelled or [torch.ones_like(t, dtype=torch.bool) for t in problem.train.targets]
    for old, new in zip(before, hidden.train.labelled, strict=True):
        gone = torch.zeros_like(old) if new is None else old & ~new
        assert new is None or not bool((new & ~old).any()), "a label appeared that was not there"
        flat = gone.flatten(1).any(dim=1) if gone.ndim > 1 else gone
        if by == "task":  # a client keeps all of a task or nothing
            for mine in problem.clients:
                kept = rows(old)[mine] if new is None else rows(new)[mine]
                assert not kept.any() or torch.equal(kept, rows(old)[mine])
        assert by == "task" or share < 0.5 or bool(flat.any())
    holdings = [holding(hidden, k) for k in range(len(hidden.clients))]
    assert all(any(each.of(len(hidden.tasks))) for each in holdings), "a client without any label"
    assert all(any(column) for column in zip(*(each.of(len(hidden.tasks)) for each in holdings), strict=True))
    found = [fingerprint_of(hide_labels(problem, share, by, seed)) for seed in (5, 6, 7, 8, 9, 10)]
    assert found[0] == fingerprint_of(hidden)
    assert len(set(found)) > 1


def fingerprint_of(problem):
    return fingerprint(problem, Uniform())["targets"]


def test_the_hidden_share_is_about_what_was_asked_for():
    n = 20_000
    problem = Problem.from_clients(
        torch.nn.Identity,
        [Task("own", lambda o, t: o[:, 0], lambda o, t: o[:, 0])],
        [(np.zeros((n, 1), np.float32), [np.zeros(n, np.float32)])],
        (np.zeros((1, 1), np.float32), [np.zeros(1, np.float32)]),
    )
    assert shown(problem) == [1.0]
    assert hide_labels(problem, 0.0, "label", 0) is problem
    assert shown(hide_labels(problem, 0.3, "label", 0))[0] == pytest.approx(0.7, abs=0.01)
    with pytest.raises(InputError, match=r"`federation.missing` should be in \[0, 1\)\. Found 1\.0\.$"):
        hide_labels(problem, 1.0, "label", 0)


def test_a_mask_is_part_of_what_fixes_a_run():
    problem = everything_random()
    masks = [np.ones(len(problem.train), bool), np.ones(len(problem.train), bool)]
    found = {fingerprint_of(problem)}
    for i in range(2):
        some = [mask.copy() for mask in masks]
        some[i][3] = False
        train = Examples.of(problem.train.inputs, problem.train.targets, labelled=some)
        targets = tuple(t.clone() for t in problem.train.targets)
        for each in targets:
            each[3] = 0  # the same targets, other labels
        found.add(fingerprint_of(replace(problem, train=replace(train, targets=targets))))
    assert len(found) == 3
