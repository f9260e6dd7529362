"""A federation of five nodes behind nginx and TLS, and everything that can happen to it.

    sudo python benchmarks/reliability/federation.py [--rounds 26] [--out results/reliability]

Starts a SuperLink on 127.0.0.1, the guide's nginx block in front of it, and five SuperNodes with keys of their own,
each in a network namespace with a virtual cable to the server (`ip netns`; where that is not permitted, on loopback
addresses, and the reason is printed). Then it plays, a round each: an honest round, a poisoned update, NaN, a liar,
two oversized replies, an old reply sent again, a hanging node, a frozen one, a pulled cable, a node that is killed and
started again, the server's app killed, the SuperLink killed, a thief of a partition, a new server certificate and a
new node key.

Afterwards the simulator plays the same rounds with the participation that the history has, and the final models are
compared. Without nginx or Flower the script says so and ends with exit code 77.
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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, Notes, machine, table, write_csv

APP = Path(__file__).parent / "plays"
sys.path.insert(0, str(APP))
NODES, SEED = 5, 0
NODE = "FEDHV_NODE"
"""The environment variable by which all processes of a node are found."""
LOOKS = 30.0
"""Seconds between two looks whether the run has failed, as it may on a machine that is too busy."""
LONGEST = 3600.0
"""Seconds after which the script gives up."""
SKIPPED = 77
SERVICE = 5.0
"""A SuperNode or SuperLink that ends by itself is started again after this many seconds, as the systemd units do."""

ACTS = {
    "poison": (2, 1, "update × 1000"),
    "nan": (3, 2, "update of NaN"),
    "lie": (4, 0, "reports a loss of 10⁹"),
    "oversize record": (5, 3, "64 MB of settings in a reply"),
    "oversize array": (7, 2, "64 MB of model in a reply"),
    "replay": (8, 0, "sends its reply of round 1 again"),
    "hang": (9, 4, "its app never returns"),
}
"""What nodes do by their own plan: the round, the node, and what it is."""


class Wires:
    """Cables between the server and its nodes: network namespaces, or the loopback interface."""

    def __init__(self, count: int) -> None:
        self.tag = f"fhv{os.getpid() % 10_000}"
        self.count, self.why = count, ""
        try:
            for k in range(count):
                self._make(k)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            said = getattr(error, "stderr", b"") or str(error).encode()
            self.why = " ".join(said.decode(errors="replace").split()) or "not permitted"

    def _make(self, k: int) -> None:
        space, here, there = f"{self.tag}-{k}", f"{self.tag}h{k}", f"{self.tag}n{k}"
        for words in (
            f"netns add {space}",
            f"link add {here} type veth peer name {there} netns {space}",
            f"addr add 10.77.{k}.1/24 dev {here}",
            f"link set {here} up",
            f"-n {space} addr add 10.77.{k}.2/24 dev {there}",
            f"-n {space} link set {there} up",
            f"-n {space} link set lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True, capture_output=True)

    @property
    def spaces(self) -> bool:
        """Whether there are namespaces."""
        return not self.why

    def address(self, k: int) -> str:
        """Where node k finds the server."""
        return f"10.77.{k}.1" if self.spaces else "127.0.0.1"

    def inside(self, k: int, command: list[str]) -> list[str]:
        """A command on node k's machine."""
        return ["ip", "netns", "exec", f"{self.tag}-{k}", *command] if self.spaces else command

    def pull(self, k: int, plugged: bool) -> None:
        """Pull node k's cable, or plug it in again."""
        subprocess.run(["ip", "link", "set", f"{self.tag}h{k}", "up" if plugged else "down"], check=True)

    def close(self) -> None:
        """Remove the namespaces; their cables go with them."""
        for k in range(self.count):
            subprocess.run(["ip", "netns", "del", f"{self.tag}-{k}"], check=False, capture_output=True)
            subprocess.run(["ip", "link", "del", f"{self.tag}h{k}"], check=False, capture_output=True)


