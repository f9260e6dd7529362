"""Disk errors during a run: a full disk, a folder without write permission, a deleted folder.

    sudo python benchmarks/reliability/disk.py [--out FOLDER]

Each error is real and occurs after the third round of a run: a small separate file system is filled completely, the
run's user loses the permission for the folder, or the folder is deleted. The run must stop with the reason. Then the
cause is removed, and the run is resumed and compared bit for bit with an uninterrupted one. Mounting and changing users
need root; without root nothing is done.
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


def child(setting: Path, folder: Path, message_file: Path, user: int | None) -> int:
    """`fedhv run --resume` in a separate process; its error is written to a file."""
    process = os.fork()
    if process:
        return process
    code = 0
    try:
        import fedhv.runs.saving
        from fedhv import FedHVError, run
        from fedhv.simulation.observer import Observer

        class Slow(Observer):
            def round(self, round: object) -> None:
                time.sleep(0.05)  # time for the error to occur

        if user is not None:
            os.setuid(user)
        fedhv.runs.saving.SECONDS_BETWEEN_CHECKPOINTS, fedhv.runs.saving.SHARE_OF_CHECKPOINTS = 0.0, float("inf")
        try:
            run(str(setting), "fedhv", out=folder, engine="sequential", device="cpu", resume=True, override=CHANGES,
                reference=[3.0, 3.0], observer=Slow())  # fmt: skip
        except FedHVError as error:
            message_file.write_text(f"{error}\n")
            code = error.exit_code
        except BaseException as error:
            message_file.write_text(f"TRACEBACK {type(error).__name__}: {error}\n")
            code = 99
    finally:
        os._exit(code)


def rounds(folder: Path) -> int:
    path = folder / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def fail_and_resume(
    setting: Path,
    folder: Path,
    message_file: Path,
    begin: Callable[[], object],
    repair: Callable[[], object],
    user: int | None,
) -> tuple[str, int]:
    """Cause an error after the third round of a run, remove its cause and resume; (message, recorded rounds)."""
    process = child(setting, folder, message_file, user)
    while rounds(folder) < 3:
        time.sleep(0.005)
        if message_file.exists():
            raise SystemExit(message_file.read_text())
    begin()
    _, status = os.waitpid(process, 0)
    message, kept = (
        message_file.read_text().strip() if message_file.exists() else f"ended with {status}",
        rounds(folder),
    )
    repair()
    _, status = os.waitpid(child(setting, folder, message_file, user), 0)
    if status:
        raise SystemExit(f"the resumed run ended with {status}: {message_file.read_text()}")
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
        # Another user may not be able to read Python's folder: all modules are imported before.
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
                "disk full",
                small / "run",
                *fail_and_resume(setting, small / "run", place / "said1", fill, filler.unlink, None),
            )
        finally:
            subprocess.run(["umount", str(small)], check=True)

        home = place / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        folder = home / "run"
        took, gave = (lambda: os.chmod(folder, 0o555)), (lambda: os.chmod(folder, 0o755))
        judge("not writable", folder, *fail_and_resume(setting, folder, home / "said2", took, gave, NOBODY))

        folder = place / "vanishing"

        def delete() -> None:
            # Renamed first: the run continues to write during the deletion and could create new files.
            shutil.rmtree(folder.rename(place / "vanished"))

        judge("folder vanished", folder, *fail_and_resume(setting, folder, place / "said3", delete, lambda: None, None))
    log(table(list(rows[0]), [tuple(row.values()) for row in rows]))
    write_csv(out / "disk.csv", rows)
    log.write(out / "disk.txt")
    if not all(row["resumed_identical"] and "TRACEBACK" not in str(row["said"]) for row in rows):
        raise SystemExit("something was lost")


if __name__ == "__main__":
    main()
