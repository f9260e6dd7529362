"""Parts go around any method that reads reports, not around FedHV alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from problems import Point

from fedhv import FedHV, InputError, LocalTraining, State, Train, inverse_slack_weights
from fedhv.methods import drive
from fedhv.methods.base import Method
from fedhv.methods.parts.bounds import bounded
from fedhv.methods.parts.robust import robust
from fedhv.methods.referenced import ReferencedMethod
from fedhv.methods.reporting import ReportingMethod
from fedhv.methods.reports import reported_losses
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.requests import TrainReplies
from fedhv.runs.sections import ServerSettings

COHORT = Cohort([0, 1, 2], round=0, seed=0, local=LocalTraining())
START = State(torch.zeros(4), torch.tensor([0.5, 0.5]))


def trained(*reports, update=1.0):
    update = torch.full((4,), update)
    return TrainReplies(COHORT, Layout.of(Point(), 2), update, torch.tensor(reports) if reports else None)


def play(method: Method, *replies, state: State = START) -> State:
    remaining = iter(replies)
    return drive(method.conversation(state), lambda request: next(remaining))


@dataclass(frozen=True, kw_only=True)
class Proportional(ReportingMethod):
    """w ∝ f: a rule that is not FedHV."""

    name = "proportional"

    def round(self, state):
        replies = yield Train(state.model, state.weights, report=self.report)
        losses = reported_losses(replies)
        return State(state.model + replies.mean_update, losses / losses.sum(), record={"report": losses.tolist()})


@dataclass(frozen=True, kw_only=True)
class TwoExchanges(ReferencedMethod):
    """A rule with a reference, whose first exchange has no report."""

    name = "two"

    def round(self, state):
        first = yield Train(state.model)
        replies = yield Train(state.model + first.mean_update, state.weights, report=self.report)
        weights = inverse_slack_weights(reported_losses(replies), self.reference, self.floor)
        return State(state.model + first.mean_update + replies.mean_update, weights, memory={"mine": torch.ones(1)})


REPORTS = ([1.0, 3.0], [2.0, 3.0], [99.0, 3.0])


def test_any_rule_reads_robust_reports():
    assert play(Proportional(aggregate="median"), trained(*REPORTS)).record["report"] == [2.0, 3.0]
    assert play(Proportional(aggregate="trimmed", trim=0.3), trained(*REPORTS)).weights.tolist() == pytest.approx(
        [0.4, 0.6]
    )
    assert play(Proportional(), trained(*REPORTS)).record["report"] == [34.0, 3.0]


def test_any_rule_has_a_cap_and_smoothing():
    assert play(Proportional(weight_cap=0.7), trained([9.0, 1.0])).weights.tolist() == pytest.approx([0.7, 0.3])
    both = play(Proportional(weight_cap=0.7, smoothing=0.5), trained([9.0, 1.0]))
    assert both.weights.tolist() == pytest.approx([0.6, 0.4])
    assert both.weights.dtype == torch.float32
    with pytest.raises(InputError, match=r"Method 'proportional': `weight_cap` should be at least 1/m = 0\.5"):
        Proportional(weight_cap=0.3).check(2)


def test_the_weight_of_a_single_task_is_one_under_a_cap():
    """The profile "hardened" caps weights at 0.8 whatever the number of tasks."""
    capped = ServerSettings(profile="hardened").hardened(Proportional())
    assert capped.weight_cap == 0.8
    capped.check(1)
    one = State(torch.zeros(3), torch.ones(1))
    replies = TrainReplies(COHORT, Layout.of(Point(1), 1), torch.ones(3), torch.tensor([[2.0], [3.0]]))
    assert play(capped, replies, state=one).weights.tolist() == [1.0]


def test_a_rule_without_a_reference_has_no_watch():
    assert not hasattr(Proportional(), "watch")
    with pytest.raises(TypeError, match="watch"):
        Proportional(watch="stop")


def test_a_raised_reference_starts_a_round_of_several_exchanges_again_with_the_replies_that_it_had():
    method = TwoExchanges(reference=(1.0, 3.0), watch="recalibrate", watch_margin=0.5)
    after = play(method, trained(update=2.0), trained([2.0, 1.0]))
    assert after.model.tolist() == [3.0] * 4
    assert after.record["raised"] == [2.5, 3.0]
    assert after.memory["reference"].tolist() == [2.5, 3.0]
    assert after.memory["mine"].tolist() == [1.0]  # what the rule itself remembers stays
    assert after.weights.tolist() == pytest.approx([0.8, 0.2])  # slacks 0.5 and 2


def test_the_watch_of_any_rule_warns():
    after = play(TwoExchanges(reference=(1.0, 3.0)), trained(), trained([2.0, 1.0]))
    assert after.record["watch"] == [{"task": 0, "slack": -1.0, "event": "above reference"}]


def test_parts_leave_replies_without_reports_and_states_without_bounds_alone():
    def silent(state):
        replies = yield Train(state.model)
        assert replies.reports is None
        return State(state.model, torch.tensor([0.25, 0.75]))

    wrapped = bounded(robust(silent(START), "median", 0.2), START.weights, None, 0.0)
    assert drive(wrapped, lambda request: trained()).weights.tolist() == [0.25, 0.75]


class Plain(FedHV):
    """Ends its round with something that is no state."""

    def round(self, state):
        yield Train(state.model, report="all")
        return state.model


class Immediate(FedHV):
    """Asks nothing."""

    def round(self, state):
        return state


@pytest.mark.parametrize(
    ("wrong", "said"), [(Plain, "should return a fedhv.State"), (Immediate, "should yield requests")]
)
def test_a_round_that_breaks_the_rules_is_named_through_the_parts(wrong, said):
    with pytest.raises(InputError, match=said):
        play(wrong(reference=(2.0, 2.0), weight_cap=0.7), trained([1.0, 1.0]))