class Federation:
    """The server, nginx and the nodes as processes, and what an operator does with them."""

    def __init__(self, home: Path, wires: Wires, say: Callable[[str], None]) -> None:
        from fedhv.flower.certificates import make_certificates
        from fedhv.flower.deployment import environment
        from fedhv.flower.processes import Processes, executable, free_ports

        self.home, self.wires, self.say = home, wires, say
        self.began = time.monotonic()
        hosts = ["superlink.example.org", "127.0.0.1", *(wires.address(k) for k in range(NODES + 1))]
        self.hosts = list(dict.fromkeys(hosts))
        self.certificates = make_certificates(home / "certificates", self.hosts, NODES + 1)
        self.port, self.outside, *self.node_ports = free_ports(2 + NODES + 1)
        self.out = home / "run"
        self.executable = executable
        (home / "logs").mkdir()
        base = environment(home) | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src")])}
        self.server = Processes(base, home / "logs")
        self.nodes = [
            Processes(base | {"FLWR_HOME": str(home / f"node-{k}"), NODE: f"{home.name}-{k}"}, home / "logs")
            for k in range(NODES + 1)
        ]
        self.ids: dict[int, str] = {}
        self.keys = {k: self.certificates.nodes[k] for k in range(NODES + 1)}
        self.runs: list[str] = []
        self.restarts: dict[str, int] = {}
        self.resting: set[str] = set()
        self.died: dict[str, float] = {}

    def note(self, text: str) -> None:
        """A line with the time."""
        self.say(f"{time.monotonic() - self.began:7.1f} s  {text}")

    # --- start ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        connection = f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{self.certificates.ca}"\n'
        (self.home / "config.toml").write_text(f"[superlink.federation]\n{connection}")
        self.start_superlink()
        self.start_nginx()
        for k in range(NODES):
            self.register(k)
            self.start_node(k)
            self.start_superexec(k)
        self.write_roster()

    def start_superlink(self) -> None:
        made = self.certificates
        tls = ["--ssl-ca-certfile", made.ca, "--ssl-certfile", made.server, "--ssl-keyfile", made.server_key]
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", self.port, *tls, "--enable-supernode-auth"]
        command += ["--disable-runtime-dependency-installation", "--database", self.home / "superlink.db"]
        self.server.start("superlink", [str(word) for word in command])
        self.server.wait_for_port("superlink", self.port)

    def start_nginx(self) -> None:
        """The block of the guide, with this machine's paths and ports."""
        guide = (ROOT / "docs" / "guides" / "flower-many-machines.md").read_text("utf-8")
        (block,) = re.findall(r"```text\n(server \{.*?\n\})\n```", guide, re.S)
        block = block.replace("listen 8443 ssl", f"listen 0.0.0.0:{self.outside} ssl")
        block = block.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        block = block.replace("/etc/fedhv/", f"{self.home / 'certificates'}/")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.home}/nginx;" for kind in kinds)
        config = self.home / "nginx.conf"
        config.write_text(
            f"user root; daemon off; pid {self.home}/nginx.pid; error_log {self.home}/logs/nginx-error.log;\n"
            "events {}\n"
            f"http {{ access_log {self.home}/logs/nginx-access.log; {temporary}\n{block}\n}}\n"
        )
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        errors = str(self.home / "logs" / "nginx-error.log")
        self.server.start("nginx", [nginx, "-c", str(config), "-p", str(self.home), "-e", errors])
        self.server.wait_for_port("nginx", self.outside)

    def flwr(self, *words: str) -> Any:
        code, out, err = self.server.ask(["flwr", *words, "--format", "json"], 300)
        found = json.loads(out) if out.strip().startswith("{") else {}
        if code != 0 or not found.get("success", True):
            raise RuntimeError(f"flwr {' '.join(words)}: {' '.join((out + err).split())[-400:]}")
        return found

    def register(self, k: int, name: str = "") -> None:
        public = str(self.keys[k].with_suffix(".pub"))
        words = ("supernode", "register", public, "federation", "--name", name or f"site-{k}")
        self.ids[k] = str(self.flwr(*words)["node-id"])

    def write_roster(self) -> None:
        lines = [f'{k} = "{self.ids[k]}"' for k in range(NODES)]
        (self.home / "roster.toml").write_text("\n".join(["[partitions]", *lines, ""]))

    def start_node(self, k: int, partition: int | None = None) -> None:
        plan = self.home / f"plan-{k}.json"
        acts = {str(number): act for act, (number, node, _) in ACTS.items() if node == k}
        plan.write_text(json.dumps(acts))
        command = ["flower-supernode", "--superlink", f"{self.wires.address(k)}:{self.outside}"]
        command += ["--root-certificates", str(self.certificates.ca), "--auth-supernode-private-key", str(self.keys[k])]
        command += ["--host", "127.0.0.1", "--port", str(self.node_ports[k]), "--node-config"]
        number = k if partition is None else partition
        command += [f"partition-id={number} num-partitions={NODES} name='site-{k}' plan='{plan}'"]
        command += ["--isolation", "process"]
        command[0] = self.executable(command[0])
        self.nodes[k].start(f"supernode-{k}", self.wires.inside(k, command))

    def start_superexec(self, k: int) -> None:
        """The process beside a SuperNode that forks its apps."""
        command = [sys.executable, "-m", "fedhv", "flower", "superexec", f"127.0.0.1:{self.node_ports[k]}"]
        self.nodes[k].start(f"superexec-{k}", self.wires.inside(k, command))

    def submit(self, rounds: int) -> None:
        settings = {"rounds": rounds, "nodes": NODES, "seed": SEED, "quorum": 4.0, "grace": 30.0}
        settings["reply-seconds"] = 240.0
        texts = {"out": self.out, "roster": self.home / "roster.toml", "profile": "hardened"}
        words = [f"{key}={value}" for key, value in settings.items()]
        words += [f"{key}='{value}'" for key, value in texts.items()]
        found = self.flwr("run", str(APP), "federation", "--run-config", " ".join(words))
        self.runs.append(str(found["run-id"]))

    # --- what happens --------------------------------------------------------------------------------------

    def pids(self, k: int) -> list[int]:
        """All processes of a node."""
        sought, found = f"{NODE}={self.home.name}-{k}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if sought in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def signal_node(self, k: int, number: signal.Signals) -> None:
        for pid in self.pids(k):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def server_pids(self, word: str) -> list[int]:
        """The processes on the server whose command has this word."""
        mark, found = f"FEDHV_PROCESSES={self.server.mark}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                mine = mark in path.read_bytes().split(b"\0")
                if mine and word.encode() in (path.parent / "cmdline").read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def kill_server(self, *words: str) -> int:
        """SIGKILL to processes on the server; returns how many there were."""
        found = [pid for word in words for pid in self.server_pids(word)]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def serve(self) -> None:
        """What systemd does: start again what has ended by itself."""
        now = time.monotonic()
        for processes in (self.server, *self.nodes):
            for name in processes.dead():
                if name in self.resting or name == "nginx":
                    continue
                if now - self.died.setdefault(name, now) < SERVICE:
                    continue
                del self.died[name]
                processes.running.pop(name)
                self.restarts[name] = self.restarts.get(name, 0) + 1
                self.note(f"{name} had ended by itself and is started again")
                kind, _, k = name.partition("-")
                if kind == "superlink":
                    self.start_superlink()
                elif kind == "superexec":
                    self.start_superexec(int(k))
                else:
                    self.start_node(int(k))

    def failed(self) -> str:
        """Why the newest run has failed; empty while it runs."""
        if self.server_pids("flwr-serverapp"):
            return ""
        found = self.flwr("list", "federation", "--run-id", self.runs[-1])["runs"][0]
        return str(found.get("status-details", "")) if found["status"] == "finished:failed" else ""

    def history(self) -> list[dict[str, Any]]:
        try:
            lines = (self.out / "history.jsonl").read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def server_log(self, run: str) -> str:
        """What a ServerApp has logged: the SuperLink keeps it."""
        _, out, err = self.server.ask(["flwr", "log", run, "federation", "--show"], 300)
        (self.home / "logs" / f"serverapp-{run}.log").write_text(out + err)
        return out + err

    def renew_server_certificate(self) -> None:
        """A new key and certificate from the same authority."""
        from fedhv.flower.certificates import renew_server

        renew_server(self.home / "certificates", self.hosts)

    def end(self) -> None:
        for k in range(NODES + 1):
            self.signal_node(k, signal.SIGCONT)
        for processes in (*self.nodes, self.server):
            processes.end()


