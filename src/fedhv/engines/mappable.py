"""A test whether a model can be mapped over a stack of clients, with two clients of two examples each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import torch

from fedhv.engines.autocast import Bfloat16
from fedhv.engines.first_gradient import quiet_first_gradient
from fedhv.engines.formulations import mappable_calls, with_mappable_layers
from fedhv.engines.formulations.obstacles import reason
from fedhv.engines.portions import out_of_memory
from fedhv.problem.generators import seeded
from fedhv.problem.missing import rows
from fedhv.problem.parameters import flatten
from fedhv.problem.problem import Clients, Examples, Problem
from fedhv.problem.trees import Inputs, tree_map
from fedhv.protocol.client import Client

CLIENTS, EXAMPLES = 2, 2

PADS, KEYS = 2, 4
"""The padding of a minibatch that is tried, and the keys: a random order of examples may leave padding at the end."""


def why_not_mappable(problem: Problem, device: torch.device | str = "cpu", precision: str = "float32") -> str | None:
    """Why `vmap` cannot map a problem's model and losses over clients; None if it can.

    Typical reasons are a branch that depends on the data, `.item()`, a buffer that is written in place, or an operation
    that torch cannot batch. The test runs the stacked engine's forward and backward pass, on the device and in the
    precision of the run, with the smallest possible stack. It restores the state of the random generators.
    """
    device = torch.device(device)
    client = Client(_few(problem), device)
    try:
        with _no_trace(device) as drew, _exactly(device):
            client.network.module = with_mappable_layers(client.network.module)
            batch = client.ready(client.train_examples[torch.arange(CLIENTS * EXAMPLES)], channels_last=False)
            stack = batch.fold(CLIENTS, EXAMPLES)
            theta = flatten(client.network.module).expand(CLIENTS, -1).clone().requires_grad_()
            weights = torch.full((CLIENTS, client.layout.tasks), 1 / client.layout.tasks, device=device)
            shares = torch.full((CLIENTS, EXAMPLES), 1 / EXAMPLES, device=device)

            def objective(theta: torch.Tensor, inputs: Inputs, targets: tuple[torch.Tensor, ...],
                          masks: dict[int, torch.Tensor], weights: torch.Tensor, shares: torch.Tensor,
                          key: torch.Tensor) -> torch.Tensor:  # fmt: skip
                labelled = tuple(masks.get(i) for i in range(len(targets))) if masks else None
                with _autocast(device, precision), mappable_calls(device):
                    return client.objective(theta, Examples(inputs, targets, labelled), weights, shares, key)

            mapped = torch.func.vmap(objective, randomness="different")
            masks = {i: mask for i, mask in enumerate(stack.labelled or ()) if mask is not None}
            key = torch.arange(CLIENTS, device=device)
            losses = mapped(theta, stack.inputs, stack.targets, masks, weights, shares, key)
            (stacked,) = torch.autograd.grad(losses.sum(), theta)
            if drew():
                return (
                    "it draws from the generators of Python or NumPy, whose numbers all clients of a stack would share"
                )
            if precision != "bf16" and _differs(client, stacked, theta[0].detach(), batch):
                return "its gradient in a stack is not the gradient of a client alone"
            if _mixes(client, theta[0].detach(), batch.inputs) or _counts_padding(client, theta[0].detach(), batch):
                return "its examples depend on one another within a minibatch"
    except Exception as error:  # a user's model may raise any exception under vmap
        if out_of_memory(error):
            raise
        return reason(error)
    return None


def why_not_bf16(problem: Problem, device: torch.device | str = "cpu") -> str | None:
    """Why a client's gradient cannot be computed under autocast to bfloat16; None if it can."""
    device = torch.device(device)
    client = Client(_few(problem), device)
    try:
        with _no_trace(device):
            client.network = Bfloat16(client.network, device)
            weights = torch.full((client.layout.tasks,), 1 / client.layout.tasks, device=device)
            batch = client.ready(client.train_examples[torch.arange(CLIENTS * EXAMPLES)])
            client.gradient(flatten(client.network.module), batch, weights, key=0)
    except Exception as error:  # a user's model may raise any exception under autocast
        if out_of_memory(error):
            raise
        return reason(error)
    return None


