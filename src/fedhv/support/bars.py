"""Progress of downloads and other work on files: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from fedhv.support.terminal import print_line

Line = Callable[[str, int, int | None, bool], str]
"""The line to print without a terminal, from the item, the amount done, the total, and whether it has just begun. Empty
if there is nothing to print."""


def downloads(quiet: bool = False, console: Console | None = None) -> Bars:
    """Counts bytes. Without a terminal, one line is printed when a file is complete."""
    return Bars(DownloadColumn(), lambda what, done, total, _: _complete(what, done, total), quiet, console)


def counts(quiet: bool = False, console: Console | None = None) -> Bars:
    """Counts items. Without a terminal, one line is printed when the work begins."""
    return Bars(
        MofNCompleteColumn(), lambda what, _, total, first: _begun(what, total) if first else "", quiet, console
    )


def _complete(what: str, done: int, total: int | None) -> str:
    return f"{what}: {decimal(done)}" if done == total else ""


def _begun(what: str, total: int | None) -> str:
    return f"{what} …" if total is None else f"{what}: {total:,} …"


class Bars:
    """One bar per item. Use it as a context manager and pass `update` as the progress callback."""

    def __init__(self, amount: ProgressColumn, line: Line, quiet: bool, console: Console | None) -> None:
        self._console = console or Console(stderr=True)
        self._line, self._quiet = line, quiet
        columns = TextColumn("{task.description}"), BarColumn(bar_width=30), amount, TimeRemainingColumn()
        self._bars = Progress(*columns, console=self._console) if self._console.is_terminal and not quiet else None
        self._tasks: dict[str, TaskID] = {}

    def update(self, what: str, done: int, total: int | None) -> None:
        """Record how much of an item is done."""
        if self._quiet:
            return
        first = what not in self._tasks
        if self._bars is None:
            self._tasks[what] = TaskID(0)
            if line := self._line(what, done, total, first):
                print_line(self._console, line)
            return
        if first:
            self._bars.start()  # not before: without work, nothing is shown
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None and self._tasks:
            self._bars.stop()
