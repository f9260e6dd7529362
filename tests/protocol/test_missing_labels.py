"""What travels where labels are missing, how much each client counts, and what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from gaps import gappy, half_labelled
from problems import everything_random

from fedhv import FSMGDA, FedHV, LocalTraining, Uniform
from fedhv.engines import Sequential
from fedhv.engines.private import PrivateReports
from fedhv.problem.labels import Holding
from fedhv.protocol.aggregation import aggregate_reports
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.intake import Intake
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.requests import TaskUpdates, Train
from fedhv.protocol.requests.task_updates import TaskUpdatesReply
from fedhv.protocol.requests.train import TrainReply
from fedhv.protocol.screening import Screening
from fedhv.simulation.rounds import Plan, simulate

LOCAL = LocalTraining(2, 2, 0.5)
LAYOUT = Sequential(half_labelled()).layout
"""A shared point of two numbers and a head of one number for each of two tasks."""
HOLDINGS = {0: Holding(2, (1, 2)), 1: Holding(4, (4, 0))}


def taken(request, replies, average, **intake):
    call = Call(request, Cohort([0, 1], 0, 0, LOCAL), Intake(average=average, **intake))
    return collect(call, LAYOUT, replies, HOLDINGS.__getitem__)


REPLIES = [
    TrainReply(torch.full((4,), 1.0), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
    TrainReply(torch.full((4,), 3.0), torch.tensor([3.0, 0.0]), torch.tensor([4.0, 0.0])),
]


# --- how much each client counts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("average", "shared", "left"),
    [
        ("clients", (1 + 3) / 2, (1 + 3) / 2),
        ("examples", (2 * 1 + 4 * 3) / 6, (2 * 1 + 4 * 3) / 6),
        ("labels", (1.5 * 1 + 2 * 3) / 3.5, (1 * 1 + 4 * 3) / 5),  # 3 and 4 labels of two tasks; 1 and 4 of the left
    ],
)
def test_means_by_hand(average, shared, left):
    found = taken(Train(torch.zeros(4), report="all"), REPLIES, average)
    # the right head and the right loss are client 0's: client 1 has no label of it
    assert found.mean_update.tolist() == pytest.approx([shared, shared, left, 1.0])
    assert found.mean_report().tolist() == pytest.approx([left, 2.0])
    each = [TaskUpdatesReply(torch.full((2, 4), value)) for value in (1.0, 3.0)]
    tasks = taken(TaskUpdates(torch.zeros(4)), each, average)
    torch.testing.assert_close(tasks.mean_updates, torch.tensor([[left] * 4, [1.0] * 4]))


def test_shares_of_one_client_are_spread_as_those_of_several():
    shared, heads = torch.tensor([5.0, 6.0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    expected = torch.tensor([[5.0, 5.0, 1.0, 2.0], [6.0, 6.0, 3.0, 4.0]])
    assert torch.equal(LAYOUT.spread(shared, heads), expected)
    for k in range(2):
        assert torch.equal(LAYOUT.spread(shared[k : k + 1], heads[k : k + 1]), expected[k : k + 1])
        assert torch.equal(LAYOUT.spread(shared[k], heads[k]), expected[k])


def test_complete_labels_and_equal_counts_are_the_plain_mean():
    layout = replace(LAYOUT, partial=False)
    replies = [replace(reply, labels=None) for reply in REPLIES]
    call = Call(Train(torch.zeros(4), report="all"), Cohort([0, 1], 0, 0, LOCAL))
    found = collect(call, layout, replies, lambda k: Holding(3))
    assert found.shares is None
    assert found.mean_update.tolist() == [2.0] * 4
    assert found.mean_report().tolist() == [2.0, 1.0]
    by_size = collect(replace(call, intake=Intake(average="examples")), layout, replies, lambda k: Holding((1, 3)[k]))
    assert by_size.mean_update.tolist() == [2.5] * 4
    assert by_size.mean_report().tolist() == [2.5, 0.5]


def test_what_nobody_trained_does_not_move():
    call = Call(Train(torch.zeros(4)), Cohort([1], 0, 0, LOCAL))
    found = collect(call, LAYOUT, [replace(REPLIES[1], report=None, labels=None)], HOLDINGS.__getitem__)
    assert found.mean_update.tolist() == [3.0, 3.0, 3.0, 0.0]
    assert found.present.tolist() == [True, False]


def test_robust_reports_leave_out_who_has_no_label():
    reports = torch.tensor([[1.0, 0.0], [2.0, 5.0], [9.0, 7.0], [4.0, 0.0], [3.0, 6.0]])
    shares = torch.tensor([[1.0, 0], [1, 1], [1, 2], [1, 0], [1, 3]])
    assert aggregate_reports(reports, "mean", shares=shares).tolist() == pytest.approx([3.8, (5 + 14 + 18) / 6])
    assert aggregate_reports(reports, "median", shares=shares).tolist() == [3.0, 6.0]
    assert aggregate_reports(reports, "trimmed", 0.2, shares).tolist() == [3.0, 6.0]
    nothing = aggregate_reports(reports, "median", shares=shares * torch.tensor([1.0, 0.0])).tolist()
    assert nothing[0] == 3.0
    assert math.isnan(nothing[1])


@pytest.mark.parametrize("average", ["clients", "examples", "labels"])
def test_a_run_counts_as_its_plan_says(average):
    """One round by hand from the clients' own answers."""
    problem = gappy()
    engine = Sequential(problem)
    (found,) = simulate(engine, Uniform(report="all"), Plan(1, 5, LocalTraining(2, 4, 0.1), average=average))
    (start,) = simulate(engine, Uniform(server_lr=1e-30), Plan(1, 5, LocalTraining(2, 4, 0.1)))
    cohort = Cohort(range(5), 0, 0, LocalTraining(2, 4, 0.1))
    call = Call(Train(start.state.model, report="all"), cohort)
    answers, held = zip(*((engine.client.answer(call, k), engine.client.holding(k)) for k in range(5)), strict=True)
    whole = {"clients": [1.0] * 5, "examples": [h.examples for h in held], "labels": [sum(h.labels) / 3 for h in held]}
    update = torch.zeros(engine.layout.d, dtype=torch.float64)
    report = []
    for i in (-1, 0, 1, 2):
        owned = torch.repeat_interleave(torch.tensor(engine.layout.owners) == i, torch.tensor(engine.layout.sizes))
        shares = [s if i < 0 or h.labels[i] else 0 for s, h in zip(whole[average], held, strict=True)]
        if average == "labels" and i >= 0:
            shares = [h.labels[i] for h in held]
        mean = sum(s * a.update.double() for s, a in zip(shares, answers, strict=True)) / sum(shares)
        update[owned] = mean[owned]
        if i >= 0:
            report.append(sum(s * float(a.report[i]) for s, a in zip(shares, answers, strict=True)) / sum(shares))
    torch.testing.assert_close(found.state.model, start.state.model + update.float(), rtol=1e-5, atol=1e-6)
    assert found.state.record["report"] == pytest.approx(report, rel=1e-6)


