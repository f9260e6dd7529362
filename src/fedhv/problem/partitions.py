"""Partitions of `flwr-datasets`, or of anything that loads one `datasets.Dataset` for every client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedhv.support.errors import InputError


def load_partitions(partitioner: Any) -> Iterator[Any]:
    """The tables of the partitions."""
    if not hasattr(partitioner, "load_partition") or not hasattr(type(partitioner), "num_partitions"):
        found = type(partitioner).__name__
        raise InputError(
            f"A partitioner should have `num_partitions` and `load_partition(i)`. Found a {found}; of a "
            "FederatedDataset give fds.partitioners['train']."
        )
    try:
        count = int(partitioner.num_partitions)
        first = partitioner.load_partition(0)
    except AttributeError as error:  # what flwr-datasets raises where no dataset is assigned
        raise InputError("A partitioner should have a dataset. Found none; set `partitioner.dataset` first.") from error
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"The partitioner could not divide its dataset. Found {type(error).__name__}: {error}"
        ) from error
    yield first
    for i in range(1, count):
        yield partitioner.load_partition(i)
