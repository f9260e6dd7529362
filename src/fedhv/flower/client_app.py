"""The ClientApp: takes a message, lets the one definition of the client answer, and sends the answer back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor

from fedhv.engines import choose_device
from fedhv.engines.privacy import ReportPrivacy
from fedhv.flower.node import Node
from fedhv.flower.policy import Policy
from fedhv.flower.wire import (
    EXCHANGE,
    HELLO,
    TRAIN,
    Introduction,
    Malformed,
    check_language,
    decode_cohort,
    decode_request,
    encode_reply,
    expects_counts,
    introduction,
    load_memory,
    save_memory,
)
from fedhv.problem.parameters import initial_model
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose, torch_seed
from fedhv.protocol.client import Client
from fedhv.protocol.exchange import Call
from fedhv.protocol.travelling import arriving, leaving
from fedhv.support.errors import FedHVError, InputError

Load = Callable[[Context], Node | Problem]
"""Returns what the node of a context has; or a whole problem, of which the node then takes its own part."""


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
        mods: Flower's modifiers for training messages, such as those of differential privacy. They see every training
            message; one that they cannot work on is refused rather than answered without them.
        reports: Clips and noises the reported losses before they leave the node. A policy file that the node's own
            configuration names as `policy` takes its place, and rules over everything that a server asks.
    """
    app = ClientApp()
    clients: dict[tuple[object, ...], Client] = {}

    def client_of(context: Context, k: int) -> Client:
        # A process may serve one message (SuperNodes) or many (the simulation): loading is done once in each.
        key = (k, *sorted(context.run_config.items()), *sorted(context.node_config.items()))
        if key not in clients:
            has = load(context)
            if not isinstance(has, Node | Problem):
                raise InputError(f"The node's `load` should return a Node or a Problem. Found {type(has).__name__}.")
            problem = has.problem() if isinstance(has, Node) else has
            if isinstance(has, Problem) and not 0 <= k < len(problem.clients):
                raise InputError(f"partition-id should be from 0 to {len(problem.clients) - 1}. Found {k}.")
            where = context.run_config.get("device", device)
            clients[key] = Client(problem, choose_device(str(where)))
        return clients[key]

    def introduce(message: Message, context: Context) -> Message:
        k = partition_of(context)
        client = client_of(context, k)
        names = [task.name for task in client.problem.tasks]
        holding = client.holding(k)
        if policy_of(context) is not None or (reports(context) if callable(reports) else reports) is not None:
            holding = holding.bare()  # how many labels there are says something about the examples
        who = Introduction(k, holding, str(context.node_config.get("name", "")))
        return Message(introduction(who, client.layout, names), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        try:
            check_language(message.content, "the server")
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
                # Not from the run's seed: the server knows that one, and would take the noise away again.
                reply = rule.protect(reply, np.random.default_rng())
        if request.trains:
            memory.round.clear()  # the round ends with training
        save_memory(context.state, message.content, cohort, memory)
        return Message(
            encode_reply(leaving(request, layout), leaving(reply, layout), layout.travelling), reply_to=message
        )

    app.query(HELLO.split(".")[1])(introduce)
    for kind in (TRAIN, EXCHANGE):
        _, _, action = kind.partition(".")
        app.train(action or "default", mods=[_addressed, *mods] if mods else None)(answer)
    app.evaluate()(answer)
    return app


def _addressed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Sees to it that a mod's refusal arrives: some of Flower's address it as an answer to the answer."""
    reply = call_next(message, context)
    if reply.has_error() and reply.metadata.reply_to_message_id != message.metadata.message_id:
        return Message(reply.error, reply_to=message)
    return reply


def initial_layers(client: Client, seed: int) -> Tensor | None:
    """The initial model of a run with this seed, where a node needs parts of it that do not travel."""
    if not client.layout.resident:
        return None
    problem = client.problem
    return initial_model(problem.model, torch_seed(seed, Purpose.MODEL), problem.norm)


def policy_of(context: Context) -> Policy | None:
    """The rules of the node's operator, where its configuration names a file with some."""
    path = context.node_config.get("policy")
    return None if not path else Policy.read(str(path))


def partition_of(context: Context) -> int:
    """Which client of the federation a node is."""
    k = context.node_config.get("partition-id")
    if isinstance(k, bool) or not isinstance(k, int):
        raise InputError(
            "A node should know which partition it holds. Start its SuperNode with "
            f'--node-config "partition-id=0" (and so on). Found partition-id = {k!r}.'
        )
    return k
