"""Pictures of the engines: how the work of a cohort is laid out in time, for light and for dark pages.

    python docs/images/engines.py

writes `engines-*.svg` (all three) and `engine-stacked-*.svg`, with the runs of a study. Lengths are not measured.
"""

from __future__ import annotations

from pathlib import Path

from drawing import PAPERS, Paper, svg, text

from fedhv.report.palette import TASK_COLOURS

HERE = Path(__file__).parent
WIDTH, LEFT = 760, 118
CLIENTS = TASK_COLOURS[:6]
REPORT, STEPS = 26, 62
"""Lengths of a client's report and of its K local steps."""
NOTE = "time. Faded: a client's report; full: its local steps. Not measured."
END = 74
"""The length of what the server does at the end of a round."""


def block(x: float, y: float, w: float, h: float, fill: str, opacity: float = 1.0) -> str:
    """A piece of work."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="3" fill="{fill}" '
        f'fill-opacity="{opacity:g}"/>'
    )


def client(x: float, y: float, k: int) -> str:
    """A client's report, then its local steps."""
    colour = CLIENTS[k]
    return (
        block(x, y, REPORT - 2, 24, colour, 0.55)
        + block(x + REPORT, y, STEPS - 2, 24, colour)
        + text(
            x + REPORT + STEPS / 2 - 1, y + 17, f"client {k + 1}", readable(colour), text_anchor="middle", font_size=12
        )
    )


def readable(ground: str) -> str:
    """White or dark letters, whichever stand out on a colour."""
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 130 else "#10141a"


def server(x: float, y: float, h: float, paper: Paper) -> str:
    """The end of a round."""
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{END}" height="{h}" rx="3" fill="{paper.box}" stroke="{paper.quiet}"/>'
        + text(x + END / 2, y + h / 2 - 3, "server", paper.ink, text_anchor="middle", font_size=12)
        + text(x + END / 2, y + h / 2 + 12, "combines", paper.ink, text_anchor="middle", font_size=12)
    )


def heading(y: float, name: str, words: str, paper: Paper) -> str:
    """The engine's name, and what it does."""
    return text(16, y, name, paper.ink, font_weight=700, font_size=15) + text(LEFT, y, words, paper.quiet)


def lane(y: float, name: str, paper: Paper) -> str:
    """The name of a process."""
    return text(LEFT - 12, y + 17, name, paper.quiet, text_anchor="end", font_size=12)


def sequential(y: float, paper: Paper) -> str:
    """One client after the other."""
    step = REPORT + STEPS + 3
    return "".join(
        [
            heading(y, "sequential", "one process computes one client after the other", paper),
            lane(y + 18, "process", paper),
            *(client(LEFT + k * step, y + 18, k) for k in range(6)),
            server(LEFT + 6 * step + 4, y + 12, 36, paper),
        ]
    )


def parallel(y: float, paper: Paper) -> str:
    """Two workers; a free one takes the next client."""
    step = REPORT + STEPS + 3
    starts = {0: (0, 0), 1: (1, 0), 2: (0, step), 3: (1, step), 4: (0, 2 * step), 5: (1, 2 * step)}
    return "".join(
        [
            heading(y, "parallel", "a free worker process takes the next client; model and updates are shared", paper),
            lane(y + 18, "worker 1", paper),
            lane(y + 50, "worker 2", paper),
            *(client(LEFT + at, y + 18 + 32 * worker, k) for k, (worker, at) in starts.items()),
            server(LEFT + 3 * step + 4, y + 18, 56, paper),
            text(LEFT + 3 * step + 92, y + 44, "in the cohort's order,", paper.quiet, font_size=12),
            text(LEFT + 3 * step + 92, y + 60, "not in that of arrival", paper.quiet, font_size=12),
        ]
    )


def stack(x: float, y: float, runs: int, paper: Paper) -> tuple[str, float]:
    """Reports as one batch, then K steps, each of all clients of all runs; and where it ends."""
    rows, row, steps = 6 * runs, 11, 4
    height = rows * row
    colours = [CLIENTS[k % 6] for k in range(rows)]
    parts = [block(x, y + i * row, 54, row - 2, colour, 0.55) for i, colour in enumerate(colours)]
    parts.append(text(x + 27, y + height + 15, "reports", paper.quiet, text_anchor="middle", font_size=12))
    at = x + 64
    for number in range(steps):
        parts += [block(at, y + i * row, 44, row - 2, colour) for i, colour in enumerate(colours)]
        label = f"step {number + 1}" if number < 2 else ("…" if number == 2 else "step K")
        parts.append(text(at + 22, y + height + 15, label, paper.quiet, text_anchor="middle", font_size=12))
        at += 54
    return "".join(parts), at


def stacked(y: float, paper: Paper, runs: int = 1) -> tuple[str, float]:
    """All clients in one computation, and the host that prepares the next round; also the height."""
    drawn, end = stack(LEFT, y + 18, runs, paper)
    height = 66 * runs
    words = f"one computation for all clients{' of all runs' if runs > 1 else ''}, step by step"
    names = [f"run {r + 1}" for r in range(runs)] if runs > 1 else ["GPU"]
    host = y + 18 + height + 30
    parts = [
        heading(y, "stacked", words, paper),
        *(text(LEFT - 12, y + 18 + 66 * r + 37, name, paper.quiet, text_anchor="end", font_size=12)
          for r, name in enumerate(names)),
        drawn,
        server(end + 4, y + 18, height - 2, paper),
        text(end + END + 18, y + 46, "a row is one client with its", paper.quiet, font_size=12),
        text(end + END + 18, y + 62, "own parameters; on a GPU it", paper.quiet, font_size=12),
        text(end + END + 18, y + 78, "is replayed as CUDA graphs", paper.quiet, font_size=12),
        lane(host, "host", paper),
        f'<rect x="{LEFT}" y="{host}" width="{end - LEFT + END + 2:.0f}" height="24" rx="3" fill="{paper.box}" '
        f'stroke="{paper.quiet}" stroke-dasharray="4 3"/>',
        text(LEFT + 12, host + 17, "draws the minibatches of the next round", paper.ink, font_size=12),
    ]  # fmt: skip
    return "".join(parts), host + 34


def foot(y: float, paper: Paper) -> str:
    """What the colours mean."""
    return (
        f'<path d="M{LEFT} {y - 4}H{LEFT + 46}" stroke="{paper.quiet}" stroke-width="1.5" marker-end="url(#tip)"/>'
        + text(LEFT + 54, y, NOTE, paper.quiet, font_size=12)
        + f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path fill="{paper.quiet}" d="M0 0 8 4 0 8z"/></marker></defs>'
    )  # fmt: skip


def all_engines(paper: Paper) -> str:
    """The three engines below each other."""
    last, end = stacked(226, paper)
    title = "Six clients of a round on each engine: one after the other, on two workers, or as one stack"
    return svg(WIDTH, int(end) + 30, paper, title,
               sequential(28, paper), parallel(112, paper), last, foot(end + 14, paper))  # fmt: skip


def stacked_study(paper: Paper) -> str:
    """The stacked engine with two runs of a study."""
    drawn, end = stacked(28, paper, runs=2)
    title = "The stacked engine: the clients of two runs are rows of one computation"
    return svg(WIDTH, int(end) + 30, paper, title, drawn, foot(end + 14, paper))


def main() -> None:
    """Write all of them."""
    for paper in PAPERS:
        for name, draw in (("engines", all_engines), ("engine-stacked", stacked_study)):
            (HERE / f"{name}-{paper.name}.svg").write_text(draw(paper), encoding="utf-8")


if __name__ == "__main__":
    main()
