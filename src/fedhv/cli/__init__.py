"""The command `fedhv`."""

from __future__ import annotations

import atexit
import errno
import signal
import sys
from contextlib import suppress
from types import FrameType

import click
import typer
from rich.console import Console

from fedhv.cli.app import app
from fedhv.runs.job import Interrupted
from fedhv.support.errors import FedHVError
from fedhv.support.signals import SIGNALS, held_back
from fedhv.support.terminal import say_line

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    signal.signal(signal.SIGTERM, _terminate)
    atexit.register(_deaf)
    try:
        code = typer.main.get_command(app)(standalone_mode=False)
        if code == Interrupted.exit_code:  # so typer says that a command was stopped which has nothing to add
            _fail("Interrupted.", Interrupted.exit_code)
        sys.exit(code if isinstance(code, int) else 0)
    except FedHVError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError:
        sys.exit(2)  # the help is printed already
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except OSError as error:
        if error.filename is None:
            raise
        _fail(f"{error.filename} cannot be used: {error.strerror}.", 2 if error.errno == errno.ENAMETOOLONG else 1)
    except MemoryError:
        _fail("There is not enough memory for this. Fewer or smaller clients need less.", 1)
    except (KeyboardInterrupt, click.Abort):
        _fail("Interrupted.", Interrupted.exit_code)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _deaf() -> None:
    """Whoever presses Ctrl-C twice should not see the libraries' traceback while Python ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _fail(message: str, code: int) -> None:
    with suppress(KeyboardInterrupt), held_back():  # a second Ctrl-C wishes for nothing new
        Console(stderr=True).print("[bold red]Error:[/] ", end="")
        say_line(Console(stderr=True), str(FedHVError(message)))
    sys.exit(code)
