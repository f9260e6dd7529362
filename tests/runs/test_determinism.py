"""The same seed gives the same bits, and the command that checks it notices when it does not."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
import torch

from fedhv import Method, State, Train
from fedhv.runs.determinism import NotDeterministic, Trace, check_determinism, first_difference


@dataclass(frozen=True, kw_only=True)
class Restless(Method):
    """Draws from torch's own generator, which no seed of the run fixes."""

    name = "restless"

    def round(self, state):
        replies = yield Train(state.model)
        noise = torch.rand_like(state.model)
        return State(state.model + replies.mean_update + 1e-3 * noise, state.weights)


@pytest.mark.parametrize("method", ["fedhv", "fedcmoo"])
def test_every_cpu_engine_with_any_number_of_workers_gives_the_same_bits(method):
    short = ["training.local_steps=2", "federation.participants=3", "calibration.rounds=1"]
    traces = check_determinism("digits", method, rounds=2, device="cpu", override=short)
    assert [trace.how for trace in traces] == [
        "sequential", "sequential again", "parallel, 1 worker", "parallel, 2 workers", "parallel, 3 workers"
    ]  # fmt: skip
    assert len({trace.digest for trace in traces}) == 1


def test_a_named_engine_is_compared_with_itself():
    traces = check_determinism("digits", "uniform", rounds=1, engine="stacked", device="cpu",
                               override=["training.local_steps=1"])  # fmt: skip
    assert [trace.how for trace in traces] == ["stacked", "stacked again"]


def test_a_model_that_cannot_be_stacked_is_compared_on_the_engine_it_would_get(random_problem, monkeypatch):
    monkeypatch.setattr("fedhv.engines.choosing.why_not_mappable", lambda *_: "it cannot")
    traces = check_determinism(random_problem, "uniform", rounds=1, engine="stacked", device="cpu")
    assert [trace.how for trace in traces] == ["sequential", "sequential again"]


def test_a_method_that_draws_elsewhere_is_caught(random_problem):
    with pytest.raises(NotDeterministic, match="sequential and sequential again differ: `evaluation` of round 1"):
        check_determinism(random_problem, Restless(), rounds=2, device="cpu", override=["training.local_steps=1"])


def test_the_first_difference_is_named():
    one = Trace("a", ({"weights": [0.5]}, {"weights": [0.25]}), "x")
    assert first_difference(one, one) == ""
    assert first_difference(one, replace(one, digest="y")) == "the models after the last round"
    other = replace(one, history=({"weights": [0.5]}, {"weights": [0.75]}))
    assert first_difference(one, other) == "`weights` of round 2 is [0.25] and [0.75]"


def test_the_command_says_so_and_writes_nothing(command, tmp_path):
    done = command("run", "digits", "--check-determinism", "--rounds", 1, "--set", "training.local_steps=1", "--json",
                   "--method", "uniform", "--engine", "sequential")  # fmt: skip
    assert done.code == 0
    found = json.loads(done.out)
    assert [each["how"] for each in found] == ["sequential", "sequential again"]
    assert found[0]["model_sha256"] == found[1]["model_sha256"]
    assert list(tmp_path.iterdir()) == []