def play(federation: Federation, rounds: int, happened: dict[str, tuple[int, str]]) -> None:
    """The rounds, and what an operator and an attacker do between them; each action after the round that it names."""
    f, wires = federation, federation.wires

    def freeze() -> None:
        f.signal_node(0, signal.SIGSTOP)

    def thaw() -> None:
        f.signal_node(0, signal.SIGCONT)

    def unplug() -> None:
        if wires.spaces:
            wires.pull(1, plugged=False)
        else:
            f.resting |= {"supernode-1", "superexec-1"}
            f.signal_node(1, signal.SIGKILL)

    def plug() -> None:
        if wires.spaces:
            wires.pull(1, plugged=True)
        else:
            f.resting -= {"supernode-1", "superexec-1"}

    def restart_node() -> None:
        f.signal_node(3, signal.SIGKILL)  # what serves starts it again

    def kill_server() -> None:
        time.sleep(2.0)  # in the middle of a round
        f.note(f"{f.kill_server('flwr-serverapp')} processes of the ServerApp killed")
        try:
            f.flwr("stop", f.runs[-1], "federation")
        except RuntimeError as error:
            f.note(f"flwr stop: {error}")
        f.submit(rounds)

    def kill_superlink() -> None:
        time.sleep(2.0)
        f.resting.add("superlink")
        process = f.server.running.pop("superlink")
        f.kill_server("flower-superlink", "flower-superexec", "flwr-serverapp")
        process.wait(60)
        f.start_superlink()
        f.resting.discard("superlink")
        f.submit(rounds)

    def thief() -> None:
        f.register(NODES, "thief")
        f.start_node(NODES, partition=2)
        f.start_superexec(NODES)

    def rotate() -> None:
        """The guide's way: stop, replace, start."""
        command = [sys.executable, "-m", "fedhv", "flower", "stop", str(f.out)]
        subprocess.run(command, env=f.server.environment, check=True, capture_output=True)
        while f.server_pids("flwr-serverapp") and time.monotonic() - f.began < LONGEST:
            time.sleep(0.5)
        done = len(f.history())
        f.note(f"stopped after round {done}; new server certificate, new key of site-4")
        f.renew_server_certificate()
        f.resting |= {"superlink", "supernode-4", "superexec-4"}
        process = f.server.running.pop("superlink")
        process.terminate()
        process.wait(60)
        f.start_superlink()
        os.kill(int((f.home / "nginx.pid").read_text()), signal.SIGHUP)  # nginx -s reload
        old, new = f.ids[4], f.home / "certificates" / "node-4-new"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(new)], check=True, capture_output=True
        )
        f.keys[4] = new
        f.register(4, "site-4-new")
        f.write_roster()
        f.signal_node(4, signal.SIGTERM)
        for name in ("supernode-4", "superexec-4"):
            f.nodes[4].running.pop(name).wait(60)
        f.start_node(4)
        f.start_superexec(4)
        f.flwr("supernode", "unregister", old, "federation")
        f.resting.clear()
        f.submit(rounds)

    script: list[tuple[str, str, int, Callable[[], None]]] = [
        ("frozen (SIGSTOP)", "site-0", 10, freeze),
        ("thawed (SIGCONT)", "site-0", 11, thaw),
        ("cable pulled" if wires.spaces else "gone", "site-1", 11, unplug),
        ("cable plugged in" if wires.spaces else "back", "site-1", 12, plug),
        ("killed, restarted by its service", "site-3", 12, restart_node),
        ("ServerApp killed, run submitted again", "-", 13, kill_server),
        ("SuperLink killed and started again", "-", 14, kill_superlink),
        ("a thief claims partition 2", "site-2", 15, thief),
        ("new server certificate, new key", "site-4", 20, rotate),
    ]
    f.submit(rounds)
    shown, looked = 0, time.monotonic()
    while not (f.out / "summary.json").exists():
        if time.monotonic() - f.began > LONGEST:
            raise RuntimeError(f"not finished after {LONGEST:g} s:\n{f.server.tail('superlink', 30)}")
        time.sleep(0.5)
        f.serve()
        if time.monotonic() - looked > LOOKS:
            looked = time.monotonic()
            if why := f.failed():
                f.note(f"the run has failed and is submitted again: {why}")
                f.submit(rounds)
        history = f.history()
        for record in history[shown:]:
            refused = "; ".join(f"{each['client']}: {each['reason']}" for each in record.get("refused", ()))
            cohort = record["cohort"]
            f.note(
                f"round {record['round']}: {cohort['present']} present, taken {cohort['taken']}, "
                f"{record['seconds']:.1f} s{f'; refused {refused}' if refused else ''}"
            )
        shown = max(shown, len(history))
        while script and script[0][2] <= len(history):
            name, who, _, act = script.pop(0)
            happened[name] = (len(history) + 1, who)
            f.note(f"before round {len(history) + 1}: {name}")
            act()


