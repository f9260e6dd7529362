"""The messages between a peer and the measuring process. Needs no package, because peers have different ones."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SIGN = "@@"
"""The prefix of a peer's messages; other output is ignored."""


def send(**what: Any) -> None:
    print(SIGN + json.dumps(what), flush=True)


def turns(
    finish: Callable[[], object] = lambda: None, describe: Callable[[], dict[str, Any]] = dict, **about: Any
) -> Iterator[None]:
    """Yields once per round of this peer. A line of standard input is a number of rounds, or "describe".

    Args:
        finish: Waits until a device has computed the round; its time is part of the round.
        describe: The answer to "describe", such as memory.
        about: Entries for the first message.
    """
    send(script=Path(sys.argv[0]).name, **about)
    for line in sys.stdin:
        if line.strip() == "describe":
            send(**describe())
            continue
        seconds = []
        for _ in range(int(line)):
            began = time.perf_counter()
            yield
            finish()
            seconds.append(time.perf_counter() - began)
        send(rounds=seconds)
