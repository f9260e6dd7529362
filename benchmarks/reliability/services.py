"""The systemd units of `examples/flower/systemd`, run by a real systemd.

    sudo python benchmarks/reliability/services.py [--out results/reliability]

Boots systemd as the first process of its own namespaces (processes, mounts, network, control groups), on an overlay of
this machine's root folder that is removed afterwards. There the units are used as they are, with the guide's paths,
names and nginx block: `/opt/fedhv`, `/etc/fedhv`, `/var/lib/fedhv`, the user `fedhv`, `superlink.example.org`. Only the
second SuperNode has a changed command, because two on one machine need two ports; its apps are started by
`fedhv-superexec@1`.

Then: services start and run the example; every process of a service is killed and started again; limits of memory and
processes are read from the kernel, and the one of memory is reached; what a service may not touch is tried; server
certificate and services are renewed. Where this is not permitted the script says why and ends with exit code 77.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, Notes, machine, table, write_csv

SKIPPED = 77
EXAMPLE = ROOT / "examples" / "flower"
HOST = "superlink.example.org"
COMMANDS = ("flower-superlink", "flower-supernode", "flower-superexec", "flwr", "flwr-serverapp", "flwr-clientapp")
NEEDED = ("systemd-cgls", "unshare", "nsenter", "pivot_root", "nginx", "ip", "useradd")
SYSTEMD = Path("/lib/systemd/systemd")
SUPERLINK, NODES = "fedhv-superlink", ("fedhv-supernode@0", "fedhv-supernode@1")
SUPEREXEC = "fedhv-superexec@1"
ROUNDS = 3
PATIENCE = 900.0
"""Seconds that anything may take."""


class Skip(Exception):
    """Why this cannot be done here."""


# --- the machine ------------------------------------------------------------------------------------------------


def call(*words: object) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip(f"{' '.join(map(str, words))}: {' '.join((done.stdout + done.stderr).split())}")


def boot(home: Path) -> None:
    """In new namespaces: make the root folder, and become its systemd."""
    upper, work, root = home / "upper", home / "work", home / "root"
    call("mount", "-t", "tmpfs", "-o", "size=2g", "none", home)
    for folder in (upper, work, root):
        folder.mkdir()
    call("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", root)
    prepare(root)
    call("mount", "-t", "proc", "proc", root / "proc")
    call("mount", "-t", "sysfs", "sysfs", root / "sys")
    for name in ("run", "tmp"):
        call("mount", "-t", "tmpfs", "none", root / name)
    devices(root / "dev")
    control_groups(root / "sys" / "fs" / "cgroup")
    call("ip", "link", "set", "lo", "up")
    os.chdir(root)
    (root / "old").mkdir()
    call("pivot_root", ".", "old")
    os.chroot(".")
    call("umount", "-l", "/old")
    environment = {"container": "fedhv", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    words = ["--system", "--unit=multi-user.target", "--log-target=journal", "--show-status=no"]
    os.execve(SYSTEMD, [str(SYSTEMD), *words], environment)


def devices(folder: Path) -> None:
    call("mount", "-t", "tmpfs", "-o", "mode=755", "none", folder)
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (folder / name).touch()
        call("mount", "--bind", f"/dev/{name}", folder / name)
    for name in ("shm", "pts"):
        (folder / name).mkdir()
    call("mount", "-t", "tmpfs", "none", folder / "shm")
    call("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", folder / "pts")
    for name, target in {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdout": "fd/1", "stderr": "fd/2"}.items():
        (folder / name).symlink_to(target)


def control_groups(folder: Path) -> None:
    """The hierarchies of this machine, as seen from the new namespace."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        call("mount", "-t", "cgroup2", "cgroup2", folder)
        return
    call("mount", "-t", "tmpfs", "-o", "mode=755", "none", folder)
    for _, controller, _ in own_groups():
        name = controller.removeprefix("name=") or "unified"
        (folder / name).mkdir()
        kind = ["-t", "cgroup", "-o", f"none,{controller}" if "=" in controller else controller]
        call("mount", *(kind if controller else ["-t", "cgroup2"]), "none", folder / name)


def own_groups() -> list[tuple[str, str, str]]:
    """This process's control groups: number, controller, path."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return [(number, controller, path) for number, controller, path in (line.split(":", 2) for line in lines)]


def make_groups(name: str) -> list[Path]:
    """A control group below this process's own, in every hierarchy, for the new systemd."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    made = []
    for _, controller, path in own_groups():
        top = Path("/sys/fs/cgroup") / ("" if unified else controller.removeprefix("name=") or "unified")
        group = top / path.strip("/") / name
        group.mkdir()
        if controller == "cpuset":
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((group.parent / file).read_text())
        made.append(group)
    return made


