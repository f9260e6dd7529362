"""What clients do wrong, and what becomes of the round."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from problems import everything_random
from waiting import HANG

import fedhv
from fedhv import SCAFFOLD, FedCMOO, FedHV, LocalTraining, Uniform
from fedhv.flower import Patience, Strategy, client_app, mailbox
from fedhv.flower.engine import over_flower
from fedhv.flower.exchange import reason
from fedhv.flower.hello import HELLO
from fedhv.flower.server import serve
from fedhv.protocol.cohort import sample_cohort
from fedhv.protocol.screening import TooFewReplies
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import Plan, initial_state, rounds, simulate_together
from fedhv.support.errors import FedHVError, InputError
from flower.local_grid import SWALLOWED, LocalGrid

PATIENCE = Patience(reply=0.3, nodes=0.3, again=1e-6)
OVERRIDE = [
    "training.rounds=2",
    "training.batch_size=8",
    "training.local_steps=2",
    "federation.participants=5",
    "evaluation.every=0",
]
FEDHV = FedHV(reference=(3.0, 3.0))


@pytest.fixture
def grid():
    problem = everything_random()
    made = LocalGrid(client_app(lambda context: problem, device="cpu"), {k + 1: k for k in range(5)})
    made.problem = problem
    return made


def changed(grid, change):
    """A reply in which something was changed on the way."""

    def trouble(message, k):
        if k != 2 or message.metadata.message_type == HELLO:
            return None
        reply = grid.app(message, grid.nodes[3])
        change(reply.content)
        return reply

    return trouble


def array(values):
    return ArrayRecord({"model": Array(np.asarray(values, dtype=np.float32))})


def set_report(values):
    def change(content):
        content["metrics"] = MetricRecord({"report": values})

    return change


def set_arrays(record):
    def change(content):
        content["arrays"] = record

    return change


def fill(value):
    def change(content):
        content["arrays"] = array(np.full(content.array_records["arrays"]["model"].shape, value))

    return change


CHANGES = {
    "NaN in the model": (fill(np.nan), "not finite"),
    "infinity in the model": (fill(np.inf), "not finite"),
    "a wrong shape": (set_arrays(array([1.0, 2.0])), "of shape (2,) instead of"),
    "no model": (set_arrays(ArrayRecord({})), "no array 'model'"),
    "a NaN report": (set_report([1.0, float("nan")]), "not finite"),
    "a negative loss": (set_report([1.0, -0.5]), "a negative loss"),
    "a wrong count": (set_report([1.0, 1.0, 1.0]), "3 numbers instead of 2"),
    "no report": (lambda content: content.pop("metrics"), "no metrics"),
    "an empty report": (lambda content: content["metrics"].pop("report"), "no report"),
    "a lie about the shape": (
        lambda content: content["arrays"]["model"].__dict__.update(data=Array(np.zeros(3, np.float32)).data),
        "of shape (3,)",
    ),
    "bytes that are no array": (
        lambda content: content["arrays"]["model"].__dict__.update(data=b"\x00" * 100),
        "cannot be read",
    ),
    "bytes that begin as an archive": (
        lambda content: content["arrays"]["model"].__dict__.update(data=b"PK\x03\x04" + b"x" * 50),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_a_bad_reply_is_left_out_and_recorded(what, through, grid, tmp_path):
    change, reason = CHANGES[what]
    grid.trouble = changed(grid, change)
    history = play(through, grid, tmp_path)
    assert [len(record["refused"]) for record in history] == [1, 1]
    assert all(record["refused"][0]["client"] == 2 for record in history)
    assert reason in history[0]["refused"][0]["reason"]
    assert all(np.isfinite(record["report"]).all() for record in history)


def play(through, grid, tmp_path, method=FEDHV, override=()):
    override = [*OVERRIDE, *override]
    if through == "server app":
        return serve(grid, grid.problem, method, out=tmp_path / "run", override=override, patience=PATIENCE).history
    strategy = Strategy(method, grid.problem, override=override, patience=PATIENCE, folder=tmp_path / "run")
    strategy.start(grid)
    return [played.as_dict() for played in strategy.execution.history.rounds]


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_simulated_faults_are_those_of_the_simulator(through, grid, tmp_path):
    rates = ["drop_out=0.1", "late=0.1", "crash=0.1", "non_finite=0.2"]
    override = [*(f"faults.{rate}" for rate in rates), "training.rounds=4"]
    there = play(through, grid, tmp_path, override=override)
    here = fedhv.run(grid.problem, FEDHV, override=[*OVERRIDE, *override], engine="sequential").history
    assert [record.get("refused") for record in there] == [record.get("refused") for record in here]
    assert len({refusal["reason"] for record in there for refusal in record.get("refused", ())}) > 2


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_an_attempt_with_too_few_replies_changes_nothing_that_nodes_keep(through, grid, tmp_path):
    """SCAFFOLD's control variates of such an attempt are not counted by the server either."""
    override = ["training.rounds=4", "federation.participants=3", "faults.late=0.4", "server.min_replies=2"]
    override = [*OVERRIDE, *override, "server.attempts=30", "evaluation.every=1"]
    there = play(through, grid, tmp_path, SCAFFOLD(), override)
    here = fedhv.run(grid.problem, SCAFFOLD(), override=override, engine="sequential").history
    assert any(record.get("attempts", 1) > 1 for record in here)
    losses = [[record["evaluation"]["mean_loss"] for record in run] for run in (there, here)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_a_client_that_raises_is_left_out_with_its_own_words(through, grid, tmp_path):
    grid.trouble = lambda message, k: (
        ValueError("no disk") if k == 1 and message.metadata.message_type == "train" else None
    )
    history = play(through, grid, tmp_path)
    assert history[0]["refused"] == [{"client": 1, "reason": "its app raised: no disk"}]


@pytest.mark.parametrize(
    ("error", "words"), [(KeyError("data"), "KeyError 'data'"), (AssertionError(), "AssertionError")]
)
def test_an_error_without_a_sentence_has_its_kind(error, words, grid):
    grid.trouble = lambda message, k: error if k == 2 else None
    reply = next(iter(grid.send_and_receive([Message(RecordDict(), 3, HELLO)])))
    assert reason(reply) == f"its app raised: {words}"


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_a_client_that_hangs_is_waited_for_once_and_is_back_when_it_answers(through, grid, tmp_path):
    """Client 4 swallows everything from its first training message on, until round 3 begins."""
    hung = []

    def trouble(message, k):
        is_hello = message.metadata.message_type == HELLO
        if k != 4 or train_messages(grid, 3) or (is_hello and not hung):
            return None
        hung.append(message)
        return SWALLOWED

    grid.trouble = trouble
    history = play(through, grid, tmp_path, override=["training.rounds=5"])
    assert history[0]["refused"] == [{"client": 4, "reason": "no reply within 0.3 s"}]
    assert all("refused" not in record for record in history[1:])
    assert len([m for m in hung if m.metadata.message_type == "train"]) == 1, "it was waited for again"
    asked = [sorted(m.metadata.dst_node_id for m in train_messages(grid, t)) for t in range(1, 6)]
    assert asked[0] == [1, 2, 3, 4, 5]
    assert asked[1] == [1, 2, 3, 4]
    assert asked[4] == [1, 2, 3, 4, 5], "it answered a hello message and should be back"


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_a_reply_that_cannot_be_read_holds_up_nobody(through, grid, tmp_path, monkeypatch, clock):
    """Its node died while uploading: Flower waits for the rest, for minutes."""
    monkeypatch.setattr(mailbox, "STUCK", 0.05)
    forever, stuck, pull = threading.Event(), [], grid.pull_messages

    def pull_messages(identifiers):
        (identifier,) = identifiers
        message = next(m for m in grid.sent if m.metadata.message_id == identifier)
        if message.metadata.message_type == "train" and message.metadata.dst_node_id == 2:
            stuck.append(identifier)
            clock.stuck += 1
            forever.wait(HANG)
        return pull(identifiers)

    grid.pull_messages = pull_messages
    history = play(through, grid, tmp_path)
    assert history[0]["refused"] == [{"client": 1, "reason": "no reply within 0.3 s"}]
    assert len(stuck) == 1
    forever.set()


@pytest.mark.parametrize("through", ["server app", "strategy"])
@pytest.mark.parametrize("node", [1, 3, 5])
def test_a_reply_that_cannot_be_unpacked_is_its_own_nodes_matter(node, through, grid, tmp_path):
    """Flower confirms a reply before it unpacks it: what cannot be unpacked raises, and does not come again."""
    pull = grid.pull_messages

    def pull_messages(identifiers):
        found = pull(identifiers)
        if any(m.metadata.message_type == "train" and m.metadata.src_node_id == node for m in found):
            raise ValueError("cannot inflate")
        return found

    grid.pull_messages = pull_messages
    history = play(through, grid, tmp_path)
    refusal = {"client": node - 1, "reason": "its reply is not available: cannot inflate"}
    assert history[0]["refused"] == [refusal]
    assert history[1].get("refused", [refusal]) == [refusal], "it may not have answered the new hello message yet"


def test_a_node_whose_replies_cannot_be_unpacked_is_not_asked_again_at_once(grid, tmp_path):
    """In round 5 the seed would draw it three times."""
    pull = grid.pull_messages

    def pull_messages(identifiers):
        found = pull(identifiers)
        if any(m.metadata.message_type == "train" and m.metadata.src_node_id == 3 for m in found):
            raise ValueError("cannot inflate")
        return found

    grid.pull_messages = pull_messages
    history = play("server app", grid, tmp_path, override=["federation.participants=1", "training.rounds=12"])
    assert len(history) == 12


def test_a_superlink_that_never_answers_is_named_and_one_that_hesitates_is_not(grid, tmp_path):
    pull, fails = grid.pull_messages, []

    def pull_messages(identifiers):
        (identifier,) = identifiers
        message = next(m for m in grid.sent if m.metadata.message_id == identifier)
        if message.metadata.message_type == "train" and fails and fails.pop():
            raise ConnectionError("refused")
        return pull(identifiers)

    grid.pull_messages = pull_messages
    fails += [True, True, True]  # then everything comes through
    assert all("refused" not in record for record in play("server app", grid, tmp_path / "hesitates"))
    fails += [True] * 10_000
    with pytest.raises(FedHVError, match="The SuperLink does not answer: refused"):
        play("server app", grid, tmp_path / "never")


def test_what_a_node_says_cannot_move_a_cursor(grid, tmp_path):
    said = "no \x1b[2J\x1b]0;title\x07\n\x9b31mdisk"
    grid.trouble = lambda message, k: ValueError(said) if k == 1 and message.metadata.message_type == "train" else None
    (refusal,) = play("server app", grid, tmp_path)[0]["refused"]
    assert refusal["reason"].isprintable()
    assert refusal["reason"].startswith("its app raised: no ")


def test_of_two_nodes_with_one_partition_the_first_stays_and_the_other_follows_it():
    problem = everything_random()
    grid = LocalGrid(client_app(lambda context: problem, device="cpu"), {1: 0, 2: 1})
    said = []
    with over_flower(grid, PATIENCE, tell=said.append).make(problem) as engine:
        nodes = engine.nodes
        nodes.gather(2)
        twin = Context(0, 99, {"partition-id": 1}, RecordDict(), {})
        grid.nodes[99] = twin
        for _ in range(5):
            nodes.refresh(0.05)
        assert nodes.members == {0: 1, 1: 2}
        assert said == ["Node 99 does not participate: node 2 has its partition, 1, already."]
        del grid.nodes[2]  # it was the process of a node that has been started again
        nodes.gather(2)
        assert nodes.members == {0: 1, 1: 99}
        grid.nodes[2] = Context(0, 2, {"partition-id": 1}, RecordDict(), {})
        grid.trouble = lambda message, k: SWALLOWED if message.metadata.dst_node_id == 99 else None
        nodes.missed(1)
        nodes.gather(2)
        assert nodes.members == {0: 1, 1: 2}, "who misses a deadline makes place"


def test_who_is_not_there_is_not_counted_as_asked(grid):
    """Two runs are played in step; client 4 hangs when the first asks, and is gone when the second does."""
    grid.trouble = lambda message, k: SWALLOWED if k == 4 and message.metadata.message_type == "train" else None
    plan = Plan(1, 5, LocalTraining(2, 8))
    with over_flower(grid, PATIENCE).make(grid.problem) as engine:
        runs = [
            rounds(engine.layout, engine.population, Uniform(), plan, initial_state(engine, Uniform(), seed))
            for seed in (0, 1)
        ]
        first, second = (finished for _, finished in simulate_together(engine, runs))
    assert [refusal.reason for refusal in second.refused] == ["its node is not available"]
    assert second.traffic.down * 5 == first.traffic.down * 4
    assert second.traffic.up == first.traffic.up > 0


def train_messages(grid, round):
    return [m for m in grid.sent if m.metadata.message_type == "train" and m.metadata.group_id == str(round)]


def test_cohorts_are_drawn_over_the_nodes_that_are_there_in_the_order_of_their_partitions():
    local = LocalTraining()
    for t in range(20):
        places = sample_cohort(5, t, 10, 4, local).clients
        assert sample_cohort(5, t, list(range(10)), 4, local).clients == places
        assert sample_cohort(5, t, list(range(100, 110)), 4, local).clients == [100 + place for place in places]
    assert sample_cohort(5, 0, [3, 8], 4, local).clients == [3, 8]


def test_nodes_may_leave_and_join_between_rounds(grid, tmp_path):
    gone = grid.nodes.pop(1)
    came = []

    def trouble(message, k):
        if message.metadata.group_id == "3" and not came:
            came.append(grid.nodes.setdefault(77, gone))  # back under another node id
            del grid.nodes[5]
        return

    grid.trouble = trouble
    history = play("server app", grid, tmp_path, override=["training.rounds=5"])
    asked = [{m.metadata.dst_node_id for m in train_messages(grid, t)} for t in range(1, 6)]
    assert asked[0] == {2, 3, 4, 5}
    assert asked[4] == {2, 3, 4, 77}
    lost = [refusal for record in history for refusal in record.get("refused", [])]
    assert lost in ([], [{"client": 4, "reason": "the node has left or misses heartbeats"}])


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_an_error_of_the_superlink_is_no_answer_of_the_node(through, grid, tmp_path):
    """The node does not count as one that answered, and is asked again once it has answered a hello message."""
    long = "Error: Message Unavailable - The requested message could not be found in the database. It may have expired."

    def trouble(message, k):
        if k == 2 and message.metadata.message_type == "train" and message.metadata.group_id == "1":
            return Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, long), reply_to=message)
        return None

    grid.trouble = trouble
    first, second = play(through, grid, tmp_path)
    assert first["refused"] == [{"client": 2, "reason": "its message has expired"}]
    assert [node["client"] for node in first["nodes"]] == [0, 1, 3, 4]
    hellos = [each for each in grid.sent if each.metadata.message_type == HELLO and each.metadata.dst_node_id == 3]
    assert len(hellos) == 2
    assert "refused" not in second