# --- reports ----------------------------------------------------------------------------------------------------


def test_a_report_is_the_mean_over_labelled_examples():
    engine = Sequential(half_labelled())
    found = engine.ask(Call(Train(torch.zeros(4), report="all"), Cohort([0, 1], 0, 0, LOCAL)))
    assert found.reports[:, 0].tolist() == pytest.approx([5, 9])
    assert found.reports[0, 1].item() == pytest.approx(3)
    assert found.stacks["labels"].tolist() == [[1, 2], [2, 0]]


def test_a_report_that_drew_no_label_does_not_count():
    """One example of two: client 0 draws its left label in some rounds only."""
    engine, seen = Sequential(half_labelled()), set()
    local = LocalTraining(1, 1, 0.5)
    for t in range(12):
        found = engine.ask(Call(Train(torch.zeros(4), report=1), Cohort([0, 1], t, 0, local)))
        drawn = int(found.stacks["labels"][0, 0])
        theirs = float(found.reports[1, 0])
        expected = (5 + theirs) / 2 if drawn else theirs
        assert float(found.mean_report()[0]) == pytest.approx(expected)
        assert float(found.mean_report()[1]) == float(found.reports[0, 1])
        seen.add(drawn)
    assert seen == {0, 1}


def test_a_cohort_that_drew_no_label_keeps_the_last_report():
    """Client 0 alone: where its one example has no left label, the task is absent from the round."""
    problem = replace(half_labelled(), clients=type(half_labelled().clients).of([[0, 1]]))
    plan = Plan(12, 1, LocalTraining(1, 1, 1e-9))
    rounds = list(simulate(Sequential(problem), Uniform(report=1, local_lr=1e-9), plan))
    gone = [each.state.record.get("absent") for each in rounds]
    assert [0] in gone
    assert None in gone
    first = gone.index(None)
    assert all(each.state.record["report"][0] == pytest.approx(5) for each in rounds[first:])
    assert all(math.isfinite(x) for each in rounds for x in each.state.record["report"])


