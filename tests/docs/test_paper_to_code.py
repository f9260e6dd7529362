"""The page from paper to code covers every printed number, and what it names exists."""

from __future__ import annotations

import ast
import importlib
import re

from docs import pages

PAGE = pages.ROOT / "docs" / "explanation" / "paper-to-code.md"
KINDS = "Equation|Theorem|Lemma|Proposition|Corollary|Definition|Assumption|Remark|Table|Figure"
# The paper is not in the repository. These are its printed numbers.
NUMBERS = {
    "Equation": [str(n) for n in range(1, 103)],
    "Table": [str(n) for n in range(1, 14)],
    "Figure": [str(n) for n in range(1, 21)],
    "Theorem": ["4.1", "A.15", "A.22"],
    "Proposition": ["4.3", "4.4"],
    "Corollary": ["4.2", "A.24", "A.25", "A.26", "A.29"],
    "Definition": ["A.27", "A.33"],
    "Remark": ["A.5", "A.16", "A.23"],
    "Assumption": ["A.1", "A.2", "A.3", "A.4", "A.9", "A.12", "A.18"],
    "Lemma": [f"A.{n}" for n in (6, 7, 8, 10, 11, 13, 14, 17, 19, 20, 21, 28, 30, 31, 32, 34)],
}
ALGORITHM_LINES = range(1, 21)


def rows():
    """The first cell of every row, and the others together."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| number", "| line")):
            first, *others = [cell.strip() for cell in line.strip("|").split("|")]
            yield first, " ".join(others)


def listed(cell):
    """`Equation 11, 12 to 14, Lemma A.20` as pairs of kind and number."""
    kind = ""
    for part in cell.split(", "):
        named, numbers = re.fullmatch(rf"(?:({KINDS}) )?([\w.]+(?: to \w+)?)", part).groups()
        kind = named or kind
        first, _, last = numbers.partition(" to ")
        yield from ((kind, str(n)) for n in range(int(first), int(last) + 1)) if last else [(kind, first)]


def exists(name):
    """Whether a dotted name leads to a module, or to something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def test_every_printed_number_is_there_once_or_more():
    covered = {pair for first, _ in rows() for pair in listed(first) if pair[0]}
    assert covered == {(kind, number) for kind, numbers in NUMBERS.items() for number in numbers}


def test_every_line_of_the_algorithm_is_there():
    covered = {int(number) for first, _ in rows() for kind, number in listed(first) if not kind}
    assert covered == set(ALGORITHM_LINES)


def test_every_row_names_a_function_and_a_test():
    bare = [first for first, others in rows() if "`fedhv." not in others or "::test_" not in others]
    assert bare == []


def test_every_function_that_is_named_exists():
    named = set(re.findall(r"`(fedhv(?:\.\w+)+)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 60
    assert [name for name in sorted(named) if not exists(name)] == []


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8")))
    defined = {
        path: {node.name for node in ast.walk(ast.parse((pages.ROOT / path).read_text(encoding="utf-8")))
               if isinstance(node, ast.FunctionDef)}
        for path in {path for path, _ in named}
    }  # fmt: skip
    assert [f"{path}::{test}" for path, test in sorted(named) if test not in defined[path]] == []
