"""Datasets that are one CSV file: reading, verifying and fetching them."""

import dataclasses
import gzip
import hashlib

import pytest

from fedhv.data import verify
from fedhv.data.catalogue import SOURCES, STAR, TOX21, Official, Source
from fedhv.data.table import load_table, numbers, read_table
from fedhv.support.errors import InputError

TINY = Source("tiny", "Tiny", "tiny", "https://nowhere/", (Official("tiny.csv", 0, ""),), columns=("a", "b"))


def written(folder, text, name="tiny.csv"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["tiny.csv", "tiny.csv.gz"])
def test_the_needed_columns_are_read_in_any_order_and_packing(tmp_path, name):
    written(tmp_path / "tiny", 'b,more,a\n1,x,"2, 3"\n,y,4\n', name)
    assert load_table(tmp_path, TINY) == {"a": ["2, 3", "4"], "b": ["1", ""]}


def test_empty_entries_of_numbers_are_nan():
    assert str(numbers({"b": ["1.5", "", "NA"]}, "b")) == "[1.5, nan, nan]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected the column 'a'"),
        ("a,c\n1,2\n", "expected the column 'b', found"),
        ("a,b\n", "expected rows below the header, found none"),
        ("a,b\n1\n", "line 2: expected 2 fields, found 1"),
        ('a,b\n1,"2\n', "expected a CSV file, found something else"),
    ],
)
def test_damaged_tables_are_one_line(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as caught:
        read_table(written(tmp_path, text), TINY)
    assert "\n" not in str(caught.value)


def test_what_is_too_large_or_no_text_is_refused(tmp_path):
    with pytest.raises(InputError, match="found more than 10 bytes"):
        read_table(written(tmp_path, "a,b\n" + "1,2\n" * 9), dataclasses.replace(TINY, largest=10))
    path = tmp_path / "binary.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="expected a CSV file"):
        read_table(path, TINY)


def test_other_versions_of_a_table_are_readable_and_others_damaged(tmp_path, monkeypatch):
    text = "a,b\n1,2\n"
    official = Official("tiny.csv", len(text), hashlib.sha256(text.encode()).hexdigest())
    monkeypatch.setitem(SOURCES, "tiny", dataclasses.replace(TINY, files=(official,)))

    def found():
        return next(f for f in verify(tmp_path) if f.dataset == "Tiny")

    written(tmp_path / "tiny", text)
    assert found().state == "verified"
    written(tmp_path / "tiny", "a,b\n1.0,2.0\n")
    assert (found().state, found().detail) == ("readable", "another version of the table, 1 rows")
    written(tmp_path / "tiny", "a,c\n1.0,2.0\n")
    assert found().state == "damaged"


def test_names_on_disk_and_on_the_web():
    assert TOX21.files[0].packed  # tox21.csv.gz on both
    assert (STAR.files[0].name, STAR.files[0].remote, STAR.files[0].packed) == ("star.csv", "STAR.csv", False)
