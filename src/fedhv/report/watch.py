"""The page of running studies, served to this machine only.

The server has two answers, the page and its data, both made in memory from the study. No path of a request is used as
a path of a file, so nothing outside the study can be read.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedhv._version import __version__
from fedhv.report.page import page
from fedhv.report.payload import payload
from fedhv.report.reading import Reader
from fedhv.report.study import read_study
from fedhv.support.errors import InputError

HOST = "127.0.0.1"


class LiveStudy:
    """The current study; its files are read again only if one of them has changed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._reader = Reader(folders)
        self._lock = threading.Lock()
        self._seen: Any = None
        self._data = b""
        self._page = b""

    def data(self) -> tuple[bytes, str]:
        """The page's data as JSON, and a tag that changes with it."""
        with self._lock:
            self._refresh()
            return self._data, _tag(self._data)

    def page(self) -> bytes:
        """The page."""
        with self._lock:
            self._refresh()
            if not self._page:
                self._page = page(read_study(self.folders, self._reader), live=True).encode()
            return self._page

    def _refresh(self) -> None:
        seen = self._reader.fingerprint()
        if seen != self._seen:
            study = read_study(self.folders, self._reader)
            self._data = json.dumps(payload(study) | {"live": True}, ensure_ascii=False, allow_nan=False).encode()
            self._page = b""
            self._seen = seen


class PageServer(ThreadingHTTPServer):
    """Serves the page and its data; every other request is refused."""

    daemon_threads = True

    def __init__(self, watcher: LiveStudy, port: int = 0) -> None:
        self.watcher = watcher
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"Port {port} of {HOST} cannot be used: {error}. Choose another with --port.") from None

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: PageServer
    server_version = f"fedhv/{__version__}"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """The page or its data."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """The same without its content."""
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        if not self._is_local_host():
            # DNS rebinding: another site's name resolves to this machine, to read the page through the user's browser.
            self._send(
                HTTPStatus.FORBIDDEN,
                b"The page is served at 127.0.0.1 and localhost only.\n",
                "text/plain",
                body,
            )
        elif self.path == "/":
            self._send(HTTPStatus.OK, self.server.watcher.page(), "text/html; charset=utf-8", body)
        elif self.path == "/data.json":
            data, tag = self.server.watcher.data()
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", body=False, tag=tag)
            else:
                self._send(HTTPStatus.OK, data, "application/json", body, tag=tag)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"Not found. The page is at /.\n", "text/plain", body)

    def _is_local_host(self) -> bool:
        port = self.server.server_port
        return self.headers.get("Host") in {f"{HOST}:{port}", f"localhost:{port}"}

    def _send(self, status: HTTPStatus, content: bytes, kind: str, body: bool, tag: str = "") -> None:
        self.send_response(status)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
        if tag:
            self.send_header("ETag", tag)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.end_headers()
        if body:
            with suppress(BrokenPipeError, ConnectionResetError):  # the browser has closed the connection
                self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing on the terminal."""


def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'
