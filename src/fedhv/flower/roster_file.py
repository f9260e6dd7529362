"""The roster: a TOML file in which the server's operator assigns partitions to nodes.

    [partitions]
    0 = "8466104291923710239"
    1 = "1310497123998467215"

The SuperLink gives every registered node key its own node id, which does not change when the SuperNode restarts
(`flwr supernode list`). So a partition belongs to a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic


def read_owners(path: str | Path) -> dict[int, int]:
    """The node id of every partition."""
    table = toml.read(Path(path)).get("partitions")
    if not isinstance(table, dict) or not table:
        raise InputError(f"{path} should have a table [partitions] with a node id for every partition. Found none.")
    owners: dict[int, int] = {}
    for partition, node in table.items():
        if not partition.isdecimal() or not str(node).isdecimal():
            raise InputError(f'{path}: expected lines such as 0 = "8466104291923710239". Found {partition} = {node!r}.')
        owners[int(partition)] = int(node)
    if len(set(owners.values())) < len(owners):
        raise InputError(f"{path}: expected a different node for every partition. Found one node twice.")
    return owners


def write_owners(path: Path, owners: Mapping[int, int]) -> None:
    """Write the file. Ids are text, because they may be larger than TOML's integers."""
    write_atomic(path, toml.write({"partitions": {str(k): str(node) for k, node in sorted(owners.items())}}))
