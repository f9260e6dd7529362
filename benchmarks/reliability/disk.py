"""A disk that fills up, a folder that may no longer be written, a folder that vanishes: while a run goes on.

    sudo python benchmarks/reliability/disk.py [--out FOLDER]

Each happens for real after the third round of a run: a small file system of its own is filled to the last byte, the
permissions of the folder are taken away from the user that the run belongs to, the folder is deleted. The run must
stop with the reason; then the trouble is mended, the run resumed and compared bit for bit with an undisturbed one.
Mounting and changing users need root; without it nothing is done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from common import Notes, machine, out_folder, table, write_csv

NOBODY = 65534
CHANGES = ["training.rounds=40", "evaluation.every=10", "training.local_steps=2"]


def child(setting: Path, folder: Path, said: Path, user: int | None) -> int:
    """`fedhv run --resume` in a process of its own; what it dies of is written to a file."""
    process = os.fork()
    if process:
        return process
    code = 0
    try:
        import fedhv.runs.job
        from fedhv import FedHVError, run
        from fedhv.simulation.observer import Observer

        class Slow(Observer):
            def round(self, round: object) -> None:
                time.sleep(0.05)  # time for the trouble to happen

        if user is not None:
            os.setuid(user)
        fedhv.runs.job.SECONDS_BETWEEN_CHECKPOINTS, fedhv.runs.job.SHARE_OF_CHECKPOINTS = 0.0, float("inf")
        try:
            run(str(setting), "fedhv", out=folder, engine="sequential", device="cpu", resume=True, override=CHANGES,
                reference=[3.0, 3.0], observer=Slow())  # fmt: skip
        except FedHVError as error:
            said.write_text(f"{error}\n")
            code = error.exit_code
        except BaseException as error:
            said.write_text(f"TRACEBACK {type(error).__name__}: {error}\n")
            code = 99
    finally:
        os._exit(code)


def rounds(folder: Path) -> int:
    path = folder / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def trouble(
    setting: Path, folder: Path, said: Path, begin: Callable[[], object], mend: Callable[[], object], user: int | None
) -> tuple[str, int]:
    """Let a run meet trouble after its third round, mend it, and let it go on; (what it said, rounds kept)."""
    process = child(setting, folder, said, user)
    while rounds(folder) < 3:
        time.sleep(0.005)
        if said.exists():
            raise SystemExit(said.read_text())
    begin()
    _, status = os.waitpid(process, 0)
    message, kept = said.read_text().strip() if said.exists() else f"ended with {status}", rounds(folder)
    mend()
    _, status = os.waitpid(child(setting, folder, said, user), 0)
    if status:
        raise SystemExit(f"the resumed run ended with {status}: {said.read_text()}")
    return message, kept


def main(arguments: Sequence[str] | None = None) -> None:
    out = out_folder(__doc__, arguments)
    if os.geteuid() != 0:
        raise SystemExit("this needs root: it mounts a file system and changes users")
    log = Notes()
    log(machine())
    from problems import SETTING
    from runs_on_disk import contents

    from fedhv import run

    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        place.chmod(0o755)
        setting, small = place / "small.toml", place / "small"
        setting.write_text(SETTING)
        # Another user may not read where Python is: everything is imported before.
        run(str(setting), "fedhv", out=place / "warm", engine="sequential", device="cpu", reference=[3.0, 3.0])
        os.waitpid(child(setting, place / "whole", place / "said-whole", None), 0)
        whole = contents(place / "whole")

        def judge(name: str, folder: Path, message: str, kept: int) -> None:
            same = contents(folder) == whole
            rows.append({"trouble": name, "said": message.replace(str(place), "…"), "rounds_kept": kept,
                         "resumed_identical": same})  # fmt: skip

        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], check=True)
        try:
            filler = small / "filler"

            def fill() -> None:
                with filler.open("wb", buffering=0) as file:
                    try:
                        while file.write(b"x" * 512):
                            pass
                    except OSError:
                        pass

            judge(
                "disk full", small / "run", *trouble(setting, small / "run", place / "said1", fill, filler.unlink, None)
            )
        finally:
            subprocess.run(["umount", str(small)], check=True)

        home = place / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        folder = home / "run"
        took, gave = (lambda: os.chmod(folder, 0o555)), (lambda: os.chmod(folder, 0o755))
        judge("not writable", folder, *trouble(setting, folder, home / "said2", took, gave, NOBODY))

        folder = place / "vanishing"

        def vanish() -> None:
            # Renamed first: the run writes on while its files are deleted, and could make new ones among them.
            shutil.rmtree(folder.rename(place / "vanished"))

        judge("folder vanished", folder, *trouble(setting, folder, place / "said3", vanish, lambda: None, None))
    log(table(list(rows[0]), [tuple(row.values()) for row in rows]))
    write_csv(out / "disk.csv", rows)
    log.write(out / "disk.txt")
    if not all(row["resumed_identical"] and "TRACEBACK" not in str(row["said"]) for row in rows):
        raise SystemExit("something was lost")


if __name__ == "__main__":
    main()
