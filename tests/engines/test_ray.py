"""A Ray cluster of two nodes gives the sequential engine's bits, whatever becomes of its workers and nodes."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import gaps
import numpy as np
import pytest
import torch
from engines.test_own_request import Counting, Visits, defined_here
from problems import Small, everything_random, examples
from torch import Tensor, nn
from waiting import ATTEMPTS, started, wait_until

from fedhv import (
    FSMGDA,
    SCAFFOLD,
    FedCMOO,
    FedHV,
    FedHVError,
    InputError,
    LocalTraining,
    Problem,
    Reply,
    Request,
    Uniform,
    classification,
    compare,
    run,
)  # fmt: skip
from fedhv.engines import Sequential, Stacked, choose_engine
from fedhv.engines import parts as parts_module
from fedhv.engines.ray import TASKS_PER_WORKER, Division, Ray, check_room
from fedhv.problem.partition import partition
from fedhv.problem.problem import Benchmark
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.exchange import Call
from fedhv.protocol.fields import tensor
from fedhv.protocol.sums import SIZES
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import Plan, initial_state, simulate

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedhv[ray]'")

LOCAL = LocalTraining(3, 8, 0.1)
PLAN = Plan(rounds=3, participants=4, local=LOCAL)
METHOD = FedHV(reference=(3.0, 3.0))


class TwoNodes:
    """A cluster of two nodes on this machine, with two cores each. On a busy machine Ray may need several attempts."""

    def __init__(self) -> None:
        started(self._start, self.close)

    def _start(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.cluster.add_node(num_cpus=2, include_dashboard=False)
        self.add_second()
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def remove_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)

    def add_second(self) -> None:
        self.second = started(lambda: self.cluster.add_node(num_cpus=2, include_dashboard=False), lambda: None)

    def close(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        nodes = TwoNodes()
        yield nodes
        nodes.close()


def processes(engine: Ray) -> list[tuple[int, str]]:
    """The process and the node of every worker."""
    import ray

    def about(worker):
        return os.getpid(), ray.get_runtime_context().get_node_id()

    return ray.get([worker.__ray_call__.remote(about) for worker in engine.workers])


@contextmanager
def on_both_nodes(problem):
    """An engine with a worker on each node. One of them may have computed rounds alone before the other has started."""
    for left in reversed(range(ATTEMPTS)):
        with Ray(problem, workers=2) as engine:
            engine.chunk.size = 7
            wait_until(lambda engine=engine: list(simulate(engine, METHOD, PLAN)) and len(engine.workers) == 2, "both")
            if len({node for _, node in processes(engine)}) == 2:
                yield engine
                return
        assert left, "both workers are on one node"  # Ray may count the last engine's workers for a while


def assert_same(expected, found):
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one.state.model, other.state.model)
        assert one.weights == other.weights
        assert one.evaluation == other.evaluation
        assert one.traffic == other.traffic
        assert one.state.record.get("report") == other.state.record.get("report")
        assert one.kept.keys() == other.kept.keys()
        for client, kept in one.kept.items():
            assert all(torch.equal(value, other.kept[client][name]) for name, value in kept.items())


METHODS = (METHOD, FSMGDA(), FedCMOO(), SCAFFOLD(), Visits(), Counting(), defined_here())


def test_two_nodes_give_the_bits_of_one_machine_also_if_a_worker_or_a_node_is_lost(cluster):
    """Dropout, augmentation, unequal clients, what clients keep, requests of one's own, evaluation in chunks."""
    problem = everything_random()
    plain = Sequential(problem)
    plain.chunk.size = 7  # 60 test examples in nine chunks
    expected = {method: list(simulate(plain, method, PLAN)) for method in METHODS}
    assert any(kept for kept in expected[METHODS[3]][-1].kept.values()), "SCAFFOLD keeps nothing"
    with on_both_nodes(problem) as engine:
        for method in METHODS:
            assert_same(expected[method], list(simulate(engine, method, PLAN)))
        assert not engine.notes

        before = processes(engine)
        found = []
        for finished in simulate(engine, METHOD, PLAN):
            found.append(finished)
            if len(found) == 1:
                os.kill(before[0][0], signal.SIGKILL)
        assert_same(expected[METHOD], found)
        assert [note for note in engine.notes if "A worker of the Ray cluster died" in note]

    with on_both_nodes(problem) as engine:  # the worker in the place of the dead one may be on either node
        found = []
        for finished in simulate(engine, METHOD, PLAN):
            found.append(finished)
            if len(found) == 1:
                cluster.remove_second()
        cluster.add_second()
        assert_same(expected[METHOD], found)
        assert [note for note in engine.notes if "A worker of the Ray cluster died" in note]


@dataclass(frozen=True)
class DiesOnce:
    """A preparation that kills the first worker in the middle of its work, and leaves a file as a sign of it."""

    mark: str
    spares: int

    def __call__(self, inputs: Tensor) -> Tensor:
        USES.append(1)
        if os.getpid() != self.spares and len(USES) == 20 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return inputs


USES: list[int] = []


def test_a_worker_that_dies_in_the_middle_is_replaced_and_labels_may_be_missing(cluster, tmp_path):
    problem = gaps.gappy()
    method = FedHV(reference=(3.0, 3.0, 3.0))
    expected = list(simulate(Sequential(problem), method, PLAN))
    mark = tmp_path / "mark"
    mortal = replace(problem, prepare=DiesOnce(str(mark), os.getpid()))
    with Ray(mortal, workers=2) as engine:
        assert_same(expected, list(simulate(engine, method, PLAN)))
        assert any("A worker of the Ray cluster died. Client" in note for note in engine.notes)
    assert mark.exists()


