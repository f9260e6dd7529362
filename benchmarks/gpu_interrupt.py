"""Seconds from Ctrl-C to the end of a program on a GPU, at several moments of a run's beginning.

    PYTHONPATH=src python3 benchmarks/gpu_interrupt.py [--models resnet,torchvision-mobilenet-v3] [--after 1,2,4,8]

Every trial is a process with an empty cache of kernels: a signal comes while it starts CUDA, tests whether the model
can be stacked, compiles kernels, records or trains. The moments are seconds after the call of `fedhv.compare`. What the
program was doing is read from the files that it has: compiled kernels, and rounds of the history.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

import fedhv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
from zoo import FULL, TINY, ZOO, Size  # the tests' models are no package


def program(name: str, size: Size, device: str, folder: Path) -> None:
    """The run that is interrupted."""
    problem = ZOO[name].problem(size, [320] * 10, test=32)
    torch.set_num_threads(1)
    (folder / "began").touch()
    precision = "tf32" if device == "cuda" else "float32"
    fedhv.compare(
        problem, ["uniform"], seeds=[0], rounds=100_000, out=folder / "run", engine="stacked", device=device,
        precision=precision, local_steps=10, batch_size=32,
    )  # fmt: skip


def trial(name: str, size: Size, device: str, after: float) -> str:
    """One program: what it had done when the signal came, and how long it lived after it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        process = os.fork()  # CUDA has not started here, so that the program may start it
        if process == 0:
            os.environ["TRITON_CACHE_DIR"] = str(folder / "kernels")
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT), 2)
            try:
                program(name, size, device, folder)
            except (fedhv.Interrupted, KeyboardInterrupt):
                os._exit(130)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        while not (folder / "began").exists():
            time.sleep(0.01)
        time.sleep(after)
        kernels = len(list((folder / "kernels").glob("*/*.cubin"))) if (folder / "kernels").exists() else 0
        histories = list(folder.glob("run/**/history.jsonl"))
        rounds = sum(len(path.read_text().splitlines()) for path in histories)
        os.kill(process, signal.SIGINT)
        began = time.perf_counter()
        _, status = os.waitpid(process, 0)
        seconds, code = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
        wrong = "" if code == 130 else f", exit {code}: {(folder / 'errors').read_text()[-300:]}"
        return (
            f"{name:26s} {after:5.1f} s  {kernels:3d} kernels, {rounds:3d} rounds: ended after {seconds:.2f} s{wrong}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet,torchvision-mobilenet-v3")
    parser.add_argument("--after", default="1,2,4,8", help="seconds, comma-separated")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="the tests' sizes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored by what started this
    for name in arguments.models.split(","):
        for after in arguments.after.split(","):
            print(trial(name, TINY if arguments.tiny else FULL, arguments.device, float(after)), flush=True)


if __name__ == "__main__":
    main()