def test_too_few_replies_keep_the_state_and_repeat_the_round(grid, tmp_path):
    failed = []

    def trouble(message, k):
        if message.metadata.message_type == "train" and message.metadata.group_id == "2" and len(failed) < 3:
            failed.append(k)
            return RuntimeError("not now")
        return None

    grid.trouble = trouble
    history = play("server app", grid, tmp_path, override=["server.min_replies=3"])
    assert [record.get("attempts", 1) for record in history] == [1, 2]
    assert len(history[1]["refused"]) == 3
    steady = play("server app", LocalGridLike(grid), tmp_path / "steady", override=["server.min_replies=3"])
    assert history[0]["report"] == pytest.approx(steady[0]["report"])
    # Round 2 was asked twice from the same state, so its reports are those of a run in which nothing went wrong.
    assert history[1]["report"] == pytest.approx(steady[1]["report"])


def LocalGridLike(grid):
    same = LocalGrid(grid.app, {node: context.node_config["partition-id"] for node, context in grid.nodes.items()})
    same.problem = grid.problem
    return same


@pytest.mark.parametrize("through", ["server app", "strategy"])
def test_a_round_is_repeated_a_bounded_number_of_times(through, grid, tmp_path):
    asked = []

    def trouble(message, k):
        if message.metadata.message_type == "train":
            asked.append(k)
            return RuntimeError("never")
        return None

    grid.trouble = trouble
    with pytest.raises(FedHVError, match="after 2 attempts"):
        play(through, grid, tmp_path, override=["server.attempts=2"])
    assert len(asked) == 10


