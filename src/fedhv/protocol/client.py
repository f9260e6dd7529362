"""The computations of one client. This is the only implementation; every engine and transport calls it.

They are pure functions of the parameter vector (`example_losses`, `objective`, `gradient`; `descend` is in `local`).
They do not depend on the client whose examples they receive, so an engine can loop over clients, use worker processes
or map them over a stacked cohort. `Client.answer` runs a request's script with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.counter import keys
from fedhv.problem.devices import arithmetic_device
from fedhv.problem.generators import seeded
from fedhv.problem.labels import Holding, example_losses, example_scores, holding, label_counts, labels_at
from fedhv.problem.metrics import main_metric
from fedhv.problem.network import Network, Theta
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.random import Purpose
from fedhv.problem.trees import tree_map
from fedhv.protocol.cohort import Cohort, minibatches
from fedhv.protocol.exchange import Call
from fedhv.protocol.local import Entries, descend
from fedhv.protocol.request import Reply
from fedhv.protocol.script import Descend, Gradient, Member, Worker, play
from fedhv.support.errors import InputError

CHUNK = 512
"""The number of examples in one forward pass of a report or an evaluation."""
TOGETHER = 2**18
"""The number of input values that are prepared together on a CPU. They have to stay in a cache until they are used."""
ALIGNED = 16
"""The number of values at whose multiples torch's tensors begin (64 bytes of float32)."""