def simulated(history: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The simulator's final model where in every round those take part who did in the federation, and its network."""
    from plays.problem import METHOD, OVERRIDE, problem

    from fedhv.engines import Sequential
    from fedhv.runs.resolve import resolve_setting
    from fedhv.runs.threads import one_thread
    from fedhv.simulation.rounds import simulate

    mine = problem(NODES)
    changes = [*OVERRIDE, f"federation.participants={NODES}", "server.profile=hardened"]
    setting = resolve_setting(mine, changes, len(history))
    method = setting.chosen(METHOD)
    there: Iterator[list[int]] = iter(record["cohort"]["taken"] for record in history)

    class SameParticipation(Sequential):
        @property
        def population(self) -> Any:
            return lambda: next(there)

    engine = SameParticipation(mine)
    with one_thread():
        *_, last = simulate(engine, method, setting.plan(method, SEED))
    return last.state.model, engine.client.network.state_dict(last.state.model)


def ending(
    federation: Federation, happened: dict[str, tuple[int, str]], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The table of what happened, and the comparison with the simulator."""
    from safetensors.torch import load_file

    history = federation.history()
    rows = []
    plays = [(what, number, f"site-{node}") for number, node, what in ACTS.values()]
    plays += [(name, number, who) for name, (number, who) in happened.items()]
    plays.append(("honest round", 1, "-"))
    log = "".join(federation.server_log(run) for run in federation.runs)
    stolen = re.findall(r"Node \d+ does not participate[^\n]*", log)
    for what, number, who in sorted(plays, key=lambda each: each[1]):
        record = next((each for each in history if each["round"] == number), None)
        if record is None:
            continue
        refused = "; ".join(f"site-{each['client']}: {each['reason']}" for each in record.get("refused", ()))
        if "thief" in what:
            refused = next((line for line in stolen if "partition 2" in line), "no word about it")
        absent = sorted(set(range(NODES)) - set(record["cohort"]["asked"]))
        back = [
            each["round"]
            for each in history[number:]
            if who == "-" or int(who.rsplit("-", 1)[-1]) in each["cohort"]["taken"]
        ]
        missing = who != "-" and int(who.rsplit("-", 1)[-1]) not in record["cohort"]["taken"]
        rows.append({
            "play": what, "who": who, "round": number, "taken": len(record["cohort"]["taken"]),
            "seconds": round(record["seconds"], 1), "what the history or the server's log has": refused or "nothing",
            "not asked": ", ".join(f"site-{k}" for k in absent) or "-",
            "back in round": (str(back[0]) if back else "never") if missing else "-",
        })  # fmt: skip
    say("")
    say(table(list(rows[0]), [tuple(row.values()) for row in rows]))
    stored = load_file(federation.out / "model.safetensors")
    flat, there = simulated(history)
    gap = max(float((there[name].cpu() - value).abs().max()) for name, value in stored.items())
    say("")
    say(f"rounds: {len(history)}, numbered {history[0]['round']} to {history[-1]['round']} without a gap: "
        f"{[each['round'] for each in history] == list(range(1, len(history) + 1))}")  # fmt: skip
    say(f"services started again by themselves: {federation.restarts or 'none'}")
    say("final model against the simulator's with the same participation: largest difference of a parameter "
        f"{gap:.3g}, norm of the model {float(flat.norm()):.4g}")  # fmt: skip
    if gap > 1e-4:
        raise SystemExit("the models differ")
    return rows


@contextmanager
def started(home: Path, say: Callable[[str], None]) -> Iterator[Federation]:
    """All processes, ended whatever happens."""
    wires = Wires(NODES + 1)
    say("network namespaces" if wires.spaces else f"loopback addresses, since namespaces are not there: {wires.why}")
    federation = Federation(home, wires, say)
    try:
        federation.start()
        yield federation
    finally:
        federation.end()
        wires.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=26, help="at least 24 [default: 26]")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the table [default: results/reliability]")
    parser.add_argument("--home", type=Path, help="keep everything in this new folder")
    arguments = parser.parse_args()
    if not (shutil.which("nginx") or Path("/usr/sbin/nginx").exists()):
        print("Skipped: nginx is not installed.")
        raise SystemExit(SKIPPED)
    try:
        import flwr
    except ImportError:
        print("Skipped: Flower is not installed.")
        raise SystemExit(SKIPPED) from None
    import tempfile

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that everything is taken down
    say = Notes()
    say(f"{machine()}, flwr {flwr.__version__}")
    home = arguments.home or Path(tempfile.mkdtemp(prefix="fedhv-federation-"))
    home.mkdir(parents=True, exist_ok=True)
    happened: dict[str, tuple[int, str]] = {}
    try:
        with started(home, say) as federation:
            play(federation, arguments.rounds, happened)
            rows = ending(federation, happened, say)
    except BaseException:
        print(f"logs are in {home / 'logs'}", file=sys.stderr)
        raise
    write_csv(arguments.out / "federation.csv", rows)
    say.write(arguments.out / "federation.txt")
    if arguments.home is None:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