def _few(problem: Problem) -> Problem:
    """The problem with the few examples that the test needs, because a device may hold all examples only once."""
    count = CLIENTS * EXAMPLES
    masks = problem.train.labelled
    usable = torch.arange(len(problem.train))
    if masks is not None and all(mask is not None for mask in masks):  # a client has at least one label
        usable = torch.stack([rows(mask) for mask in masks if mask is not None]).any(dim=0).nonzero().flatten()
    positions = usable[torch.arange(count) % len(usable)]
    return replace(
        problem,
        train=problem.train[positions],
        test=problem.train[:1],  # a trial evaluates nothing
        clients=_Some.of([range(count)]),
        validation=None,
        strata={},
    )


class _Some(Clients):
    """A client of the trial problem; it may lack tasks."""

    complete = False


@contextmanager
def _no_trace(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Leave random generators as they are, and be silent; yields whether those of Python or NumPy were drawn from."""
    forked = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with forked, seeded(0) as drew, quiet_first_gradient():
        yield drew


@contextmanager
def _exactly(device: torch.device) -> Iterator[None]:
    """Without tf32, whose rounding grows in a deep model until gradients differ."""
    if device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def _differs(client: Client, stacked: torch.Tensor, theta: torch.Tensor, batch: Examples) -> bool:
    """Whether a client's gradient in the stack differs from its gradient alone: torch's rules for `vmap` have errors.

    Gradients are not compared if they are not finite, or if the model draws from torch's generator.
    """
    weights = torch.full((client.layout.tasks,), 1 / client.layout.tasks, device=theta.device)
    for j, mine in enumerate(stacked):
        before = _drawn(theta.device)
        alone = client.gradient(theta, batch[j * EXAMPLES : (j + 1) * EXAMPLES], weights, key=j)
        if not torch.equal(_drawn(theta.device), before) or not alone.isfinite().all():
            return False
        if not (mine - alone).norm() <= 1e-2 * alone.norm():
            return True
    return False


def _drawn(device: torch.device) -> torch.Tensor:
    """The state of the generator of a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _mixes(client: Client, theta: torch.Tensor, inputs: Inputs) -> bool:
    """Whether outputs of an example depend on other examples of the minibatch. Stacks pad minibatches."""
    alone = tree_map(lambda part: part[:1].expand_as(part).contiguous(), inputs)
    with torch.no_grad():
        pairs = zip(*(client.network(theta, some, training=False) for some in (inputs, alone)), strict=True)
        return any(bool((a[0] - b[0]).norm() > 1e-2 * (a[0].norm() + b[0].norm()) / 2) for a, b in pairs)


def _counts_padding(client: Client, theta: torch.Tensor, batch: Examples) -> bool:
    """Whether a minibatch that is padded has another gradient than its own examples have, as with batch statistics.

    Models with BatchNorm's statistics are never padded.
    """
    if any(client.layout.statistics):
        return False
    weights = torch.full((client.layout.tasks,), 1 / client.layout.tasks, device=theta.device)
    shares = torch.tensor([1 / EXAMPLES] * EXAMPLES + [0.0] * PADS, device=theta.device)
    padded = batch[torch.tensor([*range(EXAMPLES), *[0] * PADS], device=theta.device)]
    first: torch.Tensor | None = None
    for key in range(KEYS):
        own = client.gradient(theta, batch[:EXAMPLES], weights, key=key)
        if first is not None and torch.equal(own, first):
            return False  # it draws nothing: other keys give the same
        first = own if first is None else first
        drawn, leaf = _drawn(theta.device), theta.clone().requires_grad_()
        (found,) = torch.autograd.grad(client.objective(leaf, padded, weights, shares, key=key), leaf)
        if not torch.equal(_drawn(theta.device), drawn) or not own.isfinite().all():
            return False
        if not (found - own).norm() <= 1e-2 * own.norm():
            return True
    return False