def draw_minibatches(
    problem: Problem, cohort: Cohort, k: int, steps: int | None = None, part: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """The positions in client k's minibatches (steps × b), and the draws of their augmentation."""
    return minibatches_from(problem, cohort, k, steps, [cohort.stream(p, k, part) for p in minibatch_purposes(problem)])


def minibatch_purposes(problem: Problem) -> list[Purpose]:
    """The purposes of the random streams that minibatches need."""
    return [Purpose.MINIBATCHES] if problem.augment is None else [Purpose.MINIBATCHES, Purpose.AUGMENTATION]


def minibatches_from(
    problem: Problem, cohort: Cohort, k: int, steps: int | None, rngs: Sequence[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray | None]:
    """`draw_minibatches` from streams that are there, one for every purpose."""
    positions = minibatches(rngs[0], len(problem.clients[k]), cohort.local, steps)
    return positions, None if problem.augment is None else problem.augment.draw(rngs[1], *positions.shape)


class Client(Worker):
    """The clients of a problem; methods take the client's number `k`.

    The object holds the model's code and the examples on a device, and nothing about a particular client. One object
    serves a million clients.
    """

    def __init__(self, problem: Problem, device: torch.device | str = "cpu") -> None:
        self.problem = problem
        self.device = arithmetic_device(device)
        self.network = Network(problem.model, len(problem.tasks), problem.heads, device, problem.norm)
        self.layout = replace(self.network.layout, partial=problem.missing_labels or problem.train.labelled is not None)
        self.entries = Entries.of(self.layout, self.device)
        self._holdings: dict[int, Holding] = {}
        self._draws_elsewhere: bool | None = None
        """Whether training draws from the generators of Python or NumPy; None before the first client's steps."""
        self.train_examples = problem.train.to(self.device)

    # --- the mathematics, for any examples ----------------------------------------------------------------

    def example_losses(
        self, theta: Theta, batch: Examples, *, training: bool, key: int | Tensor | None = None
    ) -> Tensor:
        """ℓᵢ of every example, m × n; 0 if an example has no label of task i. `key` fixes the model's random draws."""
        outputs = self.network(theta, batch.inputs, training=training, key=key)
        rows = example_losses(self.problem.tasks, outputs, batch)
        for task, row in zip(self.problem.tasks, rows, strict=True):
            if row.shape != (len(batch),):
                raise InputError(
                    f"The loss of task '{task.name}' should return one number per example ({len(batch)}). "
                    f"Found shape {tuple(row.shape)}; use reduction='none'."
                )
        return torch.stack(rows)

    def objective(
        self,
        theta: Theta,
        batch: Examples,
        weights: Tensor,
        shares: Tensor | None = None,
        key: int | Tensor | None = None,
    ) -> Tensor:
        r"""$L(\theta; B) = \sum_i w_i\, \ell_i(\theta; B)$, Eq. (6); w is a constant.

        `shares` are the examples' weights in the mean, for minibatches that are padded to a common size. `key` fixes
        the model's random draws.
        """
        losses = self.example_losses(theta, batch, training=True, key=key)
        return weights @ (losses.mean(dim=1) if shares is None else losses @ shares)

    def gradient(self, theta: Tensor, batch: Examples, weights: Tensor, key: int | None = None) -> Tensor:
        """∇L(θ; B)."""
        leaves = self.network.leaves(theta)
        loss = self.objective(leaves, batch, weights, key=key)
        # Running statistics, and layers that a forward pass leaves out, have no gradient: zeros.
        parts = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        # Embeddings with `sparse=True` have sparse gradients.
        dense = (part.to_dense() if part.is_sparse else part for part in parts)
        return torch.cat([part.reshape(-1) for part in dense]).to(theta.device)

    def direction(self, theta: Tensor, batch: Examples, weights: Tensor, key: int | None = None) -> Tensor:
        """∇L(θ; B), with the running statistics after this pass in the place of their gradient."""
        gradient = self.gradient(theta, batch, weights, key)
        return gradient if self.entries is None else self.entries.with_statistics(gradient, self.network.statistics())

    def known(self, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        """A gradient that was computed before, as a function of θ; it leaves statistics as they are."""
        entries = self.entries
        if entries is None:
            return lambda theta: gradient
        return lambda theta: entries.with_statistics(gradient, theta)

    def assessed(self, theta: Tensor, batch: Examples) -> Tensor:
        """Every task's summed loss, summed score and labels at θ, in evaluation mode, 3 × m in double precision."""
        tasks = self.problem.tasks
        outputs = self.network(theta, batch.inputs, training=False)
        losses = [loss.double().sum() for loss in example_losses(tasks, outputs, batch)]
        scores = [score.double().sum() for score in example_scores(tasks, outputs, batch)]
        return torch.cat([torch.stack([*losses, *scores]), label_counts(tasks, batch)]).view(3, len(tasks))

    # --- the examples of client k -------------------------------------------------------------------------

    def batch(self, positions: np.ndarray, k: int, draws: np.ndarray | None = None) -> Examples:
        """Examples of client k at these positions of its list, ready for the model."""
        index = torch.from_numpy(self.problem.clients[k][positions]).to(self.device)
        effect = None if draws is None else torch.from_numpy(draws).to(self.device)
        return self.ready(self.train_examples[index], effect)

    def ready(self, examples: Examples, draws: Tensor | None = None, *, channels_last: bool = True) -> Examples:
        """Stored examples in the form that the model takes: prepared, and augmented if draws are given.

        Convolutions run faster on images laid out channels last, on a CPU 1.5 to 2.7 times.
        """
        inputs = examples.inputs
        if self.problem.prepare is not None:
            inputs = self.problem.prepare(inputs)
        if draws is not None:
            assert self.problem.augment is not None
            inputs = self.problem.augment.apply(inputs, draws)
        if channels_last:
            inputs = tree_map(_channels_last, inputs)
        return examples.with_inputs(inputs)

    def minibatches(self, cohort: Cohort, k: int, steps: int | None = None, part: int = 0) -> Iterator[Examples]:
        """The minibatches of client k's local steps. `part` is the random stream: one per task trained alone."""
        positions, draws = draw_minibatches(self.problem, cohort, k, steps, part)
        steps, b = positions.shape
        together = self._steps_together(b)
        for start in range(0, steps, together):
            some = slice(start, start + together)
            effects = None if draws is None else draws[some].reshape(-1, *draws.shape[2:])
            batch = self.batch(positions[some].reshape(-1), k, effects)
            yield from (batch[i : i + b] for i in range(0, len(batch), b))

    def _steps_together(self, b: int) -> int:
        """The number of small minibatches of b examples that are read and prepared together, which is faster.

        They keep the bits of minibatches prepared one by one, because each begins where a tensor of its own could: the
        last bits of a product depend on that.
        """
        inputs = self.train_examples.inputs
        if not isinstance(inputs, Tensor) or self.device.type != "cpu":
            return 1
        size = b * inputs[:1].numel()
        return max(1, TOGETHER // max(1, size)) if size % ALIGNED == 0 else 1

    # --- what client k does -------------------------------------------------------------------------------

    def losses(self, theta: Tensor, positions: np.ndarray, k: int) -> Tensor:
        """F̂_k: the m mean losses at θ, in evaluation mode, on clean examples."""
        total = torch.zeros(self.layout.tasks, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for start in range(0, len(positions), CHUNK):
                batch = self.batch(positions[start : start + CHUNK], k)
                total += self.example_losses(theta, batch, training=False).double().sum(dim=1)
        return (total / len(positions)).float().cpu()

    def assess(self, theta: Tensor, k: int) -> Tensor:
        """Summed losses, summed scores and labels of the examples that client k holds out, 3 × m."""
        total = torch.zeros(3, self.layout.tasks, dtype=torch.float64, device=self.device)
        out = self.problem.validation
        mine = np.empty(0, np.int64) if out is None else out[k]
        with torch.no_grad():
            for start in range(0, len(mine), CHUNK):
                index = torch.from_numpy(mine[start : start + CHUNK]).to(self.device)
                total += self.assessed(theta, self.ready(self.train_examples[index]))
        return total

    def judge(self, theta: Tensor, k: int) -> Tensor:
        """Every task's main metric on the examples that client k holds out, and the labels behind it, 2 × m."""
        tasks, out = self.problem.tasks, self.problem.validation
        mine = np.empty(0, np.int64) if out is None else out[k]
        if not len(mine):
            return torch.zeros(2, len(tasks), dtype=torch.float64)
        held = self.train_examples[torch.from_numpy(mine).to(self.device)]
        parts = []
        with torch.no_grad():
            for start in range(0, len(mine), CHUNK):
                batch = self.ready(held[start : start + CHUNK])
                outputs = self.network(theta, batch.inputs, training=False)
                parts.append([output.float().cpu() for output in outputs])
        outputs = [torch.cat(each) for each in zip(*parts, strict=True)]
        masks = held.labelled or (None,) * len(tasks)
        found = [main_metric(*each) for each in zip(tasks, outputs, held.targets, masks, strict=True)]
        return torch.tensor(found, dtype=torch.float64).T.contiguous()

    def descend(self, work: Descend, me: Member) -> Tensor:
        """Δθ_k after K steps on the weighted loss."""
        cohort, k = me.cohort, me.client
        known = [] if work.first is None else [self.known(work.first)]
        start = me.own(work.start, work.part)
        left = me.local.steps_of(me.examples) - len(known)
        w = me.scaled(work.weights).to(work.start)
        with self._dropout(cohort, k, work.part, left) as drawn:
            batches = zip(self.minibatches(cohort, k, left, work.part), drawn, strict=True)
            rest = (lambda theta, b=batch, key=key: self.direction(theta, b, w, key) for batch, key in batches)
            theta, state = descend(
                start,
                (g for source in (known, rest) for g in source),
                me.local.learning_rate,
                me.local.rule,
                work.terms,
                clip=me.local.clip,
                state=me.optimiser_state(work.part),
                entries=self.entries,
            )
        me.keep_optimiser_state(work.part, state)
        me.keep_layers(work.part, theta)
        update = theta - start
        return update if not self.layout.resident else update.masked_fill(_given(self.entries).resident, 0)

    def gradient_of(self, work: Gradient, me: Member) -> Tensor:
        """The gradient of the weighted loss on one minibatch."""
        with self._dropout(me.cohort, me.client, work.part, 1) as (key,):
            (batch,) = self.minibatches(me.cohort, me.client, 1, work.part)
            return self.gradient(me.own(work.at), batch, me.scaled(work.weights).to(work.at), key)

    def holding(self, k: int) -> Holding:
        """The numbers of examples and labels of client k."""
        if k not in self._holdings:
            self._holdings[k] = holding(self.problem, k)
        return self._holdings[k]

    def member(self, call: Call, k: int) -> Member:
        """Client k, as a request's script sees it."""

        def labels(positions: np.ndarray) -> tuple[int, ...]:
            return labels_at(self.problem, self.problem.clients[k][positions])

        return Member(k, call.cohort, self.layout, self.holding(k), call.memories[k], labels)

    def answer(self, call: Call, k: int) -> Reply:
        """Client k's answer to a request."""
        me = self.member(call, k)
        reply: Reply = play(call.request.answer(me), lambda computation: computation.alone(self, me))
        return reply

    @contextmanager
    def _dropout(self, cohort: Cohort, k: int, part: int, steps: int) -> Iterator[list[int]]:
        """The keys of the model's random draws in a client's steps.

        Draws that keys do not cover (see `fedhv.problem.dropout`) come from the generators of torch, Python and NumPy.
        They are seeded for the client, and their states are restored afterwards. For the latter two this takes as long
        as a step of a small client, so it is done only if the first client's steps draw from them.
        """
        drawn: list[int] = keys(Purpose.DROPOUT, [cohort.place(k, part)], steps)[:, 0].tolist()
        self.network.prepare(drawn)
        seed = cohort.torch_seed(Purpose.DROPOUT, k, part)
        if self._draws_elsewhere is False:
            with self._of_torch(seed):
                yield drawn
            return
        with self._of_torch(seed), seeded(seed) as drew:
            yield drawn
            if steps and not self._draws_elsewhere:
                self._draws_elsewhere = drew()

    @contextmanager
    def _of_torch(self, seed: int) -> Iterator[None]:
        """Torch's generator begins with a seed, and is restored afterwards."""
        if self.device.type == "cuda":
            with torch.random.fork_rng(devices=[self.device]):
                torch.manual_seed(seed)
                yield
            return
        # Only the CPU's generator: `torch.manual_seed` also seeds GPUs, which takes as long as a small client's step.
        generator = torch.default_generator
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield
        finally:
            generator.set_state(before)


def _given(value: Entries | None) -> Entries:
    assert value is not None
    return value


def _channels_last(images: Tensor) -> Tensor:
    """Images in channels-last layout. Other inputs are returned unchanged.

    With one channel both layouts are the same memory, and torch keeps the strides of the other layout for all later
    layers. So the strides are set explicitly.
    """
    if images.ndim != 4:
        return images
    images = images.contiguous(memory_format=torch.channels_last)
    rows, columns = images.shape[-2:]
    return images.as_strided(images.shape, (rows * columns, 1, columns, 1)) if images.shape[1] == 1 else images