def remove_groups(groups: list[Path]) -> None:
    end = time.monotonic() + 20
    while any(group.exists() for group in groups) and time.monotonic() < end:  # killed processes take a moment to leave
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
        time.sleep(0.2)


def prepare(root: Path) -> None:
    """What the guide says: installation, user, certificates, proxy, data and units."""
    from fedhv.flower.certificates import make_certificates

    base, scripts = root / "opt" / "python", root / "opt" / "fedhv" / "bin"
    base.mkdir(parents=True)
    call("mount", "--bind", sys.base_prefix, base)  # a service with ProtectHome does not see a Python in a home folder
    scripts.mkdir(parents=True)
    (scripts / "python").symlink_to(f"/opt/python/bin/{Path(sys.executable).resolve().name}")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = root / "opt" / "fedhv" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    packages.joinpath("here.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    packages.parents[2].joinpath("pyvenv.cfg").write_text("home = /opt/python/bin\n")
    for name in COMMANDS:
        text = (Path(sys.executable).parent / name).read_text()
        script(scripts / name, "#!/opt/fedhv/bin/python\n" + text.partition("\n")[2])
    script(scripts / "fedhv", "#!/opt/fedhv/bin/python\nfrom fedhv.cli import main\nmain()\n")
    (root / "etc" / "ld.so.conf.d" / "fedhv-python.conf").write_text("/opt/python/lib\n")
    for file in ("machine-id", "resolv.conf"):
        (root / "etc" / file).unlink(missing_ok=True)
        (root / "etc" / file).touch()
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost {HOST}\n")
    call("chroot", root, "ldconfig")
    call("chroot", root, "useradd", "--system", "--home-dir", "/var/lib/fedhv", "fedhv")
    make_certificates(root / "etc" / "fedhv", [HOST, "127.0.0.1"], 2)
    call("chroot", root, "chown", "-R", "fedhv", "/etc/fedhv")
    (root / "etc" / "fedhv" / "policy.toml").write_text("[reports]\nclip = 10.0\nnoise = 0.0\n")
    guide = (ROOT / "docs" / "guides" / "flower-many-machines.md").read_text("utf-8")
    (block,) = re.findall(r"```text\n(server \{.*?\n\})\n```", guide, re.S)
    shutil.rmtree(root / "etc" / "nginx" / "sites-enabled", ignore_errors=True)
    (root / "etc" / "nginx" / "conf.d" / "fedhv.conf").write_text(block)
    units = root / "etc" / "systemd" / "system"
    for wanted in ("multi-user.target.wants", "timers.target.wants"):  # nothing else of this machine
        shutil.rmtree(units / wanted, ignore_errors=True)
    for path in (EXAMPLE / "systemd").glob("*.service"):
        shutil.copy(path, units / path.name)
    second(units)
    shutil.copytree(EXAMPLE, root / "srv" / "app", ignore=shutil.ignore_patterns("__pycache__"))


def second(units: Path) -> None:
    """Another port for the second SuperNode on this machine, and the SuperExec that forks."""
    text = (units / "fedhv-supernode@.service").read_text()
    start = re.search(r"ExecStart=(?:.*\\\n)*.*\n", text)
    assert start is not None
    changed = start[0].replace("--port 9094", "--port 9095 --isolation process")
    for name, command in (
        ("fedhv-supernode@1", changed),
        ("fedhv-superexec@1", "ExecStart=/opt/fedhv/bin/fedhv flower superexec 127.0.0.1:9095\n"),
    ):
        folder = units / f"{name}.service.d"
        folder.mkdir()
        (folder / "port.conf").write_text(f"[Service]\nExecStart=\n{command}")


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


# --- what is done there -----------------------------------------------------------------------------------------


class Container:
    """Commands inside."""

    def __init__(self, leader: int, say: Callable[[str], None]) -> None:
        self.leader, self.say, self.began = leader, say, time.monotonic()

    def run(self, *words: object, user: str = "root") -> subprocess.CompletedProcess[str]:
        command = [
            "nsenter",
            "-t",
            str(self.leader),
            "-a",
            "env",
            "-i",
            "-C",
            "/var/lib",
            "PATH=/opt/fedhv/bin:/usr/sbin:/usr/bin:/bin",
        ]
        if user != "root":
            command += ["runuser", "-u", user, "--", "env", "HOME=/var/lib/fedhv", "FLWR_HOME=/var/lib/fedhv/.flwr"]
        return subprocess.run([*command, *map(str, words)], capture_output=True, text=True, check=False)

    def shell(self, text: str, user: str = "root") -> str:
        done = self.run("sh", "-c", text, user=user)
        return (done.stdout + done.stderr).strip()

    def show(self, unit: str, *names: str) -> dict[str, str]:
        found = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).stdout
        return dict(line.split("=", 1) for line in found.splitlines() if "=" in line)

    def pid(self, unit: str) -> int:
        """The main process of a service; 0 if there is none."""
        return int(self.show(unit, "MainPID").get("MainPID") or 0)

    def wait(self, what: str, ready: Callable[[], Any]) -> float:
        """Wait for something; returns the seconds it took."""
        began = time.monotonic()
        while not ready():
            if time.monotonic() - began > PATIENCE:
                raise RuntimeError(f"{what}: not within {PATIENCE:g} s\n{self.shell('journalctl -n 60 --no-pager')}")
            time.sleep(0.3)
        return time.monotonic() - began

    def note(self, text: str) -> None:
        self.say(f"{time.monotonic() - self.began:6.1f} s  {text}")

    def flwr(self, *words: object) -> dict[str, Any]:
        done = self.run("flwr", *words, "--format", "json", user="fedhv")
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except json.JSONDecodeError:
            found = {}
        if done.returncode or not found.get("success", True):
            raise RuntimeError(f"flwr {words}: {' '.join((done.stdout + done.stderr).split())[-600:]}")
        return found

    def kernel(self, unit: str, controller: str, file: str) -> str:
        """What the kernel has for a service's control group."""
        group = self.show(unit, "ControlGroup")["ControlGroup"]
        unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        return self.shell(f"cat '/sys/fs/cgroup{'' if unified else '/' + controller}{group}/{file}'")


