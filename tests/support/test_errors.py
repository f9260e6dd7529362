"""Errors are one line, whatever they quote."""

import pytest

from fedhv.support.errors import Diverged, FedHVError, InputError, unknown


@pytest.mark.parametrize("kind", [FedHVError, InputError, Diverged])
def test_what_a_user_typed_cannot_break_the_line_or_drive_the_terminal(kind):
    error = kind("expected a name. Found 'a\nb\tc\x1b[2Jd\x00e\u2028f'.")
    assert str(error) == "expected a name. Found 'a b c\ufffd[2Jd\ufffde f'."


def test_plain_text_stays_as_it_is():
    assert str(InputError("größe α ∈ [0, 1]")) == "größe α ∈ [0, 1]"
    assert "Did you mean 'fedhv'?" in str(unknown("method", "fedhvv", ["fedhv"]))


def test_a_name_of_a_million_letters_is_compared_with_none_and_refused_in_few_words(monkeypatch):
    monkeypatch.setattr("difflib.get_close_matches", None)  # its time grows with the square of the length
    error = unknown("key", "ab" * 500_000, ["abab", "training"])
    assert len(str(error)) < 300
    assert "…'. Known: abab, training." in str(error)


def test_a_long_error_keeps_its_beginning_and_its_remedy():
    said = str(InputError(f"`x` should be short. Found {'y' * 1_000_000}. Choose another."))
    assert len(said) < 5000
    assert said.startswith("`x` should be short. Found yyy")
    assert said.endswith("yyy. Choose another.")
