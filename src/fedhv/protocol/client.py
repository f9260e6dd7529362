"""What one client does. The only place where this is written; every engine and transport calls it.

The mathematics is four pure functions of the parameter vector (`losses`, `objective`, `gradient`, `descend`).
They do not know whose examples they see, so they can be looped over clients, given to worker processes or mapped
over a stacked cohort. `Client.answer` adds whose examples those are and in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.counter import keys
from fedhv.problem.parameters import Network
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.random import Purpose
from fedhv.protocol.cohort import Cohort, ReportBudget, minibatches, report_positions
from fedhv.protocol.compression import compress, inner_products
from fedhv.protocol.messages import (
    GramTerms,
    GramTermsReply,
    Reply,
    Request,
    TaskGradients,
    TaskGradientsReply,
    TaskUpdates,
    TaskUpdatesReply,
    Train,
    TrainReply,
)
from fedhv.support.errors import InputError

CHUNK = 512
"""How many examples a report or an evaluation pushes through the model at once."""


GRADIENT_PART = 1_000_000
"""Parts from here on are single gradients, so that they share no random stream with task-wise training."""


def descend(
    theta: Tensor, gradients: Iterable[Callable[[Tensor], Tensor]], rate: float | Tensor, momentum: float
) -> Tensor:
    r"""SGD with momentum: $v \leftarrow \mu v + g(\theta)$, $\theta \leftarrow \theta - \eta_\ell v$ for every g.

    θ may be one parameter vector or a stack of them, one for every client, each then with its own rate.
    """
    velocity: Tensor | None = None
    for gradient in gradients:
        g = gradient(theta)
        if isinstance(rate, Tensor):  # a stack is large: as few passes over it as can be
            velocity = g if velocity is None or momentum == 0 else torch.add(g, velocity, alpha=momentum)
            theta = torch.addcmul(theta, rate, velocity, value=-1)
        else:
            velocity = g if velocity is None or momentum == 0 else momentum * velocity + g
            theta = torch.sub(theta, velocity, alpha=rate)
    return theta


def draw_minibatches(
    problem: Problem, cohort: Cohort, k: int, steps: int | None = None, part: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Positions of client k's minibatches (steps × b), and the draws of their augmentation."""
    n = len(problem.clients[k])
    positions = minibatches(cohort.stream(Purpose.MINIBATCHES, k, part), n, cohort.local, steps)
    if problem.augment is None:
        return positions, None
    return positions, problem.augment.draw(cohort.stream(Purpose.AUGMENTATION, k, part), *positions.shape)


