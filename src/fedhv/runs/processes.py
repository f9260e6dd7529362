"""Runs in worker processes. A failed run does not stop the others, and an interrupted run saves its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fedhv.support.errors import FedHVError, InputError, Interrupted
from fedhv.support.pool import Pool

T = TypeVar("T")


def in_processes(
    calls: Sequence[Callable[[], T]],
    workers: int,
    tick: Callable[[], None],
    warn: Callable[[str], None] = lambda sentence: None,
) -> list[T | FedHVError]:
    """The result or error of each call; `tick` is called a few times a second.

    A call whose worker died is repeated: a run continues from its last checkpoint. When the user interrupts, every call
    ends with KeyboardInterrupt and is waited for.
    """
    remedy = "The same command resumes the runs, with fewer --jobs for less memory."
    pool = Pool(_start, workers, graceful=True, warn=warn, remedy=remedy)
    try:
        return list(pool.results(lambda i: calls[i], len(calls), name=lambda i: _name(calls[i], i), tick=tick))
    except KeyboardInterrupt:
        raise Interrupted("Stopped; every run can be resumed.") from None
    finally:
        pool.close()


def _name(call: Callable[[], Any], number: int) -> str:
    return str(getattr(call, "label", f"Run {number}"))


def _start() -> Callable[[Callable[[], Any]], Any]:
    return _outcome


def _outcome(call: Callable[[], Any]) -> Any:
    """A call's result or its failure; bad input, an interruption and program errors stop all calls."""
    try:
        return call()
    except (InputError, Interrupted):
        raise
    except FedHVError as error:
        return error
