"""What the drawings of the documentation share: the colours of light and dark pages, text, and the frame of an SVG."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """The colours of a page."""

    name: str
    ground: str
    ink: str
    quiet: str
    grid: str
    box: str


PAPERS = (
    Paper("light", "#ffffff", "#1b1f24", "#57606a", "#e1e5ea", "#f2f5f7"),
    Paper("dark", "#0d1117", "#e8eaed", "#a3abb5", "#2a2f37", "#1b222b"),
)


def text(x: float, y: float, words: str, fill: str, **options: object) -> str:
    """A line of text."""
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in options.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{extra}>{words}</text>'


def low(letter: str) -> str:
    """A subscript."""
    return f'<tspan dy="4" font-size="9">{letter}</tspan><tspan dy="-4">\u200b</tspan>'


def svg(width: int, height: int, paper: Paper, title: str, *parts: str) -> str:
    """A drawing with a title for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{title}" font-family="system-ui, -apple-system, Segoe UI, Arial, sans-serif" '
        f'font-size="13"><title>{title}</title><rect width="{width}" height="{height}" rx="8" fill="{paper.ground}"/>'
        + "\n".join(parts)
        + "</svg>\n"
    )
