"""Which node a partition belongs to: a TOML file that the operator keeps.

    [partitions]
    0 = "8466104291923710239"
    1 = "1310497123998467215"

Where node keys are registered, the SuperLink gives every key a node id of its own, which stays the same when the
SuperNode is started again (`flwr supernode list`). A partition then belongs to a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedhv.support import toml
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic


def read_owners(path: str | Path) -> dict[int, int]:
    """The node id that every partition belongs to."""
    table = toml.read(Path(path)).get("partitions")
    if not isinstance(table, dict) or not table:
        raise InputError(f"{path} should have a table [partitions] with a node id for every partition. Found none.")
    owners: dict[int, int] = {}
    for partition, node in table.items():
        if not partition.isdecimal() or not str(node).isdecimal():
            raise InputError(f'{path}: expected lines such as 0 = "8466104291923710239". Found {partition} = {node!r}.')
        owners[int(partition)] = int(node)
    if len(set(owners.values())) < len(owners):
        raise InputError(f"{path}: expected another node for every partition. Found one node twice.")
    return owners


def write_owners(path: Path, owners: Mapping[int, int]) -> None:
    """Keep them; ids are text, since they may be larger than TOML's whole numbers."""
    write_atomic(path, toml.write({"partitions": {str(k): str(node) for k, node in sorted(owners.items())}}))
