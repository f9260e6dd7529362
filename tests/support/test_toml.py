"""Tables to TOML and back, and every key and type checked."""

import math
import tomllib
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhv import InputError
from fedhv.support import toml

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), text)
values = st.one_of(scalars, st.lists(scalars, max_size=4), st.lists(st.lists(scalars, max_size=2), max_size=2))
tables = st.recursive(
    st.dictionaries(text, values, max_size=4), lambda inner: st.dictionaries(text, st.one_of(values, inner), max_size=3)
)


@given(tables)
def test_what_is_written_reads_back_the_same(table):
    assert tomllib.loads(toml.write(table)) == table


unwritten = st.one_of(values, st.none(), st.tuples(scalars, st.lists(scalars, max_size=2)))
with_none = st.recursive(
    st.dictionaries(text, unwritten, max_size=3),
    lambda inner: st.dictionaries(text, st.one_of(unwritten, inner), max_size=3),
)


@given(with_none)
def test_tables_are_read_back_without_their_text_as_from_it(table):
    """Tuples as lists, without None, and without tables that have nothing but None."""
    assert toml.read_back(table) == toml.read_text(toml.write(table))


def test_numbers_are_read_back_as_pythons():
    back = toml.read_back({"a": np.float64(0.1), "b": (True, np.float64(2.0)), "c": {"d": math.nan}})
    assert [type(value) for value in (back["a"], *back["b"])] == [float, bool, float]
    assert math.isnan(back["c"]["d"])


def test_nan_and_infinity_survive():
    back = tomllib.loads(toml.write({"a": math.nan, "b": -math.inf}))
    assert math.isnan(back["a"])
    assert back["b"] == -math.inf


def test_none_is_left_out_and_comments_are_comments():
    written = toml.write({"a": None, "b": 1}, comment="two\nlines")
    assert written.startswith("# two\n# lines\n")
    assert tomllib.loads(written) == {"b": 1}


def test_numpys_numbers_are_written_as_pythons():
    assert toml.write({"a": np.float64(0.1), "b": [np.float64(2.0), 3]}) == "a = 0.1\nb = [2.0, 3]\n"


def test_what_has_no_place_in_toml_is_refused():
    for written in (toml.write, toml.read_back):
        with pytest.raises(TypeError, match="object"):
            written({"a": object()})


# --- dataclasses ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    size: int
    rate: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    kind: Literal["a", "b"] = "a"
    count: int | tuple[int, ...] = 1
    on: bool = True
    maybe: str | None = None
    extra: dict[str, tuple[float, ...]] = field(default_factory=dict)


FULL = {
    "name": "x",
    "inner": {"size": 3, "rate": 1},
    "kind": "b",
    "count": [1, 2],
    "on": False,
    "maybe": "y",
    "extra": {"r": [1, 2.5]},
}


def test_a_dataclass_is_built_from_tables():
    built = toml.build(Outer, FULL)
    assert built == Outer("x", Inner(3, 1.0), "b", (1, 2), False, "y", {"r": (1.0, 2.5)})
    assert isinstance(built.inner.rate, float)
    assert toml.build(Outer, {"name": "x", "inner": {"size": 3}}) == Outer("x", Inner(3))


def test_a_dataclass_survives_writing_and_reading():
    built = toml.build(Outer, FULL)
    assert toml.build(Outer, tomllib.loads(toml.write(toml.as_tables(built)))) == built


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nam": "x"}, "Unknown key 'nam'. Did you mean 'name'?"),
        ({"inner": {"size": 3, "rat": 1}}, "Unknown key 'inner.rat'. Did you mean 'inner.rate'?"),
        ({"inner": {"size": 3, "zzz": 1}}, "Known: inner.rate, inner.size"),
        ({"inner": {}}, "The key `inner.size` is missing."),
        ({"inner": {"size": 3.5}}, "`inner.size` should be a whole number. Found 3.5."),
        ({"inner": {"size": True}}, "`inner.size` should be a whole number. Found True."),
        ({"inner": {"size": 3, "rate": "fast"}}, "`inner.rate` should be a number. Found 'fast'."),
        ({"inner": 3}, "`inner` should be a table. Found 3."),
        ({"kind": "c"}, "`kind` should be 'a' or 'b'. Found 'c'."),
        ({"count": "many"}, "`count` should be a whole number or a list, each a whole number. Found 'many'."),
        ({"count": [1, "two"]}, "`count` should be"),
        ({"on": 1}, "`on` should be true or false. Found 1."),
        ({"name": 7}, "`name` should be text. Found 7."),
        ({"extra": {"r": 1.0}}, "`extra.r` should be a list, each a number. Found 1.0."),
    ],
)
def test_every_wrong_key_and_type_is_an_error_that_says_where(change, message):
    with pytest.raises(InputError) as caught:
        toml.build(Outer, FULL | change)
    assert message in str(caught.value)


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = = 1", "not valid TOML"), (b"\xff\xfe", "not valid TOML"), (b"#" * 16_000_001, "at most 16000000 bytes")],
)
def test_a_file_that_is_no_toml_is_refused_by_its_name(content, message, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        toml.read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path):
    with pytest.raises(InputError, match="could not be read"):
        toml.read(tmp_path / "none.toml")
    with pytest.raises(InputError, match="could not be read"):
        toml.read(tmp_path)
