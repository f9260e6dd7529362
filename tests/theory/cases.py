"""Inputs that the theory's tests share: wide random ranges, and a tiny federation whose expectations are exact sums."""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from fedhv.theory import ProblemConstants

deterministic = settings(derandomize=True, deadline=None, max_examples=120)


# Strategies are made once: hypothesis examines every new one, which takes longer than its draws.


@cache
def powers(low, high):
    """Numbers between 10^low and 10^high, every order of magnitude as likely as another."""
    return st.floats(low, high).map(lambda x: float(10.0**x))


@cache
def zero_or_powers(low, high):
    return st.one_of(st.just(0.0), powers(low, high))


@cache
def vectors(elements, least=1, most=6):
    lists = {m: st.lists(elements, min_size=m, max_size=m) for m in range(least, most + 1)}
    return st.integers(least, most).flatmap(lambda m: lists[m]).map(np.array)


SHARES = st.one_of(st.just(0.0), st.floats(0, 1 - 1e-6), powers(-6, 0).map(lambda x: (1 - x) * (1 - 1e-6)))


@st.composite
def safe_points(draw, least=1, most=6):
    """(losses, reference): nonnegative losses, from zero to within a millionth of references of any scale."""
    r = draw(vectors(powers(-6, 6), least, most))
    return r * np.array([draw(SHARES) for _ in r]), r


@st.composite
def problems(draw, **fixed):
    """Problem constants over wide ranges, all of them admissible."""
    f, r = draw(safe_points(most=5))
    m = len(r)

    def some(low, high):
        return np.array([draw(zero_or_powers(low, high)) for _ in range(m)])

    clients = draw(st.integers(1, 50))
    margin = float((r - f).min()) * draw(st.floats(0.05, 1))
    values = {
        "smoothness": np.array([draw(powers(-3, 3)) for _ in range(m)]),
        "reference": r,
        "initial_losses": f,
        "clients": clients,
        "cohort": draw(st.integers(1, clients)),
        "gradient_noise": some(-3, 2),
        "heterogeneity": some(-3, 2),
        "loss_spread": some(-3, 2),
        "report_noise": some(-3, 2),
        "margin": margin,
        "floor": margin * draw(st.floats(1e-3, 1)),
    }
    return ProblemConstants(**(values | fixed))


@dataclass
class Federation:
    r"""Clients with $f_i^{(k)}(\theta) = \frac{L_i}{2}\|\theta - a_{ik}\|^2$ whose gradients carry a fair ± noise.

    Every constant is exact, and with few clients and steps every expectation is a sum over all outcomes.
    """

    smoothness: np.ndarray  # (m,)
    centres: np.ndarray  # (N, m, d)
    noise: np.ndarray  # (m, d): the noise of task i is plus or minus this, one sign for all tasks

    @classmethod
    def random(cls, seed, *, clients=3, tasks=2, dimensions=2, noise=0.3, spread=0.5):
        rng = np.random.default_rng(seed)
        middle = rng.standard_normal((1, tasks, dimensions))
        return cls(
            smoothness=rng.uniform(0.5, 2, tasks),
            centres=middle + spread * rng.standard_normal((clients, tasks, dimensions)),
            noise=noise * rng.standard_normal((tasks, dimensions)),
        )

    @property
    def clients(self):
        return len(self.centres)

    def client_losses(self, theta):
        """f_i^(k)(θ), (N, m)."""
        return self.smoothness / 2 * ((theta - self.centres) ** 2).sum(axis=-1)

    def losses(self, theta):
        return self.client_losses(theta).mean(axis=0)

    def client_gradients(self, theta):
        """∇f_i^(k)(θ), (N, m, d)."""
        return self.smoothness[:, None] * (theta - self.centres)

    def gradients(self, theta):
        return self.client_gradients(theta).mean(axis=0)

    def hypervolume_gradient(self, theta, reference):
        return (1 / (reference - self.losses(theta))) @ self.gradients(theta)

    def constants(self, reference, start, cohort, **more):
        away = self.centres - self.centres.mean(axis=0)
        return ProblemConstants(
            smoothness=self.smoothness,
            reference=reference,
            initial_losses=self.losses(start),
            clients=self.clients,
            cohort=cohort,
            gradient_noise=np.linalg.norm(self.noise, axis=1),
            heterogeneity=self.smoothness * np.sqrt((away**2).sum(axis=-1).mean(axis=0)),
            **more,
        )

    def local_paths(self, theta, weights, client, signs, lr):
        """All local iterates of a client whose minibatches drew these signs, (K + 1, d)."""
        path = [np.asarray(theta, dtype=float)]
        for sign in signs:
            exact = weights @ (self.smoothness[:, None] * (path[-1] - self.centres[client]))
            path.append(path[-1] - lr * (exact + sign * (weights @ self.noise)))
        return np.array(path)

    def rounds(self, theta, weights, cohort, steps):
        """Every outcome of a round, equally likely: the cohort and its clients' paths, (M, K + 1, d)."""
        signs = [1.0] if not self.noise.any() else [1.0, -1.0]
        for chosen in itertools.combinations(range(self.clients), cohort):
            draws = itertools.product(signs, repeat=cohort * steps.local_steps)
            for draw in draws:
                each = np.array(draw).reshape(cohort, steps.local_steps)
                yield (
                    chosen,
                    np.array(
                        [
                            self.local_paths(theta, weights, k, s, steps.local_lr)
                            for k, s in zip(chosen, each, strict=True)
                        ]
                    ),
                )

    def virtual_path(self, theta, weights, steps):
        path = [np.asarray(theta, dtype=float)]
        for _ in range(steps.local_steps):
            path.append(path[-1] - steps.local_lr * (weights @ self.gradients(path[-1])))
        return np.array(path)
