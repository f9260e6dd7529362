"""Finding, in /proc, the processes that a command started, by a mark in their environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MARK = "FEDHV_TEST_MARK"
LISTENING = "0A"


@dataclass(frozen=True)
class Seen:
    """A running process."""

    pid: int
    command: str
    environment: dict[str, str]


def marked(mark: str) -> list[Seen]:
    """All processes with this mark, zombies left out (they have no environment any more)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = dict(
                item.split("=", 1)
                for item in (entry / "environ").read_text(errors="replace").split("\0")
                if "=" in item
            )
            command = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if environment.get(MARK) == mark:
            found.append(Seen(int(entry.name), command, environment))
    return found


def one(mark: str, *words: str) -> Seen | None:
    """The process whose command holds all these words."""
    return next((each for each in marked(mark) if all(word in each.command for word in words)), None)


def listening(pids: list[int]) -> set[str]:
    """The addresses, as the kernel writes them, on which these processes listen."""
    sockets = set()
    for pid in pids:
        try:
            for link in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(link)
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
        except OSError:
            continue
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in sockets:
                addresses.add(fields[1].split(":")[0])
    return addresses


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same within IPv6, and ::1."""