@dataclass(frozen=True)
class DrawnReply(Reply):
    """An update and a number."""

    update: Tensor = tensor("d", bound="update")
    number: Tensor = tensor("m", small=True, combine="each")


@dataclass(frozen=True)
class Drawn(Request):
    """A reply without training, so that a cohort can be large: values of many magnitudes."""

    reply = DrawnReply
    trains = True
    model: Tensor = tensor("d")

    def answer(self, me):
        draws = torch.Generator().manual_seed(me.client)
        scale = 10.0 ** (me.client % 7)
        return DrawnReply(scale * torch.randn(len(self.model), generator=draws), torch.rand(2, generator=draws))
        yield


class Wide(Small):
    """Forty kilobytes of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 700), nn.ReLU(), nn.Linear(700, 8))


def test_ten_thousand_clients_are_a_few_sums_at_the_server(cluster):
    train = examples(24_000, seed=1)
    benchmark = Benchmark("many", Wide, everything_random().tasks, train, examples(60, seed=2))
    problem = Problem.divide(benchmark, partition(np.full(12_000, 2), len(train)))
    cohort = sample_cohort(0, 0, 12_000, 10_000, LOCAL)
    plain = Sequential(problem)
    call = Call(Drawn(initial_state(plain, Uniform(), 0).model), cohort)
    updates = 4 * plain.layout.d * len(cohort)
    expected = plain.ask(call)
    with Ray(problem, workers=2) as engine:
        few = call.of(cohort.clients[:100])
        assert torch.equal(engine.ask(few).means["update"], plain.ask(few).means["update"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = engine.ask(call)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert torch.equal(found.means["update"], expected.means["update"])
    assert torch.equal(found.stacks["number"], expected.stacks["number"])
    assert grown < updates / 8, f"{grown} bytes of {updates}"


def test_stacks_of_workers_have_the_bits_of_one_stack(cluster, monkeypatch):
    monkeypatch.setattr(parts_module.parts, "__defaults__", (2,))  # three parts
    problem, plan = everything_random(), Plan(rounds=2, participants=5, local=LOCAL)
    expected = list(simulate(Stacked(problem), METHOD, plan))
    with Ray(problem, workers=2, inner="stacked") as engine:
        assert_same(expected, list(simulate(engine, METHOD, plan)))


def test_a_run_on_the_cluster_is_interrupted_and_resumed_exactly(cluster, tmp_path):
    class Press(Observer):
        def round(self, round):
            if round.number == 2:
                os.kill(os.getpid(), signal.SIGINT)

    changes = ["federation.participants=2", "training.rounds=4", "training.local_steps=3", "training.momentum=0.0"]
    here = run(everything_random(), SCAFFOLD(), engine="sequential", override=changes)
    options = {"engine": "ray", "override": changes, "out": tmp_path / "there"}
    with pytest.raises(FedHVError, match="Stopped"):
        run(everything_random(), SCAFFOLD(), **options, observer=Press())
    there = run(everything_random(), SCAFFOLD(), **options, resume=True)
    assert there.machine["engine"] == "ray"
    assert all(torch.equal(value, there.state_dict[name]) for name, value in here.state_dict.items())


def test_an_error_in_a_worker_is_said_in_one_line(cluster):
    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs):
            if self.training:
                raise RuntimeError("no training today")
            return [self.layer(inputs)]

    client = (np.zeros((4, 2), np.float32), [np.zeros(4, np.int64)])
    problem = Problem.from_clients(Fragile, [classification("only", 2)], [client], client)
    with Ray(problem, workers=1) as engine, pytest.raises(RuntimeError, match=r"Clients 0 to 0: .*no training today"):
        next(simulate(engine, Uniform(), Plan(1, 1, LOCAL)))
    with pytest.raises(InputError, match=r"The Ray cluster should have a GPU.*Found none"):
        check_room("GPU")
    with pytest.raises(InputError, match=r"should be picklable\. Found"):
        Ray(replace(problem, tasks=(replace(problem.tasks[0], score=Unsent()),)))


class Unsent:
    """A score that cannot be pickled."""

    def __call__(self, outputs, targets):
        return (outputs.argmax(dim=1) == targets).float()

    def __reduce__(self):
        raise TypeError("this one stays here")


# --- without a cluster --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 100])
@pytest.mark.parametrize("n", [1, 10, 100, 1_000, 100_000])
def test_a_cohort_is_divided_along_the_tree_of_sums(n, workers):
    division = Division.of(range(n), workers)
    assert [k for part in division.clients for k in part] == list(range(n))
    if division.level:
        assert {len(part) for part in division.clients[:-1]} == {SIZES[division.level]}
        assert len(division.clients) >= TASKS_PER_WORKER * workers
    else:
        assert len(division.clients) >= min(n, TASKS_PER_WORKER * workers)
        assert n <= SIZES[1] * TASKS_PER_WORKER * workers


def test_without_ray_or_a_cluster_one_line_says_so(setting_file, tmp_path, monkeypatch, command):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    outcome = command("run", setting_file, "--engine", "ray", "--out", tmp_path / "r")
    assert "There is no Ray cluster at 127.0.0.1:9 (RAY_ADDRESS)" in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = command("run", setting_file, "--engine", "ray", "--out", tmp_path / "r")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--engine ray needs Ray, which is not installed: pip install 'fedhv[ray]'" in outcome.err
    assert not (tmp_path / "r").exists()


def test_runs_on_a_cluster_and_rounds_on_a_cluster_are_not_mixed(setting_file, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match="Found both; use one"):
        compare(str(setting_file), ["uniform"], [0], out=tmp_path / "s", executor="ray", engine="ray")
    assert choose_engine("ray", "cpu").engine == "ray"
