"""The server of a live page: two answers, to this machine alone, and never a file."""

from __future__ import annotations

import http.client
import json
import signal
import urllib.request

import pytest
from waiting import HANG

from fedhv.report.watch import LiveStudy, PageServer
from fedhv.support.errors import InputError
from report.studies import write_run, write_study
from report.test_page import data_of


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=HANG)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_page_may_ask_its_own_server_and_nobody_else(serve, tmp_path):
    server = serve(write_study(tmp_path / "s"))
    answer, body = ask(server, "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"connect-src 'self'" in body
    assert data_of(body.decode())["live"] is True
    assert server.url == f"http://127.0.0.1:{server.server_port}/"
    assert server.server_address[0] == "127.0.0.1"


def test_data_change_with_the_runs_and_only_then(serve, tmp_path):
    server = serve(write_study(tmp_path / "s", ("fedhv",), (0,), rounds=12))
    first, body = ask(server, "/data.json")
    tag = first.headers["ETag"]
    again, empty = ask(server, "/data.json", If_None_Match=tag)
    assert (again.status, empty) == (304, b"")
    write_run(tmp_path / "s" / "later", method="uniform", rounds=12, done=4)
    changed, news = ask(server, "/data.json", If_None_Match=tag)
    assert changed.status == 200
    assert changed.headers["ETag"] != tag
    assert [len(json.loads(text)["settings"][0]["runs"]) for text in (body, news)] == [1, 2]
    runs = data_of(ask(server, "/")[1].decode())["settings"][0]["runs"]
    assert [run["name"] for run in runs] == ["later", "fedhv-seed0"]


PATHS = (
    "/index.html",
    "/fedhv-seed0/config.toml",
    "/../../etc/passwd",
    "//etc/passwd",
    "/%2e%2e/secret",
    "/data.json?x",
    "/data.json/../history.jsonl",
    "/.",
    "http://example.org/",
    "*",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_to_a_file(serve, tmp_path, path):
    server = serve(write_study(tmp_path / "s"))
    answer, body = ask(server, path)
    assert answer.status in (400, 403, 404)
    assert b"[run]" not in body
    assert b"root:" not in body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost", ""])
def test_other_names_for_this_machine_are_refused(serve, tmp_path, host):
    server = serve(write_study(tmp_path / "s"))
    for path in ("/", "/data.json"):
        answer, body = ask(server, path, Host=host)
        assert answer.status == 403
        assert b"fedhv-seed0" not in body


def test_localhost_is_this_machine(serve, tmp_path):
    server = serve(write_study(tmp_path / "s"))
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_sent(serve, tmp_path, method):
    server = serve(write_study(tmp_path / "s"))
    assert ask(server, "/", method)[0].status == 501


def test_heads_have_no_body_and_every_answer_its_headers(serve, tmp_path):
    server = serve(write_study(tmp_path / "s"))
    answer, body = ask(server, "/", "HEAD")
    assert (answer.status, body) == (200, b"")
    for path in ("/", "/data.json", "/nothing"):
        headers = ask(server, path)[0].headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


def test_a_study_without_runs_waits_for_them(serve, tmp_path):
    server = serve(tmp_path)
    assert json.loads(ask(server, "/data.json")[1])["notes"] == ["no runs yet"]


def test_a_port_that_is_taken_is_said(tmp_path, serve):
    taken = serve(tmp_path).server_port
    with pytest.raises(InputError, match=rf"Port {taken} .* --port"):
        PageServer(LiveStudy([tmp_path]), taken)


def test_ctrl_c_stops_the_command_cleanly(process, tmp_path):
    running = process("watch", write_study(tmp_path / "s"), PYTHONUNBUFFERED="1")
    line = running.stdout.readline()
    url = line.split()[4]
    with urllib.request.urlopen(url, timeout=HANG) as answer:
        assert answer.status == 200
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=HANG)
    assert running.returncode == 0
    assert out == "Stopped.\n"
    assert err == ""
