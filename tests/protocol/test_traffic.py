"""Bytes, counted from the messages themselves, agree with the paper's to the byte."""

import pytest
import torch

from fedhv import FSMGDA, FedCMOO, FedHV, State, Uniform, run
from fedhv.benchmarks.models import CIFARNet, LeNet
from fedhv.methods import drive
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort, LocalTraining
from fedhv.protocol.requests import (
    GramTermReplies,
    GramTerms,
    TaskGradientReplies,
    TaskGradients,
    TaskUpdateReplies,
    TaskUpdates,
    Train,
    TrainReplies,
)
from fedhv.protocol.traffic import Traffic, traffic

D, SHARED, HEAD = 1_726_508, 1_685_888, 20_310
CLIENTS = 10


@pytest.fixture(scope="module")
def layout():
    """The model of CIFAR10–MNIST."""
    return Layout.of(CIFARNet(), tasks=2)


def exchanges(method, layout):
    """The requests of one round with replies that say nothing, of the right shapes."""
    cohort = Cohort(list(range(CLIENTS)), 0, 0, LocalTraining())
    asked = []

    def answer(request):
        asked.append(request)
        match request:
            case Train():
                return TrainReplies(cohort, layout, torch.zeros(layout.d), torch.ones(CLIENTS, 2))
            case TaskUpdates():
                return TaskUpdateReplies(cohort, layout, torch.ones(2, layout.d))
            case TaskGradients():
                nothing = {"left": torch.zeros(CLIENTS, 1836, 1), "right": torch.zeros(CLIENTS, 1, 1838)}
                return TaskGradientReplies(cohort, layout, stacks=nothing)
            case GramTerms():
                return GramTermReplies(cohort, layout, torch.eye(2).double(), torch.zeros(2, 2).double())

    drive(method.round(State(torch.zeros(layout.d), torch.tensor([0.5, 0.5]))), answer)
    return asked


def total(requests, layout):
    return sum((traffic(request, layout, CLIENTS) for request in requests), Traffic())


def parts(requests, layout, direction):
    """What the messages of a round consist of, in scalars for each client."""
    found = {}
    for request in requests:
        for name, count in getattr(request, direction)(layout).items():
            found[name] = found.get(name, 0) + count
    return found


def test_the_model_of_cifar10_mnist_has_the_papers_parameters(layout):
    assert (layout.d, layout.d_shared) == (D, SHARED)
    assert [layout.d_head(i) for i in range(2)] == [HEAD, HEAD]


def test_the_lenet_has_the_papers_parameters():
    assert Layout.of(LeNet(), tasks=2).d == 34_635


def test_uniform_sends_the_model_and_nothing_else(layout):
    sent = total(exchanges(Uniform(), layout), layout)
    assert sent == Traffic(down=10 * 4 * D, up=10 * 4 * D)
    assert sent.down == 69_060_320


def test_fedhv_adds_eighty_bytes_in_each_direction(layout):
    requests = exchanges(FedHV(reference=(3.0, 3.0)), layout)
    assert total(requests, layout) == Traffic(down=69_060_320 + 80, up=69_060_320 + 80)
    assert parts(requests, layout, "down") == {"model": D, "weights": 2}
    assert parts(requests, layout, "up") == {"update": D, "report": 2}


def test_fsmgda_sends_the_shared_parameters_and_a_head_for_every_task(layout):
    sent = total(exchanges(FSMGDA(), layout), layout)
    assert sent == Traffic(down=10 * 4 * D, up=2 * 1_706_198 * 4 * 10)
    assert sent.up == 136_495_840


def test_fedcmoo_sends_an_update_and_one_more_upload_of_the_shared_size(layout):
    requests = exchanges(FedCMOO(), layout)
    up = parts(requests, layout, "up")
    assert 4 * 10 * (up["update"] + up["compressed gradients"]) == (D + SHARED) * 4 * 10 == 136_495_840
    # and, beyond the paper's account, what completes the Gram matrix: two m × m matrices
    assert up == {"update": D, "compressed gradients": SHARED, "Gram terms": 8}
    # the model goes down once, the compressed sum and the weights in the exchanges after it
    assert parts(requests, layout, "down") == {"model": D, "compressed sum": SHARED, "weights": 2}
    assert total(requests, layout) == Traffic(down=4 * 10 * (D + SHARED + 2), up=4 * 10 * (D + SHARED + 8))


@pytest.mark.parametrize(
    ("method", "count"),
    [(Uniform(), 1), (FedHV(reference=(3.0, 3.0)), 1), (FSMGDA(), 1), (FedCMOO(), 3)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_round_has_so_many_exchanges(method, count, layout):
    assert len(exchanges(method, layout)) == count


def test_clients_that_do_not_answer_are_sent_to_but_send_nothing(layout):
    request = Train(torch.zeros(D), torch.tensor([0.5, 0.5]), report="all")
    assert traffic(request, layout, asked=10, answered=7) == Traffic(4 * 10 * (D + 2), 4 * 7 * (D + 2))


# --- the same in runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "auxiliary"),
    [("uniform", 0), ("fedhv", 2 * 2), ("fsmgda", 56), ("fedcmoo", 2 * 56 + 2 + 8)],
)
def test_a_run_reports_the_auxiliary_scalars_of_its_method(method, auxiliary, random_problem):
    # d = 119, of which 56 are shared and 27 and 36 are the heads: FSMGDA sends 2 · 56 + 27 + 36 = d + 56 up
    reference = [9.0, 9.0] if method == "fedhv" else None
    result = run(random_problem, method, rounds=2, reference=reference, override=["federation.participants=2"], seed=3)
    assert result.communication.auxiliary_scalars_per_client_round == auxiliary
    sent = result.communication.downlink_bytes + result.communication.uplink_bytes
    assert sent == 2 * 2 * 4 * (2 * 119 + auxiliary)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_fedhv_adds_exactly_2m_scalars_for_each_client_and_round(tasks):
    layout = Layout.of(LeNet(tasks=tasks), tasks)
    theta, w = torch.zeros(layout.d), torch.full((tasks,), 1 / tasks)
    fedhv = traffic(Train(theta, w, report="all"), layout, asked=1)
    plain = traffic(Train(theta), layout, asked=1)
    assert fedhv.total - plain.total == 4 * 2 * tasks


def test_calibration_enters_the_totals(random_problem):
    changes = ["federation.participants=2", "calibration.rounds=3", "calibration.seeds=[0, 1]"]
    result = run(random_problem, "fedhv", rounds=2, override=changes)
    # two runs of three rounds of Uniform with reports: θ down, Δθ and two losses up
    assert result.communication.calibration_bytes == 2 * 3 * 2 * 4 * (119 + 119 + 2)
    sent = result.communication
    assert sent.total_bytes == sent.downlink_bytes + sent.uplink_bytes + sent.calibration_bytes
    assert result.total_seconds == pytest.approx(result.seconds + result.calibration_seconds, abs=2e-3)


def test_every_round_of_the_history_says_what_was_sent(random_problem):
    result = run(random_problem, "fedcmoo", rounds=3, override=["federation.participants=2"])
    for record in result.history:
        assert record["exchanges"] == 3
        assert record["downlink_bytes"] == 2 * 4 * (119 + 56 + 2)
        assert record["uplink_bytes"] == 2 * 4 * (119 + 56 + 8)