class Client:
    """One client of a problem; `k` says which.

    The object holds the model's code and the examples on a device, nothing about any particular client: a
    million clients share one.
    """

    def __init__(self, problem: Problem, device: torch.device | str = "cpu") -> None:
        self.problem = problem
        self.device = torch.device(device)
        self.network = Network(problem.model, len(problem.tasks), problem.heads, self.device)
        self.layout = self.network.layout
        self.train_examples = problem.train.to(self.device)

    # --- the mathematics, for any examples ----------------------------------------------------------------

    def example_losses(
        self, theta: Tensor, batch: Examples, *, training: bool, key: int | Tensor | None = None
    ) -> Tensor:
        """ℓᵢ of every example, m × n; `key` fixes what the model draws."""
        outputs = self.network(theta, batch.inputs, training=training, key=key)
        rows = [
            task.loss(output, target)
            for task, output, target in zip(self.problem.tasks, outputs, batch.targets, strict=True)
        ]
        for task, row in zip(self.problem.tasks, rows, strict=True):
            if row.shape != (len(batch),):
                raise InputError(
                    f"The loss of task '{task.name}' should return one number per example ({len(batch)}). "
                    f"Found shape {tuple(row.shape)}; use reduction='none'."
                )
        return torch.stack(rows)

    def objective(
        self,
        theta: Tensor,
        batch: Examples,
        weights: Tensor,
        shares: Tensor | None = None,
        key: int | Tensor | None = None,
    ) -> Tensor:
        r"""$L(\theta; B) = \sum_i w_i\, \ell_i(\theta; B)$, equation (local-weighted-loss); w is a constant.

        `shares` are the examples' parts of the mean, for minibatches that are padded to a common size; `key` fixes what
        the model draws.
        """
        losses = self.example_losses(theta, batch, training=True, key=key)
        return weights @ (losses.mean(dim=1) if shares is None else losses @ shares)

    def gradient(self, theta: Tensor, batch: Examples, weights: Tensor, key: int | None = None) -> Tensor:
        """∇L(θ; B)."""
        theta = theta.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.objective(theta, batch, weights, key=key), theta)
        return gradient

    # --- the examples of client k -------------------------------------------------------------------------

    def batch(self, positions: np.ndarray, k: int, draws: np.ndarray | None = None) -> Examples:
        """Examples of client k at these positions of its list, ready for the model."""
        index = torch.from_numpy(self.problem.clients[k][positions]).to(self.device)
        effect = None if draws is None else torch.from_numpy(draws).to(self.device)
        return self.ready(self.train_examples[index], effect)

    def ready(self, examples: Examples, draws: Tensor | None = None, *, channels_last: bool = True) -> Examples:
        """Stored examples as the model takes them: prepared, and augmented where draws are given.

        Convolutions run faster on images laid out channels last, on a CPU 1.5 to 2.7 times.
        """
        inputs = examples.inputs
        if self.problem.prepare is not None:
            inputs = self.problem.prepare(inputs)
        if draws is not None:
            assert self.problem.augment is not None
            inputs = self.problem.augment.apply(inputs, draws)
        if inputs.ndim == 4 and channels_last:
            inputs = _channels_last(inputs)
        return Examples(inputs, examples.targets)

    def minibatches(self, cohort: Cohort, k: int, steps: int | None = None, part: int = 0) -> Iterator[Examples]:
        """The minibatches of client k's local steps (`part` tells apart the tasks that train alone)."""
        positions, draws = draw_minibatches(self.problem, cohort, k, steps, part)
        for step in range(len(positions)):
            yield self.batch(positions[step], k, None if draws is None else draws[step])

    # --- what client k does -------------------------------------------------------------------------------

    def report(self, theta: Tensor, cohort: Cohort, k: int, budget: ReportBudget) -> Tensor:
        """F̂_k: the m mean losses at θ, in evaluation mode, on clean examples."""
        n = len(self.problem.clients[k])
        positions = report_positions(cohort.stream(Purpose.REPORT, k), n, cohort.local, budget)
        total = torch.zeros(self.layout.tasks, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for start in range(0, len(positions), CHUNK):
                batch = self.batch(positions[start : start + CHUNK], k)
                total += self.example_losses(theta, batch, training=False).double().sum(dim=1)
        return (total / len(positions)).float().cpu()

    def local_training(
        self,
        theta: Tensor,
        weights: Tensor,
        cohort: Cohort,
        k: int,
        part: int = 0,
        first: Tensor | None = None,
    ) -> Tensor:
        """Δθ_k after K steps on the weighted loss; `first`, if given, is the gradient of the first of them."""
        gradients: list[Callable[[Tensor], Tensor]] = [] if first is None else [lambda theta: first]
        left = cohort.local.steps - len(gradients)
        w = weights.to(theta)
        with self._dropout(cohort, k, part, left) as drawn:
            batches = zip(self.minibatches(cohort, k, left, part), drawn, strict=True)
            rest = (lambda theta, b=batch, key=key: self.gradient(theta, b, w, key) for batch, key in batches)
            steps = (g for source in (gradients, rest) for g in source)
            return descend(theta, steps, cohort.local.learning_rate, cohort.local.momentum) - theta

    def task_gradients(self, theta: Tensor, cohort: Cohort, k: int) -> Tensor:
        """The m task gradients, m × d, each on a minibatch of its own."""
        rows = []
        for i, task in enumerate(torch.eye(self.layout.tasks, device=theta.device)):
            with self._dropout(cohort, k, GRADIENT_PART + i, 1) as (key,):
                (batch,) = self.minibatches(cohort, k, 1, GRADIENT_PART + i)
                rows.append(self.gradient(theta, batch, task, key))
        return torch.stack(rows)

    def gram_terms(self, mine: TaskGradientsReply, S: Tensor) -> GramTermsReply:
        """A client's part in the estimate of the Gram matrix; S is the compressed sum of all compressed gradients."""
        A, C = self.layout.shared(mine.kept).T, (mine.sent or mine.compressed).dense()
        D, others = A - C, S - C
        known = inner_products(A, A) + inner_products(C, others) + 2 * inner_products(D, others)
        return GramTermsReply(known, inner_products(D, D))

    def answer(self, request: Request, cohort: Cohort, k: int) -> Reply:
        """Client k's answer to a request."""
        match request:
            case Train(theta, weights, report, first):
                # The report is taken at the received model, before local training.
                losses = None if report is None else self.report(theta, cohort, k, report)
                w = torch.full((self.layout.tasks,), 1 / self.layout.tasks) if weights is None else weights
                kept = None if first is None else w.to(theta) @ first.of(k).kept
                return TrainReply(self.local_training(theta, w, cohort, k, first=kept), losses)
            case TaskUpdates(theta):
                tasks = torch.eye(self.layout.tasks)
                updates = [self.local_training(theta, w, cohort, k, part=i) for i, w in enumerate(tasks)]
                return TaskUpdatesReply(torch.stack(updates))
            case TaskGradients(theta, extra_upload):
                kept = self.task_gradients(theta, cohort, k)
                rng = cohort.stream(Purpose.COMPRESSION, k)
                return TaskGradientsReply(compress(self.layout.shared(kept).T, extra_upload, rng), kept)
            case GramTerms(total, gradients):
                return self.gram_terms(gradients.of(k), total.dense())

    @contextmanager
    def _dropout(self, cohort: Cohort, k: int, part: int, steps: int) -> Iterator[list[int]]:
        """The keys of what the model draws in a client's steps.

        What the keys do not cover (see `fedhv.problem.dropout`) comes from torch's generator, seeded for the client,
        and leaves no trace.
        """
        drawn: list[int] = keys(Purpose.DROPOUT, [cohort.place(k, part)], steps)[:, 0].tolist()
        seed = cohort.torch_seed(Purpose.DROPOUT, k, part)
        if self.device.type == "cuda":
            with torch.random.fork_rng(devices=[self.device]):
                torch.manual_seed(seed)
                yield drawn
            return
        # Only the CPU's generator: `torch.manual_seed` takes care of GPUs too, at the price of a small client's step.
        generator = torch.default_generator
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield drawn
        finally:
            generator.set_state(before)


def _channels_last(images: Tensor) -> Tensor:
    """The images laid out channels last.

    With one channel both layouts are the same memory, and torch keeps the strides of the other one, by which every
    layer behind would keep it too: the strides have to be said.
    """
    images = images.contiguous(memory_format=torch.channels_last)
    rows, columns = images.shape[-2:]
    return images.as_strided(images.shape, (rows * columns, 1, columns, 1)) if images.shape[1] == 1 else images