Rows = list[dict[str, str]]


def play(box: Container) -> Rows:
    """Everything, in order; what was seen, by what was tried."""
    rows: Rows = []

    def saw(tried: str, seen: object) -> None:
        rows.append({"tried": tried, "seen": " ".join(str(seen).split())})
        box.note(f"{tried}: {rows[-1]['seen']}")

    start(box, saw)
    limits(box, saw)
    confinement(box, saw)
    trains(box, saw)
    killed(box, saw)
    out_of_memory(box, saw)
    renewed(box, saw)
    return rows


Saw = Callable[[str, object], None]


def start(box: Container, saw: Saw) -> None:
    saw("systemd as the first process", box.run("systemctl", "is-system-running", "--wait").stdout)
    for unit in ("nginx", SUPERLINK):
        box.run("systemctl", "enable", "--now", unit)
    seconds = box.wait("SuperLink", lambda: "LISTEN" in box.shell("ss -ltnH 'sport = :8000'"))
    saw(f"systemctl enable --now {SUPERLINK}", f"{state(box, SUPERLINK)}, listens after {seconds:.0f} s")
    saw("addresses that listen", box.shell("ss -ltnH | awk '{print $4}' | sort -u | tr '\\n' ' '"))
    box.shell(
        "mkdir -p /var/lib/fedhv/.flwr && printf '[superlink.federation]\\naddress = \"127.0.0.1:8000\"\\n"
        "root-certificates = \"/etc/fedhv/ca.crt\"\\n' > /var/lib/fedhv/.flwr/config.toml", user="fedhv"
    )  # fmt: skip
    ids = []
    for k, unit in enumerate(NODES):
        found = box.flwr("supernode", "register", f"/etc/fedhv/node-{k}.pub", "federation", "--name", f"site-{k}")
        ids.append(str(found["node-id"]))
        box.run("systemctl", "enable", "--now", unit)
    box.run("systemctl", "enable", "--now", SUPEREXEC)
    roster = "".join(f'{k} = "{node}"\\n' for k, node in enumerate(ids))
    box.shell(f"printf '[partitions]\\n{roster}' > /etc/fedhv/roster.toml")
    seconds = box.wait("SuperNodes", lambda: online(box) == 2)
    for unit in (*NODES, SUPEREXEC):
        saw(f"systemctl enable --now {unit}", state(box, unit))
    saw("both SuperNodes are online through nginx", f"after {seconds:.0f} s")


def state(box: Container, unit: str) -> str:
    return box.run("systemctl", "is-active", unit).stdout.strip()


def online(box: Container) -> int:
    return sum(node["status"] == "online" for node in box.flwr("supernode", "list", "federation")["nodes"])


