"""`fedhv data where`, `verify` and `download`, as a user types them."""

import dataclasses
import gzip
import hashlib
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console
from tiny_datasets import idx_contents, write_idx

from fedhv.data.catalogue import MNIST, SOURCES, Official
from fedhv.support.bars import counts, downloads

CONTENTS = idx_contents()


@pytest.fixture
def tiny(monkeypatch):
    """MNIST is a dozen images, served from this machine."""
    packed = {f"/{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = packed[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    files = tuple(Official(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in CONTENTS.items())
    url = f"http://127.0.0.1:{http.server_port}/"
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(MNIST, url=url, files=files))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield
    http.shutdown()
    http.server_close()


def test_where_says_which_folder_and_why(command, tmp_path, monkeypatch):
    write_idx(tmp_path / "d/MNIST/raw")
    done = command("data", "where", "--data", "d")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"{tmp_path / 'd'} (--data)"
    assert lines[1:3] == ["  mnist: MNIST/raw", "  fashion-mnist: FashionMNIST/raw, not there"]
    monkeypatch.setenv("FEDHV_DATA", str(tmp_path / "e"))
    found = json.loads(command("data", "where", "--json").out)
    assert (found["path"], found["origin"], found["exists"]) == (str(tmp_path / "e"), "FEDHV_DATA", False)
    assert found["datasets"]["celeba"] == {"folder": str(tmp_path / "e/celeba"), "there": False}


def test_where_looks_for_files_and_not_for_folders(command, tmp_path):
    for folder in ("MNIST/raw", "cifar-10-batches-bin", "celeba/img_align_celeba"):
        (tmp_path / "d" / folder).mkdir(parents=True)
    write_idx(tmp_path / "d/FashionMNIST/raw", compressed=False)
    assert command("data", "where", "--data", "d").out.splitlines()[1:] == [
        "  mnist: MNIST/raw, not there",
        "  fashion-mnist: FashionMNIST/raw",
        "  cifar10: cifar-10-batches-bin, not there",
        "  tox21: tox21, not there",
        "  star: star, not there",
        "  celeba: celeba, not there",
    ]
    (tmp_path / "d/FashionMNIST/raw" / MNIST.files[0].name).unlink()
    (tmp_path / "d/celeba/celeba-32x32-train.npz").write_text("")
    lines = command("data", "where", "--data", "d").out.splitlines()
    assert lines[2] == "  fashion-mnist: FashionMNIST/raw, not complete"
    assert lines[6] == "  celeba: celeba, not complete"
    (tmp_path / "d/celeba/celeba-32x32-test.npz").write_text("")
    found = json.loads(command("data", "where", "--data", "d", "--json").out)["datasets"]
    assert {name: each["there"] for name, each in found.items()} == {
        "mnist": False, "fashion-mnist": False, "cifar10": False, "tox21": False, "star": False, "celeba": True
    }  # fmt: skip


def test_a_dataset_is_downloaded_verified_and_not_fetched_again(command, tiny, tmp_path):
    done = command("data", "download", "mnist", "--data", "d")
    assert done.code == 0
    assert "MNIST: 4 files fetched" in done.out
    assert "t10k-labels-idx1-ubyte.gz: 34 bytes" in done.err
    verified = command("data", "verify", "--data", "d")
    assert verified.code == 0
    assert verified.out.count("verified") == 4
    again = command("data", "download", "mnist", "--data", "d", "--quiet")
    assert (again.code, again.err) == (0, "")
    assert "already" in again.out


def test_what_is_damaged_or_not_complete_has_exit_code_1(command, tiny, tmp_path):
    write_idx(tmp_path / "d/MNIST/raw")
    assert command("data", "verify", "--data", "d").code == 0
    path = tmp_path / "d/MNIST/raw/t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-3])
    found = command("data", "verify", "--data", "d", "--json")
    assert found.code == 1
    states = {row["path"]: (row["state"], row["ok"]) for row in json.loads(found.out)["findings"]}
    assert states[str(path)] == ("damaged", False)
    assert states[str(path.with_name("train-images-idx3-ubyte.gz"))] == ("verified", True)
    path.unlink()
    partly = command("data", "verify", "--data", "d")
    assert partly.code == 1
    assert "fedhv data download mnist" in partly.out


def test_a_folder_without_any_dataset_has_exit_code_1(command):
    done = command("data", "verify", "--data", "d")
    assert done.code == 1
    assert done.out.count("missing") == 6


def test_celeba_is_not_fetched_but_explained(command, tmp_path):
    done = command("data", "download", "celeba", "--data", "d")
    assert done.code == 0
    assert "non-commercial research only" in done.out
    assert str(tmp_path / "d/celeba") in done.out
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("download", "mnst"), "Did you mean 'mnist'?"),
        (("where", "--data", "file"), "should be a folder"),
        (("verify", "--data", "file"), "should be a folder"),
        (("download", "mnist", "--data", "file"), "should be a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command, tmp_path, arguments, reason):
    (tmp_path / "file").write_text("")
    done = command("data", *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert reason in done.err


def test_on_a_terminal_every_file_has_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with downloads(console=console) as progress:
        progress.update("a.gz", 500_000, 2_000_000)
        progress.update("a.gz", 2_000_000, 2_000_000)
        progress.update("b.gz", 10, None)
    printed = console.file.getvalue()
    assert "a.gz" in printed
    assert "2.0/2.0 MB" in printed
    assert "b.gz" in printed


@pytest.mark.parametrize(("quiet", "said"), [(False, "CelebA: resizing images: 2,000 …\nothers …\n"), (True, "")])
def test_without_a_terminal_what_takes_long_is_said_when_it_begins(quiet, said):
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    with counts(quiet, console) as progress:
        progress.update("CelebA: resizing images", 1, 2000)
        progress.update("CelebA: resizing images", 2000, 2000)
        progress.update("others", 1, None)
    assert console.file.getvalue() == said


def test_on_a_terminal_what_is_counted_has_a_bar_and_what_never_begins_has_none():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with counts(console=console):
        pass
    assert console.file.getvalue() == ""
    with counts(console=console) as progress:
        progress.update("images", 7, 2000)
    assert "7/2000" in console.file.getvalue()
