"""A user's module that cannot be imported is described in one line, with its file and line."""

import pytest

from fedhv.support.errors import InputError
from fedhv.support.imports import import_object


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "import json\nimport no_such_package_x\n",
            r"line 2: ModuleNotFoundError: No module named 'no_such_package_x'\.",
        ),
        ("\n\nvalue = 1 / 0\n", r"line 3: ZeroDivisionError: division by zero\. Correct the file\.$"),
        ("def broken(:\n", r"line 1: SyntaxError: invalid syntax\."),
        ("import json\njson.loads('nothing')\n", r"line 2: JSONDecodeError: "),
    ],
)
def test_an_error_in_a_users_module_has_its_file_and_line(source, said, tmp_path, monkeypatch):
    (tmp_path / "my_broken_rules.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"my_broken_rules\.py, " + said) as found:
        import_object("my_broken_rules:Mine", "method")
    assert "\n" not in str(found.value)


def test_the_error_for_a_module_that_is_not_there_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as found:
        import_object("no_such_module_x:Mine", "method")
    assert str(found.value) == (
        "The method 'no_such_module_x:Mine' could not be imported: No module named 'no_such_module_x'. Modules are "
        f"looked for in the working directory, {tmp_path}, and where Python finds packages."
    )