def limits(box: Container, saw: Saw) -> None:
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    memory = "memory.max" if unified else "memory.limit_in_bytes"
    for unit in (SUPERLINK, *NODES, SUPEREXEC):
        asked = box.show(unit, "MemoryMax", "TasksMax", "Restart", "RestartUSec")
        bytes_, tasks = box.kernel(unit, "memory", memory), box.kernel(unit, "pids", "pids.max")
        saw(f"limits of {unit}", f"asked {asked}; the kernel has {memory} {bytes_}, pids.max {tasks}")
        same = bytes_.isdecimal() and int(bytes_) == int(asked["MemoryMax"]) and tasks == asked["TasksMax"]
        if not same:
            saw(f"limits of {unit} in effect", "NO")


def confinement(box: Container, saw: Saw) -> None:
    for unit in (SUPERLINK, NODES[0], SUPEREXEC):
        pid = box.pid(unit)
        status = box.shell(f"grep -E '^(Uid|NoNewPrivs)' /proc/{pid}/status | tr '\\n\\t' '  '")
        inside = f"nsenter -t {pid} -m"
        tried = {
            "write /usr": f"{inside} touch /usr/x",
            "write /etc/fedhv": f"{inside} touch /etc/fedhv/x",
            "read root's home": f"{inside} ls -A /root",
            "write /var/lib/fedhv": f"{inside} sh -c 'touch /var/lib/fedhv/x && rm /var/lib/fedhv/x && echo written'",
        }
        said = "; ".join(f"{name}: {box.shell(command) or 'empty'}" for name, command in tried.items())
        saw(f"what {unit} may do", f"{status}; {said}")


def submit(box: Container, rounds: int) -> str:
    settings = f"nodes=2 rounds={rounds} out='/var/lib/fedhv/machines' roster='/etc/fedhv/roster.toml'"
    return str(box.flwr("run", "/srv/app", "federation", "--run-config", settings)["run-id"])


def rounds_done(box: Container) -> int:
    return int(box.shell("cat /var/lib/fedhv/machines/history.jsonl 2>/dev/null | wc -l") or 0)


def trains(box: Container, saw: Saw) -> None:
    submit(box, 4 * ROUNDS)
    seconds = box.wait("rounds", lambda: rounds_done(box) >= ROUNDS)
    saw(f"the example's first {ROUNDS} rounds", f"after {seconds:.0f} s; {last_round(box)}")


def last_round(box: Container) -> str:
    lines = box.shell("fedhv flower status /var/lib/fedhv/machines", user="fedhv").splitlines()
    return "; ".join(line.strip() for line in lines)


def killed(box: Container, saw: Saw) -> None:
    """SIGKILL to the main process of every service."""
    for unit in (NODES[0], SUPEREXEC, SUPERLINK):
        before = box.pid(unit)
        box.shell(f"kill -9 {before}")
        began = time.monotonic()
        box.wait(f"{unit} to come back", lambda unit=unit, before=before: box.pid(unit) not in (0, before))
        back = time.monotonic() - began
        count = box.show(unit, "NRestarts")["NRestarts"]
        saw(f"SIGKILL to {unit}", f"a new main process after {back:.1f} s, NRestarts={count}")
    seconds = box.wait("the SuperNodes to reconnect", lambda: listens(box) and online(box) == 2)
    saw("both SuperNodes online again", f"after {seconds:.0f} s; NRestarts {restarts(box)}")
    done = rounds_done(box)
    submit(box, 4 * ROUNDS)
    seconds = box.wait(
        "the rest", lambda: box.run("test", "-e", "/var/lib/fedhv/machines/summary.json").returncode == 0
    )
    saw(f"the same `flwr run` after round {done}", f"finished after {seconds:.0f} s; {last_round(box)}")
    numbers = box.shell("grep -o '\"round\": *[0-9]*' /var/lib/fedhv/machines/history.jsonl | grep -o '[0-9]*'").split()
    saw(
        "rounds in the history",
        f"{' '.join(numbers)}; once each: {numbers == [str(n + 1) for n in range(len(numbers))]}",
    )


def listens(box: Container) -> bool:
    return "LISTEN" in box.shell("ss -ltnH 'sport = :8000'")


def restarts(box: Container) -> dict[str, str]:
    return {unit: box.show(unit, "NRestarts")["NRestarts"] for unit in (SUPERLINK, *NODES, SUPEREXEC)}


