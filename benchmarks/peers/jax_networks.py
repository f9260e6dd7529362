"""LeNet and CIFARNet of `fedhv.benchmarks.models` in JAX: functions of parameters with the names of torch.

Images are channels last. Pooling is a maximum over a reshaped array: its gradient is faster than that of
`reduce_window`, and equal where no two pixels of a window are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

Parameters = Mapping[str, jax.Array]


class Layers:
    """The layers of a network with given parameters; every dropout has its own key."""

    def __init__(self, parameters: Parameters, key: jax.Array, rate: float) -> None:
        self._parameters, self._key, self._rate = parameters, key, rate

    def convolve(self, name: str, x: jax.Array, padding: int) -> jax.Array:
        weight, bias = self._parameters[f"{name}.weight"], self._parameters[f"{name}.bias"]
        sides = [(padding, padding)] * 2
        return jax.lax.conv_general_dilated(x, weight, (1, 1), sides, dimension_numbers=("NHWC", "OIHW", "NHWC")) + bias

    def dense(self, name: str, x: jax.Array) -> jax.Array:
        return x @ self._parameters[f"{name}.weight"].T + self._parameters[f"{name}.bias"]

    def drop(self, x: jax.Array) -> jax.Array:
        if not self._rate:
            return x
        self._key, key = jax.random.split(self._key)
        return jnp.where(jax.random.bernoulli(key, 1 - self._rate, x.shape), x / (1 - self._rate), 0.0)


def pool(x: jax.Array) -> jax.Array:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def flatten(x: jax.Array) -> jax.Array:
    """In the order of torch, whose channels come first."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def lenet(layers: Layers, images: jax.Array, tasks: int) -> list[jax.Array]:
    x = jax.nn.relu(pool(layers.convolve("encoder.0", images, 1)))
    x = jax.nn.relu(pool(layers.convolve("encoder.3", x, 0)))
    shared = layers.drop(jax.nn.relu(layers.dense("encoder.7", flatten(x))))
    hidden = [layers.drop(jax.nn.relu(layers.dense(f"heads.{i}.0", shared))) for i in range(tasks)]
    return [layers.dense(f"heads.{i}.3", each) for i, each in enumerate(hidden)]


def cifar_net(layers: Layers, images: jax.Array, tasks: int) -> list[jax.Array]:
    x = jax.nn.relu(pool(layers.convolve("encoder.0", images, 1)))
    x = jax.nn.relu(pool(layers.convolve("encoder.3", x, 1)))
    x = layers.drop(jax.nn.relu(layers.dense("encoder.7", flatten(x))))
    shared = layers.drop(jax.nn.relu(layers.dense("encoder.10", x)))
    return [layers.dense(f"heads.{i}.1", layers.dense(f"heads.{i}.0", shared)) for i in range(tasks)]


NETWORKS: Mapping[str, Callable[[Layers, jax.Array, int], list[jax.Array]]] = {"LeNet": lenet, "CIFARNet": cifar_net}
