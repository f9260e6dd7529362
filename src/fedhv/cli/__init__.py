"""The command line: the command `fedhv` and its subcommands."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

# Only fast imports: before `main` is called, Ctrl-C ends in a traceback.
from fedhv.support.errors import FedHVError, Interrupted
from fedhv.support.signals import SIGNALS, deferred_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    for number in SIGNALS:
        signal.signal(number, _stop)
    atexit.register(_ignore_signals)
    import click

    from fedhv.cli.app import commands

    if sys.stdout is None:  # it was closed before the start, as by `>&-`
        _print_nothing()
    try:
        code = commands()(standalone_mode=False)
        if code == Interrupted.exit_code:  # typer's own exit code for an interrupted command
            _fail("Interrupted.", Interrupted.exit_code)
        sys.exit(code if isinstance(code, int) else 0)
    except FedHVError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError:
        sys.exit(2)  # the help has been printed
    except click.ClickException as error:
        _fail(_with_remedy(error.format_message()), 2)
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOSPC:
            _print_nothing()  # at its end Python would try once more to print what is left
            _fail("The output cannot be written: no space is left. Free some, or send the output elsewhere.", 1)
        if error.filename is None:
            raise
        _fail(f"{error.filename} cannot be used: {error.strerror}.", 2 if error.errno == errno.ENAMETOOLONG else 1)
    except MemoryError:
        _fail("There is not enough memory. Use fewer or smaller clients.", 1)
    except (KeyboardInterrupt, click.Abort):
        _fail("Interrupted.", Interrupted.exit_code)
    except Exception as error:
        from fedhv.support.users_code import said_in_users_code

        said = said_in_users_code(error)
        if not said or os.environ.get("FEDHV_TRACEBACK"):
            raise
        _fail(f"{said}. FEDHV_TRACEBACK=1 shows the traceback.", 1)


def _print_nothing() -> None:
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it is closed with the process


def _with_remedy(message: str) -> str:
    """A mistake in the words of a command, with what to do where click does not say it."""
    if "unexpected extra argument" not in message:
        return message
    return f"{message}. Separate several values of an option by commas without spaces: --methods fedhv,uniform."


def _stop(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C and SIGTERM. During the import of libraries, which print tracebacks, exit at once."""
    if _starting(frame):
        with suppress(OSError):
            os.write(2, b"Error: Interrupted.\n")
        os._exit(Interrupted.exit_code)
    raise KeyboardInterrupt


def _starting(frame: FrameType | None) -> bool:
    """Whether this package is being imported; imports during a run are started by other modules."""
    importer = None
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            importer = frame.f_back
        frame = frame.f_back
    return importer is not None and importer.f_globals.get("__name__", "").startswith("fedhv.cli")


def _ignore_signals() -> None:
    """Suppress tracebacks of libraries if a second Ctrl-C arrives while Python exits."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _fail(message: str, code: int) -> None:
    from rich.console import Console

    from fedhv.support.terminal import print_line

    with suppress(KeyboardInterrupt), deferred_signals():  # a second Ctrl-C has no further effect
        Console(stderr=True).print("[bold red]Error:[/] ", end="")
        print_line(Console(stderr=True), str(FedHVError(message)))
    sys.exit(code)