def out_of_memory(box: Container, saw: Saw) -> None:
    """A limit that the service exceeds: the kernel kills it, and systemd starts it again."""
    unit = NODES[0]
    count = int(box.show(unit, "NRestarts")["NRestarts"])
    box.run("systemctl", "set-property", "--runtime", unit, "MemoryMax=40M")
    box.run("systemctl", "restart", unit)
    box.wait("the limit to be exceeded", lambda: int(box.show(unit, "NRestarts")["NRestarts"]) > 0)
    journal = box.shell(f"journalctl -u {unit} --no-pager -o cat | grep -iE 'oom|killed|result' | tail -3")
    saw(f"{unit} with MemoryMax=40M", f"{journal} (NRestarts was {count}, counted anew since systemctl restart)")
    box.run("systemctl", "set-property", "--runtime", unit, "MemoryMax=4G")
    box.run("systemctl", "reset-failed", unit)
    box.run("systemctl", "restart", unit)
    seconds = box.wait("both online", lambda: online(box) == 2)
    saw("with MemoryMax=4G again", f"{state(box, unit)}, both SuperNodes online after {seconds:.0f} s")


def renewed(box: Container, saw: Saw) -> None:
    """The guide's steps 2 and 3."""
    first = box.shell("openssl x509 -in /etc/fedhv/server.crt -noout -serial")
    box.run("fedhv", "flower", "certificates", "/etc/fedhv", "--renew", "--host", HOST, "--host", "127.0.0.1")
    box.shell("chown -R fedhv /etc/fedhv")
    box.run("systemctl", "restart", SUPERLINK)
    box.run("nginx", "-s", "reload")
    seconds = box.wait("both online", lambda: listens(box) and online(box) == 2)
    shown = box.shell(
        f"echo | openssl s_client -connect {HOST}:8443 -CAfile /etc/fedhv/ca.crt 2>/dev/null"
        " | openssl x509 -noout -serial"
    )
    now = box.shell("openssl x509 -in /etc/fedhv/server.crt -noout -serial")
    same = f"nginx shows the new one: {shown == now != first}"
    saw("new server certificate, services restarted", f"{same}; both SuperNodes online after {seconds:.0f} s")
    box.run("systemctl", "stop", *NODES, SUPEREXEC, SUPERLINK)
    left = box.shell("pgrep -u fedhv -a | wc -l")
    saw("systemctl stop", f"{[state(box, unit) for unit in (*NODES, SUPEREXEC, SUPERLINK)]}; processes left: {left}")


# --- start and end ----------------------------------------------------------------------------------------------


def check() -> None:
    if os.geteuid() != 0:
        raise Skip("it needs root")
    missing = [name for name in NEEDED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing or not SYSTEMD.exists():
        raise Skip(f"missing: {', '.join(missing) or SYSTEMD}")


def leader_of(pid: int) -> int | None:
    """The first process of the new namespaces: the child of `unshare`."""
    with suppress(OSError):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(found[0]) if found else None
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the table [default: results/reliability]")
    parser.add_argument("--boot", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.boot is not None:
        try:
            boot(arguments.boot)
        except (Skip, OSError) as why:
            sys.exit(f"not permitted: {why}")
    groups: list[Path] = []
    say = Notes()
    home = Path(tempfile.mkdtemp(prefix="fedhv-services-"))
    running: subprocess.Popen[bytes] | None = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        check()
        groups = make_groups(f"fedhv-services-{os.getpid()}")

        def enter() -> None:
            for group in groups:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--uts", "--ipc", "--net"]
        words += ["--cgroup", "--kill-child", sys.executable, __file__, "--boot", str(home)]
        running = subprocess.Popen(words, stderr=subprocess.PIPE, preexec_fn=enter)
        version = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout
        say(f"{machine()}, {version.splitlines()[0]}")
        began = time.monotonic()
        while (leader := leader_of(running.pid)) is None or Path(
            f"/proc/{leader}/comm"
        ).read_text().strip() != "systemd":
            if running.poll() is not None:
                assert running.stderr is not None
                raise Skip(running.stderr.read().decode(errors="replace").strip())
            if time.monotonic() - began > PATIENCE:
                raise Skip("systemd did not start")
            time.sleep(0.2)
        box = Container(leader, say)
        box.wait("systemd", lambda: box.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"))
        rows = play(box)
    except (Skip, OSError) as why:
        print(f"Skipped: {why}.")
        raise SystemExit(SKIPPED) from None
    finally:
        if running is not None:
            if (leader := leader_of(running.pid)) is not None:
                os.kill(leader, signal.SIGKILL)  # and with it everything in its namespaces
            running.kill()
            running.wait()
            time.sleep(1)
        remove_groups(groups)
        shutil.rmtree(home, ignore_errors=True)
    say("")
    say(table(list(rows[0]), [tuple(row.values()) for row in rows]))
    write_csv(arguments.out / "services.csv", rows)
    say.write(arguments.out / "services.txt")


if __name__ == "__main__":
    main()