def test_waiting_for_nodes_is_bounded_and_says_why_they_are_not_there(grid, tmp_path):
    grid.trouble = lambda message, k: ValueError("the disk is full")
    with pytest.raises(FedHVError, match=r"Found 0 of 5 after 0\.3 s.* its app raised: the disk is full"):
        play("server app", grid, tmp_path, override=["server.attempts=1"])


def test_the_server_waits_once_for_its_first_nodes(clock):
    problem, said = everything_random(), []
    empty = LocalGrid(client_app(lambda context: problem, device="cpu"), {})
    with over_flower(empty, Patience(reply=1, nodes=20), tell=said.append).make(problem) as engine:
        with pytest.raises(TooFewReplies, match=r"needs 1 node\. Found 0 of 5 after 20 s\. Start SuperNodes"):
            engine.present()
        assert 20 < clock.monotonic() < 21
        (notice,) = said
        assert notice.startswith("0 of 5 nodes are available; waiting for 5, at most ")
        with pytest.raises(TooFewReplies, match="needs 1 node"):
            engine.present()
        assert 40 < clock.monotonic() < 41
        assert said[1].startswith("0 of 5 nodes are available; waiting for 1, at most ")


def test_who_does_not_participate_is_named_while_the_server_waits(grid):
    grid.trouble = lambda message, k: ValueError("The disk is full. Clear it.") if k == 3 else None
    said, sent = [], []

    def tell(text):
        said.append(text)
        sent.append(len([m for m in grid.sent if m.metadata.message_type != HELLO]))

    watching = Observer()
    watching.message = tell
    serve(grid, grid.problem, FEDHV, override=OVERRIDE, patience=PATIENCE, observer=watching)
    note = "Node 4 does not participate: its app raised: The disk is full. Clear it."
    assert sent[said.index(note)] == 0


