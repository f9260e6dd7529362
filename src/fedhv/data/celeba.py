"""CelebA: aligned JPEGs and two lists, resized once to 32x32 and kept as arrays."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhv.data.arrays import read_arrays, write_arrays
from fedhv.data.files import listing, opened, present
from fedhv.data.locate import missing
from fedhv.support.cores import usable_cores
from fedhv.support.errors import InputError

ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the item, the amount done, and the total (if known)."""

# fmt: off
ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose",
    "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses",
    "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache",
    "Narrow_Eyes", "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks",
    "Sideburns", "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick",
    "Wearing_Necklace", "Wearing_Necktie", "Young",
)
# fmt: on
"""The 40 attributes in the official order."""

FOLDER = "celeba"
IMAGES, ATTRIBUTE_LIST, PARTITION_LIST = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
SPLITS = {"train": 0, "test": 2}
"""The numbers of the partitions that are used; 1 is the validation partition, which is not."""
ALIGNED = (178, 218)
SIDE = 32
LARGEST_LIST = 256 << 20
AGAIN = "use the lists of the official release"
CHUNK = 1024
"""The number of images that are given to the threads at once."""

TERMS = """\
CelebA is for non-commercial research only and may not be redistributed; every user has to agree to its terms, so
FedHV does not download it. The terms and the files are at

    https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html

Having agreed, fetch from there "Align&Cropped Images" (img_align_celeba.zip), list_attr_celeba.txt and
list_eval_partition.txt, and put them as

    {folder}/img_align_celeba/000001.jpg … 202599.jpg
    {folder}/list_attr_celeba.txt
    {folder}/list_eval_partition.txt

(the layout that torchvision uses too). The first run resizes the images to 32x32 and keeps them in that folder."""


@dataclass(frozen=True)
class Faces:
    """One split of CelebA.

    Attributes:
        images: (n, 3, 32, 32) bytes, red, green and blue.
        attributes: (n, 40) bytes, 0 or 1, in the order of `ATTRIBUTES`.
        names: (n,) file names.
    """

    images: np.ndarray
    attributes: np.ndarray
    names: np.ndarray


def arrays_of(folder: Path, split: str) -> Path:
    """The file of the arrays of a split."""
    return folder / f"celeba-{SIDE}x{SIDE}-{split}.npz"


def load_celeba(root: Path, progress: ProgressCallback | None = None) -> tuple[Faces, Faces]:
    """CelebA's training and test splits, from the stored arrays or, the first time, from the JPEGs.

    Stored arrays whose images differ from the lists in the folder are rejected, so that a subset is not used as the
    whole.

    Args:
        root: The data directory; CelebA is in its folder `celeba`.
        progress: Called with the number of resized images.
    """
    folder = root / FOLDER
    caches = {split: arrays_of(folder, split) for split in SPLITS}
    kept = [path for path in caches.values() if present(path)]
    if len(kept) == len(caches):
        return read_split(folder, "train"), read_split(folder, "test")
    originals = all(present(folder / name) for name in (IMAGES, ATTRIBUTE_LIST, PARTITION_LIST))
    if not originals:
        wanted = [path.name for path in caches.values()] if kept else [IMAGES, ATTRIBUTE_LIST, PARTITION_LIST]
        raise missing(
            "CelebA",
            [name for name in wanted if not present(folder / name)],
            folder,
            "Run `fedhv data download celeba` to see its terms and where to put its files",
        )
    train, test = _resize_all(folder, progress)
    try:
        for split, faces in (("train", train), ("test", test)):
            write_arrays(caches[split], _arrays(faces))
    except InputError as error:
        _LOG.warning("The resized images could not be stored and will be made again next time. %s", error)
    return train, test


_LOG = logging.getLogger(__name__)


def read_split(folder: Path, split: str) -> Faces:
    """The stored arrays of a split, checked against the list of partitions if it is in the folder."""
    path = arrays_of(folder, split)
    faces = read_faces(path)
    if present(folder / PARTITION_LIST):
        partition = _read_partition(folder / PARTITION_LIST)
        listed = {name for name, number in partition.items() if number == SPLITS[split]}
        if listed != set(faces.names.tolist()):
            raise InputError(
                f"{path}: expected the {len(listed)} {split} images that {PARTITION_LIST} lists, found "
                f"{len(faces.names)} of another list. Delete it to have it made again from the JPEGs, or move the "
                "lists away to use it."
            )
    return faces


