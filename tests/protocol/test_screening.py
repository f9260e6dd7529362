"""What a server takes for an answer: every way in which a reply can be wrong, and the words for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import everything_random

from fedhv import InputError
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import LocalTraining, sample_cohort
from fedhv.protocol.compression import stack_shape
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.intake import Intake
from fedhv.protocol.request import Refusal
from fedhv.protocol.requests import (
    GramTerms,
    GramTermsReply,
    TaskGradients,
    TaskUpdates,
    TaskUpdatesReply,
    Train,
    TrainReply,
)
from fedhv.protocol.screening import Screening, TooFewReplies

RULES = Screening(max_update=10.0, max_report=5.0)
CLIENT = Client(everything_random())
LAYOUT = CLIENT.layout
THETA = torch.zeros(LAYOUT.d)
COHORT = sample_cohort(0, 0, 5, 3, LocalTraining(steps=1, batch_size=4))
UPDATE = torch.full((LAYOUT.d,), 0.01)
REPORT = torch.tensor([1.0, 2.0])


def with_one(value: float, like: torch.Tensor = UPDATE) -> torch.Tensor:
    changed = like.clone()
    changed.view(-1)[-1] = value
    return changed


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (TrainReply(UPDATE, REPORT), None),
        (TrainReply(UPDATE, REPORT * 0), None),
        (TrainReply(with_one(float("nan")), REPORT), "update with numbers that are not finite"),
        (TrainReply(with_one(float("-inf")), REPORT), "update with numbers that are not finite"),
        (TrainReply(UPDATE[:-1], REPORT), "update of shape"),
        (TrainReply(UPDATE[None], REPORT), "update of shape"),
        (TrainReply(with_one(11.0), REPORT), "an update of norm 11"),
        (TrainReply(UPDATE, None), "no report"),
        (TrainReply(UPDATE, REPORT[:1]), "report of shape"),
        (TrainReply(UPDATE, with_one(float("nan"), REPORT)), "report with numbers that are not finite"),
        (TrainReply(UPDATE, with_one(-0.1, REPORT)), "a negative loss in the report"),
        (TrainReply(UPDATE, with_one(5.1, REPORT)), "a reported loss of 5.1"),
        (TaskUpdatesReply(UPDATE), "a TaskUpdatesReply in answer to Train"),
    ],
)
def test_an_answer_to_training_is_judged(reply, words):
    objection = RULES.objection(Train(THETA, report="all"), LAYOUT, reply)
    assert (objection is None) if words is None else objection.startswith(words)


def test_a_report_that_nobody_asked_for_is_refused():
    assert "not asked for" in RULES.objection(Train(THETA), LAYOUT, TrainReply(UPDATE, REPORT))


def test_task_updates_gradients_and_gram_terms_are_judged():
    each = torch.stack([UPDATE] * LAYOUT.tasks)
    assert RULES.objection(TaskUpdates(THETA), LAYOUT, TaskUpdatesReply(each)) is None
    assert "not finite" in RULES.objection(TaskUpdates(THETA), LAYOUT, TaskUpdatesReply(with_one(float("inf"), each)))
    request = TaskGradients(CLIENT.network.module.encoder[0].weight.new_ones(LAYOUT.d))
    sent = CLIENT.answer(Call(request, COHORT), COHORT.clients[0])
    assert RULES.objection(request, LAYOUT, sent) is None
    for wrong, words in (
        (replace(sent, left=sent.left * float("nan")), "not finite"),
        (replace(sent, right=sent.right[:, :-1]), "of shape"),
        (replace(sent, left=sent.left[:1]), "of shape"),
    ):
        assert words in RULES.objection(request, LAYOUT, wrong)
    eye = torch.eye(LAYOUT.tasks)
    gram = GramTerms(sent.left, sent.right)
    assert RULES.objection(gram, LAYOUT, GramTermsReply(eye, eye)) is None
    assert "negative squared norm" in RULES.objection(gram, LAYOUT, GramTermsReply(eye, -eye))
    assert "of shape" in RULES.objection(gram, LAYOUT, GramTermsReply(eye[:1], eye))


def test_compressed_gradients_whose_product_or_its_square_is_not_finite_are_refused():
    request = TaskGradients(CLIENT.network.module.encoder[0].weight.new_ones(LAYOUT.d))
    sent = CLIENT.answer(Call(request, COHORT), COHORT.clients[0])
    left, right = sent.left, sent.right
    huge = replace(sent, left=left.new_full(left.shape, 3e38), right=right.new_full(right.shape, 3e38))
    large = replace(sent, left=left * 1e30)
    assert bool(large.compressed(LAYOUT).dense().isfinite().all())
    for wrong in (huge, large):
        assert "not finite" in Screening().objection(request, LAYOUT, wrong)
    # Large factors of a small product, whose terms cancel: only the product itself can tell.
    request = TaskGradients(THETA, extra_upload=4.0)
    rows, columns, rank = stack_shape(LAYOUT.d_shared, LAYOUT.tasks, 4.0)
    left = torch.zeros(rows, rank)
    left[:, 0], left[:, 1] = 1e12, -1e12
    cancelling = replace(sent, left=left, right=torch.full((rank, columns), 1e12))
    assert Screening().objection(request, LAYOUT, cancelling) is None


@pytest.mark.parametrize(
    ("residual", "words"),
    [
        ([[4.0, 2.0], [2.0, 1.0]], None),
        ([[4.0, 2.001], [2.0, 1.0]], None),  # as tensor cores round
        ([[0.0, 0.0], [0.0, 0.0]], None),
        ([[1.0, 1e-23], [1e-23, 0.0]], None),  # a square that is 0 in single precision
        ([[4.0, 3.0], [3.0, 1.0]], "no inner products"),
        ([[4.0, 1.0], [-1.0, 1.0]], "no inner products"),
        ([[1.0, 3e37], [3e37, 1.0]], "no inner products"),
        ([[1.0, 0.0], [0.0, -1.0]], "negative squared norm"),
    ],
)
def test_gram_terms_that_no_gradients_have_are_refused(residual, words):
    reply = GramTermsReply(torch.eye(2), torch.tensor(residual))
    objection = RULES.objection(GramTerms(None, None), LAYOUT, reply)  # type: ignore[arg-type]
    assert (objection is None) if words is None else words in objection


def test_numbers_whose_sum_overflows_are_finite_all_the_same():
    huge = torch.full((LAYOUT.d,), 3e38)
    assert Screening().objection(Train(THETA), LAYOUT, TrainReply(huge, None)) is None


def test_too_few_replies_say_how_many_are_needed_and_who_is_missing():
    rules = Screening(min_replies=2)
    rules.check_enough(2, [])
    refused = [Refusal(k, "no answer") for k in range(8)]
    with pytest.raises(TooFewReplies, match=r"needs 2 replies.*Found 1; left out: client 0: no answer.*and 3 more"):
        rules.check_enough(1, refused)


@pytest.mark.parametrize(
    "wrong",
    [{"min_replies": 0}, {"min_replies": True}, {"attempts": 0}, {"attempts": 1.5}, {"max_update": 0.0},
     {"max_report": float("inf")}, {"max_update": float("nan")}],
)  # fmt: skip
def test_rules_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}`"):
        Screening(**wrong)


def test_nobody_left_is_an_empty_cohort_not_a_division_by_zero():
    call = Call(Train(THETA, report="all"), COHORT, Intake(RULES))
    broken = [TrainReply(with_one(float("nan")), REPORT)] * len(COHORT)
    replies = collect(call, LAYOUT, broken, CLIENT.holding)
    assert len(replies.cohort) == 0
    assert bool(replies.mean_update.isfinite().all())
    assert [refusal.client for refusal in replies.refused] == list(COHORT.clients)


def test_a_cohort_of_which_nobody_judges_is_taken_as_it_is():
    replies = collect(Call(Train(THETA), COHORT), LAYOUT, [TrainReply(UPDATE, None)] * len(COHORT), CLIENT.holding)
    assert replies.cohort is COHORT
    torch.testing.assert_close(replies.mean_update, UPDATE)


def test_as_many_answers_as_clients_are_needed():
    with pytest.raises(ValueError, match="shorter"):
        collect(Call(Train(THETA), COHORT), LAYOUT, [TrainReply(UPDATE, None)], CLIENT.holding)
