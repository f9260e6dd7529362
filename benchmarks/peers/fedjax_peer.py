"""FedJAX: its federated averaging with the jit backend, all examples on the device. Torch is not imported.

python fedjax_peer.py WORKLOAD DEVICE

A client's dataset in FedJAX holds numbers of examples; a preprocessor of batches gathers images and labels on the
device. So minibatches do not travel to the GPU. FedJAX 0.0.17 calls `jax.tree_map`, which new versions of JAX lack.
On a GPU, JAX's default precision of matrix products and convolutions is tf32.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from fedjax.algorithms import fed_avg
from jax_networks import NETWORKS, Layers
from messages import turns

if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree.map

DROPOUT = 0.5


def main() -> None:
    path, device = sys.argv[1:]
    assert (jax.default_backend() == "cpu") == (device == "cpu"), f"JAX has {jax.default_backend()}, not {device}"
    kept = np.load(path)
    numbers = SimpleNamespace(**json.loads(str(kept["numbers"])))
    pixels = jnp.asarray(kept["images"].transpose(0, 2, 3, 1))
    images = (pixels.astype(jnp.float32) / 255 - jnp.array(numbers.mean)) / jnp.array(numbers.std)
    labels = jnp.asarray(kept["labels"].astype(np.int32))
    network, rate = NETWORKS[numbers.model], DROPOUT if numbers.dropout else 0.0

    @jax.jit
    def gather(images: jax.Array, labels: jax.Array, rows: jax.Array) -> dict[str, jax.Array]:
        return {"images": images[rows], "labels": labels[rows]}

    def loss(parameters: dict[str, jax.Array], batch: dict[str, jax.Array], key: jax.Array) -> jax.Array:
        outputs = network(Layers(parameters, key, rate), batch["images"], numbers.tasks)
        losses = [
            optax.softmax_cross_entropy_with_integer_labels(output, batch["labels"][:, i]).mean()
            for i, output in enumerate(outputs)
        ]
        return sum(losses) / len(losses)

    own = np.split(kept["indices"].astype(np.int32), kept["offsets"][1:-1])
    data = fedjax.InMemoryFederatedData(
        {k: {"rows": rows} for k, rows in enumerate(own)},
        preprocess_batch=fedjax.BatchPreprocessor([lambda batch: gather(images, labels, batch["rows"])]),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, numbers.participants, seed=0)
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=numbers.batch, num_epochs=None, num_steps=numbers.steps)
    fedjax.set_for_each_client_backend("jit")
    algorithm = fed_avg.federated_averaging(
        jax.grad(loss), fedjax.optimizers.sgd(numbers.rate), fedjax.optimizers.sgd(1.0), batches
    )
    start = "parameter "
    state = algorithm.init({name.removeprefix(start): jnp.asarray(kept[name]) for name in kept if start in name})

    def describe() -> dict[str, Any]:
        saved = f"{path}.{os.getpid()}.npz"
        np.savez(saved, **{name: np.asarray(value) for name, value in state.params.items()})
        used = jax.local_devices()[0].memory_stats() or {}
        return {"parameters": saved, "memory": used.get("peak_bytes_in_use")}

    def finish() -> None:
        jax.block_until_ready(state.params)

    for _ in turns(finish, describe, packages={name: version(name) for name in ("jax", "fedjax")}):
        state, _ = algorithm.apply(state, sampler.sample())


if __name__ == "__main__":
    main()