def test_another_version_is_refused_and_both_are_named(grid, tmp_path, monkeypatch):
    def trouble(message, k):
        if message.metadata.message_type == HELLO and k == 3:
            reply = grid.app(message, grid.nodes[4])
            reply.content["config"]["fedhv"] = "0.0.7"
            return reply
        return None

    grid.trouble = trouble
    said = []
    from fedhv.simulation.observer import Observer

    class Ear(Observer):
        def message(self, text):
            said.append(text)

    serve(grid, grid.problem, FEDHV, override=OVERRIDE, patience=PATIENCE, observer=Ear())
    import fedhv

    assert any(f"fedhv {fedhv.__version__} " in text and "fedhv 0.0.7" in text for text in said)
    assert all(m.metadata.dst_node_id != 4 for m in grid.sent if m.metadata.message_type == "train")


def test_a_node_refuses_a_server_of_another_version(grid):
    strategy = Strategy(FEDHV, grid.problem, override=OVERRIDE, patience=PATIENCE)
    (message, *_) = strategy.configure_train(1, strategy.initial_arrays(), ConfigRecord(), grid)
    message.content["config"]["protocol"] = 99
    with pytest.raises(FedHVError, match=r"protocol 3.* here, .*protocol 99.* on the server"):
        grid.app(message, grid.nodes[message.metadata.dst_node_id])


