"""The ClientApp: decodes a message, computes the reply with the package's client, and sends it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor

from fedhv.engines import choose_device
from fedhv.flower.hello import HELLO, HelloReply, check_version, hello_reply
from fedhv.flower.kept import load_memory, save_memory
from fedhv.flower.limits import bounded
from fedhv.flower.node import Node, refuse_initial_scale
from fedhv.flower.policy import Policy
from fedhv.flower.records import CONFIG, Malformed
from fedhv.flower.wire import EXCHANGE, TRAIN, answering, decode_cohort, decode_request, encode_reply, expects_counts
from fedhv.problem.initial import initial_model
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.client import Client
from fedhv.protocol.exchange import Call
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.scales import loss_units
from fedhv.protocol.travelling import arriving, leaving
from fedhv.support.errors import FedHVError, InputError

Load = Callable[[Context], Node | Problem]
"""Returns the `Node` of a context, or a whole problem, of which the node uses its own part."""


def client_app(
    load: Load,
    *,
    device: str = "auto",
    mods: Sequence[Mod] = (),
    reports: ReportPrivacy | Callable[[Context], ReportPrivacy | None] | None = None,
) -> ClientApp:
    """A Flower ClientApp for FedHV and its baselines.

    Args:
        load: Called with the node's context; returns its model, tasks and examples.
        device: "auto", "cpu" or "cuda"; the app's run configuration may have a `device` too, which overrides it.
        mods: Flower's modifiers for training messages, such as those of differential privacy. They process every
            training message; a message that they cannot process is refused.
        reports: Clipping and noise of the reported losses. A policy file, named `policy` in the node's own
            configuration, replaces it and applies to all requests of a server.
    """
    app = ClientApp()
    clients: dict[tuple[object, ...], Client] = {}

    def client_of(context: Context, k: int) -> Client:
        # A process may handle one message (SuperNodes) or many (the simulation). Each process loads once.
        key = (k, *sorted(context.run_config.items()), *sorted(context.node_config.items()))
        if key not in clients:
            has = load(context)
            if not isinstance(has, Node | Problem):
                raise InputError(f"The node's `load` should return a Node or a Problem. Found {type(has).__name__}.")
            problem = has.problem() if isinstance(has, Node) else has
            refuse_initial_scale(None, problem.tasks)
            if isinstance(has, Problem) and not 0 <= k < len(problem.clients):
                raise InputError(f"partition-id should be from 0 to {len(problem.clients) - 1}. Found {k}.")
            where = context.run_config.get("device", device)
            clients[key] = Client(problem, choose_device(str(where)))
        return clients[key]

    def protects(context: Context) -> bool:
        return policy_of(context) is not None or (reports(context) if callable(reports) else reports) is not None

    def worded(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """A modifier that keeps the text of an error on a node with protected replies: it may have examples in it."""
        try:
            return call_next(message, context)
        except FedHVError:
            raise
        except Exception as error:
            if not protects(context):
                raise
            raise FedHVError(
                f"{type(error).__name__}; its text stays on this node, whose replies are protected. See the node's log"
            ) from error

    def answer_hello(message: Message, context: Context) -> Message:
        k = partition_of(context)
        client = client_of(context, k)
        names = [task.name for task in client.problem.tasks]
        holding = client.holding(k)
        if protects(context):
            holding = holding.bare()  # the numbers of labels reveal something about the examples
        who = HelloReply(k, holding, str(context.node_config.get("name", "")))
        return Message(hello_reply(who, client.layout, names, loss_units(client.problem)), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        try:
            check_version(message.content, "the server")
            k = partition_of(context)
            client = client_of(context, k)
            cohort = decode_cohort(message.content, k)
            client.layout = replace(client.layout, partial=expects_counts(message.content))
            memory = load_memory(context.state, message.content, cohort, client.device)
            found = decode_request(message.content, client.layout.travelling, memory, client.device)
        except Malformed as problem:
            raise FedHVError(f"this node refuses the message: {problem}") from None
        request = arriving(found, client.layout, initial_layers(client, cohort.seed))
        call = Call(request, cohort)
        call.memories[k], layout = memory, client.layout
        if (rules := policy_of(context)) is not None:
            reply = rules.answer(request, cohort, lambda: client.answer(call, k))
        else:
            reply = client.answer(call, k)
            rule = reports(context) if callable(reports) else reports
            if rule is not None:
                # Not from the run's seed: the server knows it and could remove the noise.
                reply = rule.protect(reply, np.random.default_rng())
        if request.trains:
            memory.round.clear()  # the round ends with training
        save_memory(context.state, message.content, cohort, memory)
        content = encode_reply(leaving(request, layout), leaving(reply, layout), layout.travelling)
        content[CONFIG] = answering(message.content)
        return Message(content, reply_to=message)

    app.query(HELLO.split(".")[1], mods=[bounded, worded])(answer_hello)  # it loads the data, which may hang
    for kind in (TRAIN, EXCHANGE):
        _, _, action = kind.partition(".")
        app.train(action or "default", mods=[bounded, worded, *([_addressed, *mods] if mods else [])])(answer)
    app.evaluate(mods=[bounded, worded])(answer)
    return app


def _addressed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Correct the address of a mod's refusal: some of Flower's mods send it as a reply to the reply."""
    reply = call_next(message, context)
    if reply.has_error() and reply.metadata.reply_to_message_id != message.metadata.message_id:
        return Message(reply.error, reply_to=message)
    return reply


def initial_layers(client: Client, seed: int) -> Tensor | None:
    """The initial model of a run with this seed, if a node needs parts of it that are not sent."""
    if not client.layout.resident:
        return None
    problem = client.problem
    return initial_model(problem.model, torch_seed(seed, Purpose.MODEL), problem.norm)


def policy_of(context: Context) -> Policy | None:
    """The policy of the node's operator, if its configuration names a policy file."""
    path = context.node_config.get("policy")
    return None if not path else Policy.read(str(path))


def partition_of(context: Context) -> int:
    """The partition of a node."""
    k = context.node_config.get("partition-id")
    if isinstance(k, bool) or not isinstance(k, int):
        raise InputError(
            "A node should have a partition. Start its SuperNode with "
            f'--node-config "partition-id=0" (and so on). Found partition-id = {k!r}.'
        )
    return k
