"""CelebA5: the 40 attributes of CelebA's faces in five groups of eight; every group is a task."""

from __future__ import annotations

from pathlib import Path

import torch

from fedhv.benchmarks.augment import Normalise
from fedhv.benchmarks.models import ResNet18
from fedhv.data.celeba import ATTRIBUTES, Faces, load_celeba
from fedhv.problem.problem import Benchmark, Examples
from fedhv.problem.tasks import multilabel
from fedhv.support.bars import counts

# fmt: off
GROUPS = {
    "T1": ("5_o_Clock_Shadow", "Blond_Hair", "Bags_Under_Eyes", "Eyeglasses",
           "Mustache", "Wavy_Hair", "Oval_Face", "Rosy_Cheeks"),
    "T2": ("Arched_Eyebrows", "Black_Hair", "Big_Nose", "Blurry",
           "Goatee", "Straight_Hair", "Pale_Skin", "Wearing_Earrings"),
    "T3": ("Attractive", "Brown_Hair", "Bushy_Eyebrows", "Double_Chin",
           "Mouth_Slightly_Open", "Receding_Hairline", "Wearing_Hat", "Young"),
    "T4": ("Bald", "Big_Lips", "Chubby", "Heavy_Makeup",
           "High_Cheekbones", "Male", "Sideburns", "Smiling"),
    "T5": ("Bangs", "Gray_Hair", "Narrow_Eyes", "No_Beard",
           "Pointy_Nose", "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie"),
}
# fmt: on
"""The attribute groups of the paper's Table 2, in its order."""

MEAN = (72.39239876, 82.90891754, 73.15835921)
"""The means of red, green and blue that are subtracted before the division by 255, as in the paper's experiments."""
COLOUR = Normalise(tuple(channel / 255 for channel in MEAN), (1.0, 1.0, 1.0))


def load(data: Path) -> Benchmark:
    """CelebA5 with the tasks "T1" … "T5"; each of the 40 attributes is a label column for partitions."""
    with counts() as progress:
        train, test = load_celeba(data, progress.update)
    return Benchmark(
        name="CelebA5",
        model=ResNet18,
        tasks=tuple(multilabel(task, len(group)) for task, group in GROUPS.items()),
        train=_examples(train),
        test=_examples(test),
        prepare=COLOUR,
        strata={name: train.attributes[:, i] for i, name in enumerate(ATTRIBUTES)},
    )


def _examples(faces: Faces) -> Examples:
    attributes = torch.from_numpy(faces.attributes)
    columns = [[ATTRIBUTES.index(name) for name in group] for group in GROUPS.values()]
    return Examples(torch.from_numpy(faces.images), tuple(attributes[:, group] for group in columns))
