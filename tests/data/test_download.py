import dataclasses
import gzip
import hashlib
import io
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tiny_datasets import cifar_contents, idx_contents

from fedhv.data import download, load_cifar10, load_mnist
from fedhv.data.catalogue import CIFAR10, MNIST, SOURCES, Official
from fedhv.support.errors import FedHVError, InputError

pytest.importorskip("requests")


class Server:
    """A local web server: files, whether it continues them, and how often it cuts an answer short."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.cuts: list[int] = []  # bytes after which the next answers break off
        self.statuses: list[int] = []  # status codes of the next answers
        self.seen: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                wanted = self.headers.get("Range")
                server.seen.append((self.path, wanted))
                body = server.files.get(self.path)
                if server.statuses:
                    return self.send_error(server.statuses.pop(0))
                if body is None:
                    return self.send_error(404)
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
                if start and start >= len(body):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return None
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                end = start + server.cuts.pop(0) if server.cuts else len(body)
                self.wfile.write(body[start:end])
                self.close_connection = True
                return None

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/"

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def tar_of(contents, extra=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in extra:
            archive.addfile(member)
    return out.getvalue()


def official(contents):
    return tuple(Official(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in contents.items())


CONTENTS = idx_contents()
RECORDS = {f"cifar-10-batches-bin/{name}": content for name, content in cifar_contents().items()}
IMAGES = "/train-images-idx3-ubyte.gz"


@pytest.fixture
def server(monkeypatch):
    server = Server()
    server.files = {f"/{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
    server.files["/cifar-10-binary.tar.gz"] = tar_of(RECORDS | {"cifar-10-batches-bin/readme.html": b"hello"})
    tiny = dataclasses.replace(MNIST, url=server.url, files=official(CONTENTS))
    monkeypatch.setitem(SOURCES, "mnist", tiny)
    monkeypatch.setitem(
        SOURCES, "cifar10", dataclasses.replace(CIFAR10, url=server.url, files=official(cifar_contents()))
    )
    monkeypatch.setattr(sys.modules["fedhv.data.fetch"], "PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.close()


def leftovers(root):
    return sorted(p.name for p in root.rglob("*") if p.is_file() and p.suffix in (".part", ".tmp"))


def test_files_are_fetched_verified_and_loaded(server, tmp_path):
    told = []
    said = download("mnist", tmp_path, lambda *report: told.append(report))
    assert "4 files fetched" in said
    assert load_mnist(tmp_path)[0].shape == (12, 28, 28)
    assert told[-1][0] == "t10k-labels-idx1-ubyte.gz"
    assert all(done <= total for _, done, total in told)
    assert leftovers(tmp_path) == []
    assert sorted(p.name for p in (tmp_path / "MNIST/raw").iterdir()) == sorted(f"{name}.gz" for name in CONTENTS)


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    download("mnist", tmp_path)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    server.seen.clear()
    assert "MNIST: 1 file fetched" in download("mnist", tmp_path)
    assert [path for path, _ in server.seen] == ["/t10k-labels-idx1-ubyte.gz"]
    server.seen.clear()
    assert "already" in download("mnist", tmp_path)
    assert server.seen == []


def test_a_cut_connection_is_continued_where_it_broke(server, tmp_path):
    server.cuts = [1000, 500]
    download("mnist", tmp_path)
    assert server.seen[:3] == [(IMAGES, None), (IMAGES, "bytes=1000-"), (IMAGES, "bytes=1500-")]
    assert load_mnist(tmp_path)[0].shape == (12, 28, 28)


def test_a_later_run_continues_the_partial_file(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["fedhv.data.fetch"], "ATTEMPTS", 1)
    server.cuts = [1000]
    ended = "the connection .*; 1000 bytes are kept, run the command again"
    with pytest.raises(FedHVError, match=ended) as caught:
        download("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == ["train-images-idx3-ubyte.gz.part"]
    download("mnist", tmp_path)
    assert server.seen[1] == (IMAGES, "bytes=1000-")
    assert leftovers(tmp_path) == []


def test_where_nothing_was_fetched_nothing_is_promised(server, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["fedhv.data.fetch"], "ATTEMPTS", 1)
    server.cuts = [0]
    with pytest.raises(
        FedHVError, match="check the connection and run the command again, or put the files there by hand"
    ):
        download("mnist", tmp_path)


def test_a_server_that_cannot_continue_starts_over(server, tmp_path):
    server.ranges, server.cuts = False, [1000]
    download("mnist", tmp_path)
    assert load_mnist(tmp_path)[0].shape == (12, 28, 28)


def test_a_complete_partial_file_needs_no_bytes(server, tmp_path):
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    (folder / (IMAGES[1:] + ".part")).write_bytes(server.files[IMAGES])
    download("mnist", tmp_path)
    assert server.seen[0] == (IMAGES, f"bytes={len(server.files[IMAGES])}-")
    assert server.seen[1][0] != IMAGES


@pytest.mark.parametrize("size", [300, 10**6])
def test_a_partial_file_of_something_else_is_replaced(server, tmp_path, size):
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    (folder / (IMAGES[1:] + ".part")).write_bytes(b"x" * size)
    download("mnist", tmp_path)
    assert load_mnist(tmp_path)[0].shape == (12, 28, 28)
    assert leftovers(tmp_path) == []


def test_a_passing_fault_of_the_server_is_tried_again(server, tmp_path):
    server.statuses = [503, 429]
    assert "4 files fetched" in download("mnist", tmp_path)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (gzip.compress(idx_contents(seed=9)["train-images-idx3-ubyte"]), "SHA-256"),
        (gzip.compress(CONTENTS["train-images-idx3-ubyte"] + b"!"), "SHA-256"),
        (gzip.compress(CONTENTS["train-images-idx3-ubyte"])[:-20], "truncated"),
        (b"<html>not found</html>", "SHA-256"),
        (gzip.compress(bytes(1 << 24)), "more than"),
    ],
)
def test_wrong_content_is_never_put_in_place(server, tmp_path, body, says):
    server.files[IMAGES] = body
    with pytest.raises(FedHVError, match=says) as caught:
        download("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert server.url in str(caught.value)
    assert list((tmp_path / "MNIST/raw").iterdir()) == []


def test_a_wrong_file_in_the_way_is_named_and_kept(server, tmp_path):
    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match="Move or delete it") as caught:
        download("mnist", tmp_path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b"mine"


def test_an_absent_file_on_the_server_is_one_line(server, tmp_path):
    del server.files[IMAGES]
    with pytest.raises(FedHVError, match="404") as caught:
        download("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == []


def test_no_server_is_one_line(server, tmp_path, monkeypatch):
    gone = dataclasses.replace(SOURCES["mnist"], url="http://127.0.0.1:9/")
    monkeypatch.setitem(SOURCES, "mnist", gone)
    with pytest.raises(FedHVError, match="Cannot download http://127") as caught:
        download("mnist", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_larger_than_expected_is_refused_early(server, tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], largest=100))
    with pytest.raises(FedHVError, match="at most 100 bytes"):
        download("mnist", tmp_path)


def test_cifar_is_unpacked_and_the_archive_removed(server, tmp_path):
    assert "6 files" in download("cifar10", tmp_path)
    assert load_cifar10(tmp_path)[0].shape == (10, 3, 32, 32)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cifar-10-batches-bin"]
    assert len(list((tmp_path / "cifar-10-batches-bin").iterdir())) == 6


def test_an_archive_that_is_already_there_is_used_and_kept(server, tmp_path):
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(server.files["/cifar-10-binary.tar.gz"])
    said = download("cifar10", tmp_path)
    assert "unpacked from cifar-10-binary.tar.gz" in said
    assert server.seen == []
    assert archive.exists()
    assert load_cifar10(tmp_path)[2].shape == (2, 3, 32, 32)


def link(name, target, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


FIRST = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.mark.parametrize(
    ("contents", "extra", "says"),
    [
        ({n: c for n, c in RECORDS.items() if n != FIRST}, (link(FIRST, "/etc/passwd"),), "found 0"),
        ({n: c for n, c in RECORDS.items() if n != FIRST}, (link(FIRST, "", tarfile.FIFOTYPE),), "found 0"),
        ({n: c for n, c in RECORDS.items() if n != FIRST}, (), "found none of that name"),
        (RECORDS | {FIRST: b"short"}, (), "found 5"),
        (RECORDS | {FIRST: bytes(2 * 3073)}, (), "SHA-256"),
    ],
)
def test_an_archive_that_is_not_the_official_one_leaves_nothing(server, tmp_path, contents, extra, says):
    root = tmp_path / "deep/root"
    server.files["/cifar-10-binary.tar.gz"] = tar_of(contents, extra)
    with pytest.raises(FedHVError, match=says) as caught:
        download("cifar10", root)
    assert "\n" not in str(caught.value)
    assert [p for p in tmp_path.rglob("*") if not p.is_dir()] == []


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"no archive", lambda b: gzip.compress(b"no tar" * 200)]
)
def test_a_damaged_archive_is_named(server, tmp_path, damage):
    server.files["/cifar-10-binary.tar.gz"] = damage(server.files["/cifar-10-binary.tar.gz"])
    with pytest.raises(FedHVError, match=r"cifar-10-binary\.tar\.gz"):
        download("cifar10", tmp_path)
    assert [p for p in tmp_path.rglob("*") if not p.is_dir()] == []


def test_celeba_shows_its_terms_and_fetches_nothing(tmp_path):
    said = download("celeba", tmp_path)
    for part in ("non-commercial", "mmlab.ie.cuhk.edu.hk", str(tmp_path / "celeba/list_attr_celeba.txt")):
        assert part in said
    assert list(tmp_path.iterdir()) == []


def test_only_expected_files_are_unpacked(server, tmp_path):
    """Whatever else an archive names is not even read."""
    others = (link("cifar-10-batches-bin/evil", "/etc/passwd"), link("evil", FIRST, tarfile.LNKTYPE))
    server.files["/cifar-10-binary.tar.gz"] = tar_of(RECORDS | {"../evil": b"x", "/tmp/evil": b"x"}, others)
    root = tmp_path / "deep/root"
    download("cifar10", root)
    found = sorted(str(p.relative_to(root)) for p in tmp_path.rglob("*") if not p.is_dir())
    assert found == sorted(RECORDS)


def test_a_full_disk_keeps_what_arrived(server, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.modules["fedhv.data.download"], "write_atomically", full)
    with pytest.raises(InputError, match="no space left on device"):
        download("cifar10", tmp_path)
    assert leftovers(tmp_path) == ["cifar-10-binary.tar.gz.part"]


def test_unknown_names_are_suggested(tmp_path):
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        download("mnits", tmp_path)


def test_without_requests_the_extra_is_named(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(InputError, match=r"fedhv\[data\]"):
        download("mnist", tmp_path)


def test_the_official_addresses_and_hashes_are_well_formed():
    for source in SOURCES.values():
        assert source.url.startswith(("https://", "http://fashion-mnist.s3-website."))
        assert source.url.endswith("/")
        assert all(len(bytes.fromhex(file.sha256)) == 32 for file in source.files)
    assert len({file.sha256 for source in SOURCES.values() for file in source.files}) == 16


@pytest.mark.parametrize(("remote", "kept"), [(None, "table.csv.gz"), ("TABLE.csv", "table.csv")])
def test_a_table_is_fetched_under_its_name_on_the_web(server, tmp_path, monkeypatch, remote, kept):
    text = b"a,b\n1,2\n"
    file = Official("table.csv", len(text), hashlib.sha256(text).hexdigest(), remote)
    source = dataclasses.replace(SOURCES["star"], name="table", folder="table", url=server.url, files=(file,))
    monkeypatch.setitem(SOURCES, "table", source)
    server.files = {"/TABLE.csv": text, "/table.csv.gz": gzip.compress(text)}
    assert "1 file fetched" in download("table", tmp_path)
    assert [path.name for path in (tmp_path / "table").iterdir()] == [kept]
    assert "already" in download("table", tmp_path)