def read_faces(path: Path) -> Faces:
    """The stored arrays of one split, checked."""
    arrays = read_arrays(path, ("images", "attributes", "names", "attribute_names"))
    images, attributes, names = (arrays[name] for name in ("images", "attributes", "names"))
    n = len(images) if images.ndim else 0
    for name, array, shape in (("images", images, (n, 3, SIDE, SIDE)), ("attributes", attributes, (n, 40))):
        if n == 0 or array.dtype != np.uint8 or array.shape != shape:
            raise InputError(
                f"{path}: expected `{name}` as uint8 of shape ({', '.join(['n', *map(str, shape[1:])])}), "
                f"found {array.dtype} of shape {array.shape}."
            )
    if names.dtype.kind != "U" or names.shape != (n,):
        raise InputError(f"{path}: expected `names` of {n} images, found {names.dtype} of shape {names.shape}.")
    if attributes.max() > 1:
        raise InputError(f"{path}: expected attributes 0 or 1, found {attributes.max()}.")
    _check_attribute_names(path, [str(name) for name in arrays["attribute_names"].ravel()])
    return Faces(images, attributes, names)


@dataclass(frozen=True)
class Lists:
    """The entries of the two official lists for every image, in their order."""

    names: list[str]
    attributes: np.ndarray
    partition: np.ndarray


def read_lists(folder: Path) -> Lists:
    """Both lists, checked against each other and against the folder of images."""
    names, attributes = _read_attributes(folder / ATTRIBUTE_LIST)
    partition = _read_partition(folder / PARTITION_LIST)
    listed = set(names)
    _compare(listed, set(partition), folder / ATTRIBUTE_LIST, folder / PARTITION_LIST)
    jpegs = {name for name in listing(folder / IMAGES) if name.lower().endswith((".jpg", ".jpeg", ".png"))}
    _compare(listed, jpegs, folder / ATTRIBUTE_LIST, folder / IMAGES)
    return Lists(names, attributes, np.array([partition[name] for name in names], np.uint8))


def check_jpegs(folder: Path, lists: Lists, progress: ProgressCallback | None = None) -> None:
    """Raise an error for images that cannot be decoded."""
    for _ in _decoded(folder, lists, "CelebA: decoding images", progress):
        pass


def _resize_all(folder: Path, progress: ProgressCallback | None) -> tuple[Faces, Faces]:
    lists = read_lists(folder)
    decoded = _decoded(folder, lists, "CelebA: resizing images", progress)
    faces = []
    for rows in used(folder, lists):
        images = np.empty((len(rows), 3, SIDE, SIDE), np.uint8)
        for i in range(len(rows)):
            images[i] = next(decoded)
        faces.append(Faces(images, lists.attributes[rows], np.array([lists.names[i] for i in rows])))
    return faces[0], faces[1]


def used(folder: Path, lists: Lists) -> list[np.ndarray]:
    """The positions of every split's images in the lists."""
    chosen = []
    for split, number in SPLITS.items():
        chosen.append(np.flatnonzero(lists.partition == number))
        if len(chosen[-1]) == 0:
            raise InputError(
                f"{folder / PARTITION_LIST}: expected images of the {split} partition ({number}), found none; {AGAIN}."
            )
    return chosen


def _decoded(folder: Path, lists: Lists, what: str, progress: ProgressCallback | None) -> Iterator[np.ndarray]:
    """The images that are used, split by split, at 32x32."""
    paths = [folder / IMAGES / lists.names[i] for rows in used(folder, lists) for i in rows]
    done = 0
    # Pillow releases the interpreter lock while it decodes, so threads use all cores.
    with ThreadPoolExecutor(usable_cores()) as pool:
        for begin in range(0, len(paths), CHUNK):  # an interruption takes effect after a chunk
            for image in pool.map(_resized, paths[begin : begin + CHUNK]):
                done += 1
                if progress is not None:
                    progress(what, done, len(paths))
                yield image


