"""Detection of damaged checkpoints: every bit flipped, and every possible truncation.

    python benchmarks/reliability/checkpoints.py [--out FOLDER]

If the newest checkpoint is damaged, the previous one must be used, with a note. If both are damaged, both must be
refused. A damaged checkpoint may never be loaded. Results are grouped by the damaged part: header length, header,
model, weights, memory, round, and checksum.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import Notes, figure, machine, out_folder, table, write_csv


def classes(content: bytes) -> list[str]:
    """The part of the checkpoint to which every byte belongs."""
    length = int.from_bytes(content[:8], "little")
    names = ["header length"] * 8 + ["header"] * length + ["checksum"] * (len(content) - 8 - length)
    for name, entry in json.loads(content[8 : 8 + length]).items():
        begin, end = entry["data_offsets"]
        what = name.split(".")[0]
        names[8 + length + begin : 8 + length + end] = [what] * (end - begin)
    return names


def damaged(content: bytes) -> Iterator[tuple[str, str, bytes]]:
    """(how, which class, content) of every damage."""
    names = classes(content)
    for place, name in enumerate(names):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            yield "bit flipped", name, bytes(changed)
        yield (
            "byte zeroed" if content[place] else "byte set",
            name,
            (content[:place] + (b"\0" if content[place] else b"\xff") + content[place + 1 :]),
        )
    for length in range(len(content)):
        yield "cut", names[length], content[:length]
    for extra in (1, 32, 512):
        yield "grown", "checksum", content + b"\0" * extra
    for start in range(0, len(content), 64):
        yield (
            "sector lost",
            names[start],
            content[:start] + b"\0" * min(64, len(content) - start) + content[start + 64 :],
        )


def main(arguments: Sequence[str] | None = None) -> None:
    out = out_folder(__doc__, arguments)
    import torch

    from fedhv import InputError, State
    from fedhv.runs.checkpoint import NAME, PREVIOUS, Checkpoint, load_checkpoint, save_checkpoint

    def state(seed: int) -> State:
        rng = torch.Generator().manual_seed(seed)
        return State(torch.rand(40, generator=rng), torch.rand(2, generator=rng), {"reference": torch.rand(2, generator=rng).double()})  # fmt: skip # noqa: E501

    log = Notes()
    log(machine())
    outcomes: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_checkpoint(folder, Checkpoint(6, state(6)))
        save_checkpoint(folder, Checkpoint(7, state(7)))
        newest = (folder / NAME).read_bytes()
        before = (folder / PREVIOUS).read_bytes()
        log(f"a checkpoint of {len(newest)} bytes")
        for how, name, content in damaged(newest):
            if content == newest:
                continue
            (folder / NAME).write_bytes(content)
            (folder / PREVIOUS).write_bytes(before)
            loaded, note = load_checkpoint(folder, state(0))
            back = loaded is not None and loaded.round == 6 and torch.equal(loaded.state.model, state(6).model)
            outcomes[name, how, "fell back with a note" if back and "Using the previous one" in note else "WRONG"] += 1  # fmt: skip # noqa: E501
            (folder / PREVIOUS).write_bytes(content)
            try:
                load_checkpoint(folder, state(0))
                outcomes[name, how, "LOADED SILENTLY"] += 1
            except InputError:
                outcomes[name, how, "both damaged: refused"] += 1
    rows = [{"bytes": n, "damage": h, "outcome": o, "count": c} for (n, h, o), c in sorted(outcomes.items())]
    log(table(("bytes", "damage", "outcome", "count"), [tuple(row.values()) for row in rows]))
    wrong = sum(row["count"] for row in rows if row["outcome"] in ("WRONG", "LOADED SILENTLY"))
    total = sum(row["count"] for row in rows)
    log(f"{total} loads of damaged checkpoints, {wrong} wrong")

    def draw(axes) -> None:  # type: ignore[no-untyped-def]
        names = list(dict.fromkeys(row["bytes"] for row in rows))
        for i, (outcome, colour) in enumerate(
            (("fell back with a note", "#228833"), ("both damaged: refused", "#4477aa"))
        ):
            counts = [sum(r["count"] for r in rows if r["bytes"] == n and r["outcome"] == outcome) for n in names]
            axes.barh([y + 0.2 - 0.4 * i for y in range(len(names))], counts, height=0.38, color=colour, label=outcome)
        axes.set(yticks=range(len(names)), yticklabels=names, xlabel="damaged checkpoints")
        axes.set_title(f"{total} damaged checkpoints, {wrong} loaded silently")
        axes.legend(frameon=False)

    write_csv(out / "checkpoints.csv", rows)
    log.write(out / "checkpoints.txt")
    figure(out / "checkpoints", draw)
    if wrong:
        raise SystemExit("damage was not noticed")


if __name__ == "__main__":
    main()