# --- screening and privacy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (torch.tensor([-1.0, 2.0]), "a negative number of labels"),
        (torch.tensor([math.nan, 2.0]), "labels with numbers that are not finite"),
        (torch.tensor([math.inf, 2.0]), "labels with numbers that are not finite"),
        (torch.tensor([1.0]), r"labels of shape (1,) instead of (2,)"),
        (None, "no labels"),
    ],
)
def test_counts_that_cannot_be_are_refused(labels, said):
    request = Train(torch.zeros(4), report="all")
    assert Screening().objection(request, LAYOUT, replace(REPLIES[0], labels=labels)) == said
    assert Screening().objection(request, LAYOUT, REPLIES[0]) is None


def test_a_stack_is_screened_as_single_replies_are():
    from fedhv.protocol.exchange import Collector

    call = Call(Train(torch.zeros(4), report="all"), Cohort([0, 1], 0, 0, LOCAL))
    collector = Collector(call, LAYOUT, HOLDINGS.__getitem__)
    collector.take_stack([0, 1], [replace(REPLIES[0], labels=torch.tensor([-1.0, 2.0])), REPLIES[1]])
    assert [(r.client, r.reason) for r in collector.refused] == [(0, "a negative number of labels")]
    assert collector.replies().mean_update.tolist() == [3.0, 3.0, 3.0, 0.0]


def test_counts_that_were_not_asked_for_are_refused():
    complete = replace(LAYOUT, partial=False)
    said = Screening().objection(Train(torch.zeros(4), report="all"), complete, REPLIES[0])
    assert said == "'labels', which was not asked for"


def test_protected_reports_say_only_whether_there_are_labels():
    engine = PrivateReports(gappy(), ReportPrivacy(clip=3, noise=0.0))
    call = Call(Train(torch.zeros(engine.layout.d), report="all"), Cohort(range(5), 0, 0, LOCAL))
    found = engine.ask(replace(call, intake=Intake(average="labels")))
    assert set(found.stacks["labels"].flatten().tolist()) == {0.0, 1.0}
    # counting by labels then counts examples of the clients that have the task
    sizes = torch.tensor([5.0, 9, 14, 20, 33])
    assert found.shares.tolist() == [
        [float(n) if has else 0.0 for has in row]
        for n, row in zip(sizes, (found.stacks["labels"] > 0).tolist(), strict=True)
    ]


# --- bytes ------------------------------------------------------------------------------------------------------


def test_only_where_labels_may_be_missing_m_more_scalars_go_up():
    for report, more in (("all", 2), (None, 0)):
        request = Train(torch.zeros(4), report=report)
        complete = replace(LAYOUT, partial=False)
        assert sum(request.up(LAYOUT).values()) - sum(request.up(complete).values()) == more
        assert request.down(LAYOUT) == request.down(complete)
    assert TaskUpdates(torch.zeros(4)).up(LAYOUT) == TaskUpdates(torch.zeros(4)).up(replace(LAYOUT, partial=False))
    traffic = {}
    for name, problem in (("gappy", gappy()), ("complete", gappy(complete=True))):
        for method in (FedHV(reference=(9.0, 9.0, 9.0)), FSMGDA()):
            (one,) = simulate(Sequential(problem), method, Plan(1, 4, LOCAL))
            traffic[name, method.name] = one.traffic
    assert traffic["gappy", "fedhv"].up - traffic["complete", "fedhv"].up == 4 * 3 * 4  # clients, tasks, bytes
    assert traffic["gappy", "fedhv"].down == traffic["complete", "fedhv"].down
    assert traffic["gappy", "fsmgda"] == traffic["complete", "fsmgda"]


def test_a_problem_without_masks_has_no_counts():
    engine = Sequential(everything_random())
    assert not engine.layout.partial
    assert engine.labels() is None
    found = engine.ask(Call(Train(torch.zeros(engine.layout.d), report="all"), Cohort([0], 0, 0, LOCAL)))
    assert found.stacks["labels"] is None
