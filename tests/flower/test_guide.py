"""The guide for many machines works as written: its nginx block, its run configuration, its services."""

from __future__ import annotations

import configparser
import getpass
import http.server
import re
import shutil
import ssl
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fedhv.flower.certificates import make_certificates
from fedhv.flower.processes import free_ports

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "flower-many-machines.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "flower"


class SuperLink(http.server.BaseHTTPRequestHandler):
    """Answers everything, and says what was asked."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = f"{self.path} {len(body)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy(tmp_path):
    """The guide's nginx block, with this machine's paths and ports, in front of a SuperLink; gives its address."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    made = make_certificates(tmp_path / "certificates", ["superlink.example.org", "127.0.0.1"], nodes=0)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SuperLink)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server, made.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (port,) = free_ports(1)
    (block,) = re.findall(r"```text\n(server \{.*?\n\})\n```", GUIDE, re.S)
    block = block.replace("listen 8443 ssl", f"listen 127.0.0.1:{port} ssl")
    block = block.replace("127.0.0.1:8000", f"127.0.0.1:{server.server_port}")
    block = block.replace("/etc/fedhv/", f"{tmp_path / 'certificates'}/")
    temporary = "".join(
        f"{kind}_temp_path {tmp_path};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"user {getpass.getuser()}; daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{block}\n}}\n"
    )
    process = subprocess.Popen([nginx, "-c", str(config), "-p", str(tmp_path), "-e", str(tmp_path / "error.log")])
    trusted = ssl.create_default_context(cafile=str(made.ca))
    trusted.check_hostname = False

    def post(path: str, size: int = 10) -> tuple[int, str]:
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data=b"x" * size)
        while True:
            try:
                with urllib.request.urlopen(request, context=trusted) as found:
                    return found.status, found.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, ""
            except urllib.error.URLError as error:
                if process.poll() is not None or not isinstance(error.reason, ConnectionRefusedError):
                    raise  # refused alone means that it has not started yet

    yield post
    process.terminate()
    process.wait()
    server.shutdown()


def test_the_nginx_block_passes_on_the_fleet_and_nothing_else(proxy):
    assert proxy("/v1/fleet/pull") == (200, "/v1/fleet/pull 10")
    assert proxy("/v1/fleet/object", 6_000_000)[0] == 200, "a piece of an array passes"
    assert proxy("/v1/fleet/object", 20_000_000)[0] == 413, "a body that no message has does not"
    for path in ("/v1/control/run", "/v1/runtime/pull", "/", "/v1/fleets/", "/v1/fleet/../control/run"):
        assert proxy(path)[0] == 403, path


def test_every_key_that_the_guide_names_is_in_the_example():
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    table = GUIDE[GUIDE.index("| key in `--run-config`") : GUIDE.index("A node that hangs")]
    keys = {
        key
        for line in table.splitlines()[2:]
        for key in re.findall(r"`([a-z-]+)`", line.split("|")[1] if "|" in line else "")
    }
    assert {"node-seconds", "reply-seconds", "quorum", "roster", "out"} <= keys
    assert keys <= set(config)
    assert config["out"], "a run is kept unless somebody asks for nothing"
    assert "reference" in config


UNITS = sorted((EXAMPLE / "systemd").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_services_and_finds_them_confined(tmp_path):
    """With commands that exist here; a directive that systemd does not know is a warning, which fails too."""
    for path in UNITS:
        text = path.read_text().replace("/opt/fedhv/bin/", f"{Path(sys.executable).parent}/")
        (tmp_path / path.name).write_text(text.replace("User=fedhv", f"User={getpass.getuser()}"))
    checked = [str(tmp_path / path.name.replace("@.", "@0.")) for path in UNITS]
    for path in UNITS:
        if "@." in path.name:
            (tmp_path / path.name.replace("@.", "@0.")).symlink_to(tmp_path / path.name)
    found = subprocess.run(["systemd-analyze", "verify", *checked], capture_output=True, text=True, check=False)
    assert (found.returncode, [line for line in found.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


def service(path):
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read_string(path.read_text().replace("\\\n", " "))
    return unit["Service"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_services_restart_and_are_bounded(path):
    found = service(path)
    assert found["Restart"] == "always"
    assert found["MemoryMax"].endswith("G")
    assert int(found["TasksMax"]) > 0
    assert found["KillMode"] == "mixed", "what is left of a killed service delays its restart"
    assert int(found["TimeoutStopSec"]) > 0


def test_the_superexec_serves_the_supernode_of_its_unit():
    units = {path.name: service(path)["ExecStart"] for path in UNITS}
    (port,) = re.findall(r"--port (\d+)", units["fedhv-supernode@.service"])
    assert units["fedhv-superexec@.service"].endswith(f"fedhv flower superexec 127.0.0.1:{port}")


@pytest.mark.parametrize("name", ["fedhv-superlink.service", "fedhv-supernode@.service"])
def test_services_have_the_options_of_the_guide(name):
    found = service(EXAMPLE / "systemd" / name)
    options = set(re.findall(r" (--[a-z-]+)", found["ExecStart"]))
    command = "flower-superlink" if "superlink" in name else "flower-supernode"
    section = GUIDE[GUIDE.index(f"\n{command} ") :]
    assert options >= set(re.findall(r" (--[a-z-]+)", section[: section.index("```")]))
