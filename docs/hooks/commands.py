"""The page of the command line, read off the program itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer

from fedhv.cli.app import app

INTRODUCTION = """# Command line

`fedhv COMMAND --help` says the same in a terminal. Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted. Errors
are one line on the error stream; progress goes there too, so that `--json` leaves nothing but JSON on the output.

"""


def page() -> str:
    """Every command with its arguments and options."""
    return INTRODUCTION + "\n".join(_sections(typer.main.get_command(app), "fedhv"))


def _sections(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for word, each in command.commands.items():
            yield from _sections(each, f"{name} {word}")
        return
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## {name}\n\n```text\n{name} {usage}\n```\n\n{(command.help or '').strip()}\n"
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    if rows:
        yield "| | default | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _row(parameter: click.Parameter, context: click.Context) -> str | None:
    if getattr(parameter, "hidden", False):
        return None
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    if isinstance(parameter, click.Argument):
        return f"| `{parameter.make_metavar(context)}` | needed | {text} |"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.get_default(context)
    nothing = default is None or default is False or default == [] or "[default:" in text
    return f"| {names} | {'' if nothing else f'`{_words(default)}`'} | {text} |"


def _words(default: object) -> str:
    return "yes" if default is True else str(default)
