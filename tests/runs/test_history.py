"""The history: one line a round; a crash costs at most the line that was being written."""

import json

import pytest

from fedhv import InputError
from fedhv.runs.history import NAME, Following, History, evaluations, read_history

RECORDS = [{"round": t, "weights": [0.5, 0.5], "evaluation": {"tasks": ["größe"]}} for t in (1, 2, 3)]


@pytest.fixture
def folder(tmp_path):
    history = History(tmp_path)
    for record in RECORDS:
        history.append(record)
    history.close()
    return tmp_path


def test_every_round_is_one_line_of_json(folder):
    lines = (folder / NAME).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == RECORDS
    assert read_history(folder) == RECORDS


def test_a_line_is_on_disk_as_soon_as_the_round_is_over(tmp_path):
    history = History(tmp_path)
    history.append(RECORDS[0])
    assert read_history(tmp_path) == RECORDS[:1]
    history.close()


def test_without_a_folder_the_history_is_kept_in_memory():
    history = History(None)
    history.append(RECORDS[0])
    history.close()
    assert history.records == RECORDS[:1]


def test_a_last_line_cut_anywhere_is_left_out(folder):
    path = folder / NAME
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    # at every byte, also within the two of "ö"; without its newline alone, the line is whole
    for end in range(start, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert read_history(folder) == RECORDS[:2], end
    path.write_bytes(whole[:-1])
    assert read_history(folder) == RECORDS


def test_going_on_keeps_the_rounds_before_and_drops_those_after(folder):
    history = History(folder, keep=1)
    assert history.records == RECORDS[:1]
    assert read_history(folder) == RECORDS[:1]
    history.append(RECORDS[1])
    history.close()
    assert read_history(folder) == RECORDS[:2]


def test_going_on_after_a_cut_line_writes_a_whole_file(folder):
    path = folder / NAME
    path.write_bytes(path.read_bytes()[:-9])
    history = History(folder, keep=2)
    history.append(RECORDS[2])
    history.close()
    assert read_history(folder) == RECORDS


def test_a_new_run_starts_an_empty_history(folder):
    History(folder).close()
    assert read_history(folder) == []


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"weights": []}', '{"round": "one"}', "\udcff"])
def test_a_broken_line_in_the_middle_is_refused_by_its_number(line, folder):
    path = folder / NAME
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[1] = line
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="line 2: not a round of a history"):
        read_history(folder)


def test_a_history_that_lacks_rounds_of_the_checkpoint_is_refused_with_the_remedy(folder):
    with pytest.raises(InputError, match=r"does not hold rounds 1 to 4. Delete"):
        History(folder, keep=4)


def test_a_folder_without_a_history_has_no_rounds(tmp_path):
    assert read_history(tmp_path) == []


def test_evaluated_rounds_are_found():
    assert evaluations([{"round": 1}, RECORDS[1], {"round": 3}]) == [RECORDS[1]]


def test_a_followed_history_gives_every_round_once_and_reads_only_what_is_new(tmp_path):
    followed = Following(tmp_path)
    assert followed.news() == []  # it is not there yet
    path = tmp_path / "history.jsonl"
    path.write_text('{"round":1}\n{"round":2,"evaluation":{}}\n{"rou')
    assert [record["round"] for record in followed.news()] == [1, 2]
    with path.open("a") as file:
        file.write('nd":3}\n')
    assert [record["round"] for record in followed.news()] == [3]
    assert followed.news() == []
    assert (followed.count, followed.last_evaluated["round"], followed.restarts) == (3, 2, 0)


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_followed_history_begins_again_when_its_run_is_resumed(rounds, tmp_path):
    """Also where the new file is as long as the old one."""
    history = History(tmp_path)
    for number in range(1, 4):
        history.append({"round": number, "evaluation": {"of": number}})
    history.close()
    followed = Following(tmp_path)
    assert len(followed.news()) == 3
    resumed = History(tmp_path, keep=rounds)
    assert [record["round"] for record in followed.news()] == list(range(1, rounds + 1))
    assert (followed.count, followed.restarts) == (rounds, 1)
    assert followed.last_evaluated["round"] == rounds
    resumed.close()