def _resized(path: Path) -> np.ndarray:
    """The whole aligned image at 32x32 by Pillow's bilinear filter, (3, 32, 32)."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError("Reading CelebA's JPEGs needs Pillow; run `pip install 'fedhv[data]'`.") from None
    with opened(path) as file:
        try:
            with Image.open(file, formats=["JPEG"]) as image:
                if image.size != ALIGNED:
                    raise InputError(
                        f"{path}: expected an aligned image of {ALIGNED[0]}x{ALIGNED[1]}, found "
                        f"{image.size[0]}x{image.size[1]}; use CelebA's aligned and cropped images."
                    )
                small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            reason = "something else" if isinstance(error, UnidentifiedImageError) else str(error).rstrip(".")
            raise InputError(f"{path}: expected a whole JPEG, found {reason}; get the image again.") from None
    return np.asarray(small, np.uint8).transpose(2, 0, 1)


def _read_attributes(path: Path) -> tuple[list[str], np.ndarray]:
    lines = _lines(path)
    if len(lines) < 3 or not re.fullmatch(r"\s*[0-9]{1,9}\s*", lines[0]):
        raise InputError(f"{path}: expected the number of images, the attribute names and one line per image; {AGAIN}.")
    _check_attribute_names(path, lines[1].split())
    rows = lines[2:]
    if len(rows) != int(lines[0]):
        raise InputError(f"{path}: expected {int(lines[0])} images (its first line), found {len(rows)}; {AGAIN}.")
    value = {"1": 1, "-1": 0}
    names: list[str] = []
    attributes = np.empty((len(rows), len(ATTRIBUTES)), np.uint8)
    for i, row in enumerate(rows):
        name, *signs = row.split()
        if len(signs) != len(ATTRIBUTES) or not value.keys() >= set(signs):
            raise InputError(
                f"{path}, line {i + 3}: expected a file name and 40 numbers 1 or -1, found '{row[:60]}'; {AGAIN}."
            )
        names.append(_file_name(path, i + 3, name))
        attributes[i] = [value[sign] for sign in signs]
    _refuse_repetition(path, names)
    return names, attributes


def _read_partition(path: Path) -> dict[str, int]:
    names: list[str] = []
    numbers: list[int] = []
    for i, row in enumerate(_lines(path)):
        fields = row.split()
        if len(fields) != 2 or fields[1] not in ("0", "1", "2"):
            raise InputError(f"{path}, line {i + 1}: expected a file name and 0, 1 or 2, found '{row[:60]}'; {AGAIN}.")
        names.append(_file_name(path, i + 1, fields[0]))
        numbers.append(int(fields[1]))
    _refuse_repetition(path, names)
    return dict(zip(names, numbers, strict=True))


def _lines(path: Path) -> list[str]:
    with opened(path) as file:
        data = file.read(LARGEST_LIST + 1)
    if len(data) > LARGEST_LIST:
        raise InputError(f"{path}: expected CelebA's list, found more than {LARGEST_LIST} bytes.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected CelebA's list as text, found other bytes.") from None
    return [line for line in text.splitlines() if line.strip()]


def _file_name(path: Path, line: int, name: str) -> str:
    """A plain file name; a list must not contain paths outside the folder of images."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}\.(jpg|jpeg|png)", name):
        raise InputError(f"{path}, line {line}: expected the file name of an image, found '{name[:60]}'.")
    return name


def _refuse_repetition(path: Path, names: list[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{path}: expected every image once, found {twice} twice; {AGAIN}.")


def _check_attribute_names(path: Path, names: list[str]) -> None:
    if tuple(names) != ATTRIBUTES:
        wrong = next((f"'{b}' for '{a}'" for a, b in zip(ATTRIBUTES, names, strict=False) if a != b), None)
        found = wrong or f"{len(names)} names"
        raise InputError(f"{path}: expected CelebA's 40 attributes in the official order, found {found}; {AGAIN}.")


def _compare(listed: set[str], there: set[str], a: Path, b: Path) -> None:
    """Raise an error if two sources name different images."""
    only_a, only_b = listed - there, there - listed
    if only_a or only_b:
        parts = [_some(only, path) for only, path in ((only_a, a), (only_b, b)) if only]
        raise InputError(
            f"CelebA's {a.name} and {b.name} in {a.parent} do not match: {' and '.join(parts)}; "
            "use the lists and images of one release, complete."
        )


def _some(names: Iterable[str], path: Path) -> str:
    ordered = sorted(names)
    shown = ", ".join(ordered[:3]) + (", …" if len(ordered) > 3 else "")
    return f"{len(ordered)} only in {path.name} ({shown})"


def _arrays(faces: Faces) -> dict[str, np.ndarray]:
    return {
        "images": faces.images,
        "attributes": faces.attributes,
        "names": faces.names,
        "attribute_names": np.array(ATTRIBUTES),
    }