def asked(message):
    """Which request a message holds; None for a hello message."""
    return message.content["config"].get("ask")


EXCHANGES = ["task_gradients", "gram_terms", "continue_training"]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_client_that_fails_in_one_exchange_takes_no_part_in_the_rest_of_the_round(exchange, grid, tmp_path):
    def trouble(message, k):
        return RuntimeError("lost") if k == 0 and asked(message) == exchange else None

    grid.trouble = trouble
    history = play("strategy", grid, tmp_path, FedCMOO())
    assert [[refusal["client"] for refusal in record["refused"]] for record in history] == [[0], [0]]
    for later in EXCHANGES[EXCHANGES.index(exchange) + 1 :]:
        assert [m for m in grid.sent if asked(m) == later]
        assert not [m for m in grid.sent if asked(m) == later and m.metadata.dst_node_id == 1]


def in_place_of(grid, kind, arrays):
    """Node 3's answers to one kind of request, with these values in place of its arrays."""

    def trouble(message, k):
        if k != 2 or asked(message) != kind:
            return None
        reply = grid.app(message, grid.nodes[3])
        for name, values in arrays.items():
            shape = reply.content["arrays"][name].shape
            reply.content["arrays"][name] = Array(np.broadcast_to(np.float32(values), shape).copy())
        return reply

    return trouble


