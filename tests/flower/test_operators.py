"""What an operator needs: evaluation at the nodes, who took part, quorums, and nodes that are broken or hostile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from mixed import mixed
from observers import Watch
from problems import TASKS, Small, everything_random

import fedhv
from fedhv import FedCMOO, FedHV, Uniform
from fedhv.flower import Node, Patience, Server, Strategy, client_app
from fedhv.flower.hello import HELLO
from fedhv.flower.roster_file import read_owners, write_owners
from fedhv.flower.server import serve
from fedhv.problem.holdout import with_validation
from fedhv.support.errors import FedHVError, InputError
from flower.local_grid import SWALLOWED, LocalGrid

PATIENCE = Patience(reply=0.3, nodes=0.3, again=1e-6)
OVERRIDE = [
    "training.rounds=2",
    "training.batch_size=8",
    "training.local_steps=2",
    "federation.participants=5",
]
FEDHV = FedHV(reference=(9.0, 9.0))


def grid_of(problem, app=None) -> LocalGrid:
    made = LocalGrid(app or client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)})
    made.problem = problem
    return made


@pytest.fixture
def grid():
    return grid_of(everything_random())


def play(through, grid, override=(), problem=None, method=FEDHV, **options):
    what, override = problem or grid.problem, [*OVERRIDE, *override]
    if through == "server app":
        what = what.problem() if isinstance(what, Server) else what
        return serve(grid, what, method, override=override, patience=PATIENCE, **options).history
    strategy = Strategy(method, what, override=override, patience=PATIENCE, **options)
    strategy.start(grid)
    return [played.as_dict() for played in strategy.execution.history.rounds]


BOTH = pytest.mark.parametrize("through", ["server app", "strategy"])

# --- evaluation at the nodes ------------------------------------------------------------------------------


@BOTH
def test_nodes_evaluate_as_the_simulators_clients_do(through):
    problem = with_validation(everything_random(), 0.25, seed=1)
    there = play(through, grid_of(problem))[-1]["validation"]
    here = fedhv.run(problem, FEDHV, override=OVERRIDE, engine="sequential").history[-1]["validation"]
    assert there["clients"]["labels"] == here["clients"]["labels"]
    assert np.array(there["clients"]["loss"]) == pytest.approx(np.array(here["clients"]["loss"]), rel=1e-3)
    assert there["mean_loss"] == pytest.approx(here["mean_loss"], rel=1e-3)


@BOTH
def test_a_server_without_test_examples_lets_its_nodes_evaluate(through):
    problem = everything_random()

    def load(context):
        own = problem.train[torch.from_numpy(problem.clients[context.node_config["partition-id"]])]
        return Node(problem.model, problem.tasks, (own.inputs, own.targets), validation=0.3)

    server = Server(problem.model, problem.tasks, test=None, nodes=5)
    nodes = grid_of(problem, client_app(load, device="cpu"))
    record = play(through, nodes, problem=server)[-1]
    assert record["evaluation"]["mean_loss"] == record["validation"]["mean_loss"]
    expected = [max(1, round(0.3 * n)) for n in problem.clients.sizes]
    assert [labels[0] for labels in record["validation"]["clients"]["labels"]] == expected


@BOTH
def test_nodes_that_hold_out_nothing_are_told_of_at_the_first_evaluation(through):
    problem = everything_random()

    def load(context):
        own = problem.train[torch.from_numpy(problem.clients[context.node_config["partition-id"]])]
        return Node(problem.model, problem.tasks, (own.inputs, own.targets))

    def evaluate(test, watch):
        server = Server(problem.model, problem.tasks, test=test, nodes=5, validation=True)
        nodes = grid_of(problem, client_app(load, device="cpu"))
        return play(through, nodes, ["evaluation.every=1"], problem=server, observer=watch)

    tested, untested = Watch(), Watch()
    records = evaluate((problem.test.inputs, problem.test.targets), tested)
    assert records[-1]["validation"]["over_clients"] == []
    with pytest.raises(FedHVError, match="hold out examples of every task"):  # at the end of the run
        evaluate(None, untested)
    first = "None of the 5 nodes that evaluated the model of round 1 holds out examples"
    for watch in (tested, untested):
        assert [text.startswith(first) for text in watch.said if "holds out" in text] == [True]


@BOTH
def test_nodes_choose_the_best_model_by_their_metrics_as_the_simulator_does(through, tmp_path):
    problem = with_validation(mixed(), 0.3, seed=1)
    method, changes = Uniform(local_lr=1.0), ["training.rounds=6", "federation.participants=4", "evaluation.keep=best"]
    nodes = LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(4)})
    nodes.problem = problem
    there = play(
        through, nodes, changes, method=method, **{"out" if through == "server app" else "folder": tmp_path / "there"}
    )
    here = fedhv.run(problem, method, override=[*OVERRIDE, *changes], engine="sequential")
    assert here.selection.round < 6
    assert fedhv.read_run(tmp_path / "there").selection.round == here.selection.round
    kind, stay = there[-1]["validation"]["tasks"]
    assert kind["metrics"]["roc_auc"] == pytest.approx(here.rounds[-1].evaluation.tasks[0].metrics["roc_auc"], rel=1e-2)
    assert stay["metrics"]["rmse"] == pytest.approx(here.rounds[-1].evaluation.tasks[1].metrics["rmse"], rel=1e-2)


def test_a_strategy_says_that_it_cannot_stop_early():
    with pytest.raises(InputError, match=r"`evaluation\.patience` has no effect in a strategy"):
        Strategy(FEDHV, with_validation(everything_random(), 0.25, seed=1), override=["evaluation.patience=2"])


@BOTH
def test_nodes_hold_out_what_they_say_themselves(through, grid):
    problem = everything_random()
    test = (problem.test.inputs, problem.test.targets)
    with pytest.raises(InputError, match=r"`federation\.validation` has no effect on them\. Leave it out, and give"):
        play(through, grid, ["federation.validation=0.2", "evaluation.keep=best"])
    for given in (test, None):
        server = Server(problem.model, problem.tasks, given, nodes=5, validation=True)
        with pytest.raises(InputError, match="nodes hold out, which the server does not have"):
            play(through, grid, ["evaluation.on=validation"], problem=server)


def test_a_strategy_evaluates_on_held_out_examples_where_it_is_told_to():
    problem, changes = with_validation(everything_random(), 0.25, seed=1), [*OVERRIDE, "evaluation.on=validation"]
    there = play("strategy", grid_of(problem), changes)[-1]
    here = fedhv.run(problem, FEDHV, override=changes, engine="sequential").history[-1]
    assert there["evaluation"]["mean_loss"] == pytest.approx(here["evaluation"]["mean_loss"], rel=1e-3)
    assert "validation" not in there, "the server has these examples, and evaluates on them itself"


def test_no_example_is_in_the_text_of_a_node_or_a_server():
    x, y = np.full((2, 3), 8128.5, np.float32), [np.zeros(2, np.int64), np.full(2, 496.25, np.float32)]
    for part in (Node(Small, TASKS, (x, y), validation=(x, y)), Server(Small, TASKS, (x, y), nodes=3)):
        assert "Small" in repr(part)
        assert "8128.5" not in repr(part)
        assert "496.25" not in repr(part)


def test_a_node_may_hold_out_arrays_of_their_own():
    problem = everything_random()
    own, out = problem.train[:20], problem.train[20:26]
    node = Node(problem.model, problem.tasks, (own.inputs, own.targets), validation=(out.inputs, out.targets)).problem()
    assert (len(node.clients[3]), len(node.validation[3])) == (20, 6)
    assert torch.equal(node.train[torch.from_numpy(node.validation[0])].inputs, out.inputs)


def test_arrays_in_the_place_of_a_share_are_not_in_the_text_of_the_error():
    problem = everything_random()
    own = problem.train[:20]
    for share in (np.full((4, 3), 8128.5), torch.full((4, 3), 8128.5)):
        with pytest.raises(InputError, match=r"`validation` should be in \[0, 1\).* Found (ndarray|Tensor)\.$"):
            Node(problem.model, problem.tasks, (own.inputs, own.targets), validation=share).problem()


def test_a_node_with_other_units_of_losses_is_refused():
    """Its reports would be averaged with those of other units."""
    problem = everything_random()
    scaled = replace(problem, tasks=(replace(problem.tasks[0], scale=4.0), *problem.tasks[1:]))
    nodes = grid_of(problem, client_app(lambda context: scaled, device="cpu"))
    with pytest.raises(FedHVError, match=r"units of losses \(`scale`\) differ: None here, \[4\.0, 1\.0\] on the node"):
        play("server app", nodes, problem=problem)
    assert play("server app", nodes, problem=scaled)[0]["cohort"]["taken"] == [0, 1, 2, 3, 4]


def test_a_node_that_does_not_evaluate_is_named_and_the_others_count():
    problem = with_validation(everything_random(), 0.25, seed=1)
    nodes = grid_of(problem)
    nodes.trouble = lambda m, k: ValueError("no disk") if k == 3 and m.metadata.message_type == "evaluate" else None
    validation = play("server app", nodes)[-1]["validation"]
    assert validation["clients"]["client"] == [0, 1, 2, 4]
    assert validation["refused"] == [{"client": 3, "reason": "its app raised: no disk"}]


# --- who took part ----------------------------------------------------------------------------------------


def test_a_federation_stops_early_by_what_its_nodes_find_as_the_simulator_does(tmp_path):
    problem = with_validation(everything_random(), 0.25, seed=1)
    method, changes = Uniform(local_lr=3.0), ["training.rounds=12", "evaluation.patience=1"]
    there = play("server app", grid_of(problem), changes, method=method, out=tmp_path / "there")
    here = fedhv.run(problem, method, override=[*OVERRIDE, *changes], engine="sequential")
    assert len(there) == len(here.rounds) < 12
    assert fedhv.read_run(tmp_path / "there").summary.rounds == len(there)


@BOTH
def test_the_history_says_who_took_part(through, grid):
    for node, context in grid.nodes.items():
        context.node_config["name"] = f"site-{node}"
    grid.trouble = lambda m, k: ValueError("no disk") if k == 1 and m.metadata.message_type == "train" else None
    for record in play(through, grid):
        assert record["cohort"]["present"] == 5
        assert record["cohort"]["asked"] == [0, 1, 2, 3, 4]
        assert record["cohort"]["taken"] == [0, 2, 3, 4]
        assert len(record["cohort"]["norms"]) == 4
        about = {each["client"]: each for each in record["nodes"]}
        assert {k: each["name"] for k, each in about.items()} == {k: f"site-{k + 1}" for k in range(5)}
        assert all(about[k]["node"] == str(k + 1) and about[k]["seconds"] >= 0 for k in range(5))


# --- quorum -----------------------------------------------------------------------------------------------


@BOTH
def test_a_round_closes_after_its_quorum_and_the_grace_period(through, grid, clock):
    """Client 4 never answers; the deadline is far away."""
    grid.trouble = lambda m, k: SWALLOWED if k == 4 and m.metadata.message_type == "train" else None
    far = replace(PATIENCE, reply=1e6)
    override = [*OVERRIDE, "server.quorum=0.8", "server.grace=2"]
    if through == "server app":
        history = serve(grid, grid.problem, FEDHV, override=override, patience=far).history
    else:
        strategy = Strategy(FEDHV, grid.problem, override=override, patience=far)
        strategy.start(grid)
        history = [played.as_dict() for played in strategy.execution.history.rounds]
    assert history[0]["refused"] == [{"client": 4, "reason": "no reply within 2 s after the quorum of 4"}]
    assert clock.monotonic() < 1e4


def test_a_late_reply_is_never_taken_for_one_of_a_later_round(grid):
    """Client 4's answer to round 1 comes in round 2, beside everybody's answers to that one."""
    late, pull = [], grid.pull_messages

    def pull_messages(identifiers):
        found = list(pull(identifiers))
        for message in found:
            if message.metadata.message_type == "train" and message.metadata.group_id == "1":
                if message.metadata.src_node_id == 5:
                    late.append(message)
                    return []
            elif message.metadata.message_type == "train":
                return [*late, *found]
        return found

    grid.pull_messages = pull_messages
    history = play("server app", grid, ["training.rounds=3"])
    assert len(late) == 1
    assert history[0]["cohort"]["taken"] == [0, 1, 2, 3]
    never = grid_of(everything_random())
    never.trouble = lambda m, k: SWALLOWED if k == 4 and m.metadata.group_id == "1" else None
    for mine, other in zip(history, play("server app", never, ["training.rounds=3"]), strict=True):
        if mine["cohort"]["taken"] != other["cohort"]["taken"]:
            break  # when a node that missed a deadline is back depends on when it answers its hello
        assert mine["report"] == other["report"]


def test_a_node_that_keeps_missing_deadlines_is_asked_less_and_less_often(grid):
    """It answers hello messages and hangs in training."""
    grid.trouble = lambda m, k: SWALLOWED if k == 4 and m.metadata.message_type == "train" else None
    history = play("server app", grid, ["training.rounds=12"])
    asked = [record["round"] for record in history if 4 in record["cohort"]["asked"]]
    gaps = np.diff(asked)
    assert len(gaps) >= 2
    assert all(gap >= 2**i for i, gap in enumerate(gaps))


def test_a_quorum_counts_answers_not_errors(grid):
    grid.trouble = lambda m, k: ValueError("no disk") if k < 2 and m.metadata.message_type == "train" else None
    history = play("server app", grid, ["server.quorum=3", "server.grace=0"])
    assert history[0]["cohort"]["taken"] == [2, 3, 4]


# --- hostile nodes ----------------------------------------------------------------------------------------


def times(factor):
    def change(content, sent):
        model = torch.from_numpy(sent.array_records["arrays"]["model"].numpy().copy())
        reply = torch.from_numpy(content.array_records["arrays"]["model"].numpy().copy())
        content["arrays"] = ArrayRecord({"model": Array((model + factor * (reply - model)).numpy())})

    return change


def hostile(grid, change, who=2):
    def trouble(message, k):
        if k != who or message.metadata.message_type != "train":
            return None
        reply = grid.app(message, grid.nodes[who + 1])
        change(reply.content, message.content)
        return reply

    grid.trouble = trouble


@BOTH
def test_an_update_a_thousand_times_too_long_is_refused_by_default(through, grid):
    hostile(grid, times(1000.0))
    for record in play(through, grid):
        (refusal,) = record["refused"]
        assert refusal["client"] == 2
        assert "more than 10 times the cohort's median" in refusal["reason"]


def test_the_bound_can_be_turned_off(grid):
    hostile(grid, times(1000.0))
    assert (
        "refused"
        not in play("server app", grid, ["server.outlier=inf", "training.rounds=1", "evaluation.explosion=inf"])[0]
    )


def test_the_hardened_profile_is_one_word(grid, tmp_path):
    strategy = Strategy(FEDHV, grid.problem, override=[*OVERRIDE, "server.profile=hardened"], patience=PATIENCE)
    method, rules = strategy.job.method, strategy.job.setting.server
    assert (method.aggregate, method.trim, method.weight_cap) == ("trimmed", 0.2, 0.8)
    assert (rules.outlier, rules.report_outlier) == (10.0, 10.0)
    strategy._stack.close()
    own = Strategy(replace(FEDHV, aggregate="median"), grid.problem, override=["server.profile=hardened"])
    assert own.job.method.aggregate == "median", "what is set by hand stays"
    own._stack.close()
    plain = Strategy(FedCMOO(), grid.problem, override=[*OVERRIDE, "server.profile=hardened"])
    assert plain.job.method == FedCMOO()
    plain._stack.close()
    with pytest.raises(InputError, match=r"server\.profile"):
        Strategy(FEDHV, grid.problem, override=["server.profile=hard"])


def test_a_reply_of_an_earlier_round_that_is_sent_again_is_refused(grid):
    """Client 2 answers every round with its answer to the first."""
    first = []

    def replay(content, sent):
        first.append(RecordDict(dict(content)))
        for name in list(content):
            content[name] = first[0][name]

    hostile(grid, replay)
    one, two = play("server app", grid)
    assert "refused" not in one
    assert two["refused"] == [{"client": 2, "reason": "an answer to round 1 instead of 2"}]


def oversize(content, sent):
    content["arrays"]["model"].__dict__["data"] = b"\x93NUMPY" + b"0" * 10_000_000


def more_arrays(content, sent):
    content["more"] = ArrayRecord({"x": Array(np.zeros(10, np.float32))})


def long_settings(content, sent):
    content["note"] = ConfigRecord({"text": "x" * 1_000_000})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (oversize, "bytes instead of at most"),
        (more_arrays, "an unexpected array 'x' in 'more'"),
        (long_settings, "bytes of metrics and settings instead of at most"),
    ],
)
def test_a_reply_with_more_than_was_asked_for_is_refused_before_it_is_parsed(change, reason, grid):
    hostile(grid, change)
    assert reason in play("server app", grid)[0]["refused"][0]["reason"]


def test_a_partition_belongs_to_its_node_whoever_comes_first(tmp_path):
    """Node 1, which is sent a hello message first, claims partition 4 of node 9."""
    problem = everything_random()
    nodes = LocalGrid(client_app(lambda context: problem, device="cpu"), {1: 4, 2: 0, 3: 1, 4: 2, 5: 3, 9: 4})
    nodes.problem = problem
    owners = {0: 2, 1: 3, 2: 4, 3: 5, 4: 9}
    write_owners(tmp_path / "roster.toml", owners)
    assert read_owners(tmp_path / "roster.toml") == owners
    history = play("server app", nodes, owners=read_owners(tmp_path / "roster.toml"))
    assert [each["node"] for each in history[0]["nodes"]] == ["2", "3", "4", "5", "9"]
    strategy = Strategy(FEDHV, problem, override=OVERRIDE, patience=PATIENCE, owners=owners)
    strategy.start(nodes)
    assert {str(m.metadata.dst_node_id) for m in nodes.sent if m.metadata.message_type != HELLO} == {
        "2",
        "3",
        "4",
        "5",
        "9",
    }


@pytest.mark.parametrize("lines", [[], ["x = '1'"], ["0 = '1'", "1 = '1'"], ["0 = 'a'"]])
def test_a_roster_that_makes_no_sense_is_rejected(lines, tmp_path):
    (tmp_path / "roster.toml").write_text("\n".join(["[partitions]", *lines]))
    with pytest.raises(InputError, match=r"roster\.toml"):
        read_owners(tmp_path / "roster.toml")


# --- nodes that differ ------------------------------------------------------------------------------------


def test_local_epochs_and_averages_by_examples_are_the_simulators():
    problem = everything_random()
    assert len(set(problem.clients.sizes)) > 1
    override = ["training.local_epochs=2", "federation.average=examples"]
    strategy = Strategy(Uniform(), problem, override=[*OVERRIDE, *override], patience=PATIENCE)
    strategy.start(grid_of(problem))
    simulated = fedhv.run(problem, Uniform(), override=[*OVERRIDE, *override], engine="sequential")
    there = strategy.engine.client.network.state_dict(strategy.execution.state.model)
    for name, value in simulated.state_dict.items():
        torch.testing.assert_close(there[name], value, rtol=2e-5, atol=2e-6)
