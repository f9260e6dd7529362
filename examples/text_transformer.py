"""Text: a small transformer on token ids with attention masks, two tasks, clients who write differently.

A HuggingFace dataset of short notes is made here: each has a subject (four classes) and is urgent or not. Every client
writes about some subjects more than about others. Notes have different lengths: `fedhv.padded` pads the ids and the
masks of a minibatch to its longest note.

    python examples/text_transformer.py
"""

from __future__ import annotations

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn

import fedhv

SUBJECTS = {
    "delivery": ["parcel", "courier", "late", "address"],
    "payment": ["invoice", "card", "refund", "charge"],
    "account": ["password", "login", "email", "locked"],
    "product": ["screen", "battery", "broken", "button"],
}
URGENT, CALM = ["now", "immediately", "today"], ["whenever", "someday", "thanks"]
FILLER = ["the", "my", "a", "is", "was", "please", "i", "have", "about", "with"]
WORDS = ["<pad>", *sorted({*FILLER, *URGENT, *CALM, *(word for words in SUBJECTS.values() for word in words)})]


def notes(count: int, seed: int, clients: int = 8) -> Dataset:
    """Notes as token ids with masks; half of a client's notes are about its favourite subject."""
    rng = np.random.default_rng(seed)
    table: dict[str, list] = {"input_ids": [], "attention_mask": [], "subject": [], "urgent": [], "client": []}
    for _ in range(count):
        client, urgent = rng.integers(clients), rng.integers(2)
        subject = client % len(SUBJECTS) if rng.random() < 0.5 else rng.integers(len(SUBJECTS))
        words = [*rng.choice(FILLER, rng.integers(3, 10)), *rng.choice(list(SUBJECTS.values())[subject], 2)]
        words.append(rng.choice(URGENT if urgent else CALM))
        ids = [WORDS.index(word) for word in rng.permutation(words)]
        for name, value in zip(table, (ids, [True] * len(ids), subject, urgent, client), strict=True):
            table[name].append(value)
    return Dataset.from_dict(table)


class Transformer(nn.Module):
    """Embeddings, one encoder layer, the mean over the words that are there, a head for every task."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(32, width))
        self.encoder = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.heads = nn.ModuleList([nn.Linear(width, len(SUBJECTS)), nn.Linear(width, 2)])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        hidden = self.words(input_ids) + self.places[: input_ids.shape[1]]
        hidden = self.encoder(hidden, src_key_padding_mask=~attention_mask.bool())
        there = attention_mask[..., None].to(hidden.dtype)
        mean = (hidden * there).sum(dim=1) / there.sum(dim=1)
        return [head(mean) for head in self.heads]


def problem() -> fedhv.Problem:
    return fedhv.Problem.from_table(
        Transformer,
        [fedhv.classification("subject", len(SUBJECTS)), fedhv.classification("urgent", 2, metrics=["roc_auc"])],
        notes(480, seed=0),
        inputs={"input_ids": "input_ids", "attention_mask": "attention_mask"},
        targets={"subject": "subject", "urgent": "urgent"},
        client="client",
        test=notes(400, seed=1),
        collate=fedhv.padded,
        name="notes",
    )


def main(rounds: int = 40) -> fedhv.Run:
    local = {"participants": 4, "local_steps": 10, "batch_size": 16}
    return fedhv.run(problem(), fedhv.FedHV(local_lr=0.2), rounds=rounds, **local, override=["evaluation.every=10"])


if __name__ == "__main__":
    for task in main().tasks:
        print(task.name, f"{task.accuracy:.1f} %", *(f"{name} {value:.3f}" for name, value in task.metrics.items()))