def test_factors_that_are_finite_and_whose_product_is_not_cost_their_client_alone(grid, tmp_path):
    grid.trouble = in_place_of(grid, "task_gradients", {"left": 3e38, "right": 3e38})
    history = play("server app", grid, tmp_path, FedCMOO())
    assert [[refusal["client"] for refusal in record["refused"]] for record in history] == [[2], [2]]


def test_gram_terms_that_lead_nowhere_end_no_run(grid, tmp_path):
    grid.trouble = in_place_of(grid, "gram_terms", {"known": [[1, 3e37], [-3e37, 1]]})
    history = play("server app", grid, tmp_path, FedCMOO())
    assert [(record["weights"], record["weights_kept"]) for record in history] == [([0.5, 0.5], True)] * 2
    grid.trouble = in_place_of(grid, "gram_terms", {"residual": [[1, 3e37], [-3e37, 1]]})
    history = play("server app", grid, tmp_path / "other", FedCMOO())
    assert [[refusal["client"] for refusal in record["refused"]] for record in history] == [[2], [2]]


def test_a_node_that_lost_its_gradients_says_so(grid, tmp_path):
    def trouble(message, k):
        if k == 0 and asked(message) == "gram_terms":
            grid.nodes[1].state.clear()  # as after a restart of its SuperNode
        return

    grid.trouble = trouble
    history = play("server app", grid, tmp_path, FedCMOO())
    assert "does not have the task gradients" in history[0]["refused"][0]["reason"]


@pytest.mark.parametrize(("method", "lost"), [(SCAFFOLD(local_lr=0.1), 1), (Uniform(), 0)])
def test_a_run_that_continues_says_what_its_nodes_have_lost(method, lost, grid, tmp_path):
    """Flower keeps a node's state until a run ends, and the server's checkpoint does not have it."""
    said = []

    class Messages(Observer):
        def message(self, text):
            said.append(text)

    def part(rounds):
        strategy = Strategy(
            method, grid.problem, override=OVERRIDE, patience=PATIENCE, folder=tmp_path / "run", observer=Messages()
        )
        strategy.start(grid, num_rounds=rounds)

    part(1)
    assert not [text for text in said if "begin without it" in text], "nothing is lost at the start of a run"
    part(1)
    assert len([text for text in said if "From round 2 on they begin without it" in text]) == lost


def test_what_a_node_keeps_is_gone_after_the_round(grid, tmp_path):
    play("server app", grid, tmp_path, FedCMOO())
    assert all(len(context.state) == 0 for context in grid.nodes.values())


def test_a_node_without_a_partition_is_told_what_to_do(grid):
    del grid.nodes[1].node_config["partition-id"]
    from fedhv.flower.client import partition_of

    with pytest.raises(InputError, match="--node-config"):
        partition_of(grid.nodes[1])


def test_a_strategy_needs_the_reference():
    with pytest.raises(InputError, match="needs a reference"):
        Strategy(FedHV(), everything_random())
