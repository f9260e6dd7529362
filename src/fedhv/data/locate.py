"""The location of the datasets: an explicit folder, then FEDHV_DATA, then a cache folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedhv.data.files import present
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Location:
    """A data directory and the origin of its name."""

    path: Path
    origin: str


def data_location(explicit: str | os.PathLike[str] | None = None) -> Location:
    """The data directory and the origin of its name; it need not exist."""
    if explicit is not None and str(explicit):
        location = Location(Path(explicit), "--data")
    elif os.environ.get("FEDHV_DATA"):
        location = Location(Path(os.environ["FEDHV_DATA"]), "FEDHV_DATA")
    else:
        # The XDG specification: a relative XDG_CACHE_HOME must be ignored.
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        location = Location((cache if cache.is_absolute() else Path("~/.cache")) / "fedhv" / "data", "default")
    try:
        path = Path(os.path.abspath(location.path.expanduser()))
    except RuntimeError:
        raise InputError(f"Cannot find the home folder in {location.path}; set FEDHV_DATA or use --data.") from None
    if present(path) and not path.is_dir():
        raise InputError(
            f"The data directory should be a folder. Found the file {path} ({location.origin}); "
            "name the folder that holds MNIST/raw, FashionMNIST/raw, cifar-10-batches-bin, celeba, tox21 or star."
        )
    return Location(path, location.origin)


def data_directory(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The data directory: `explicit`, else FEDHV_DATA, else `fedhv/data` in the user's cache folder."""
    return data_location(explicit).path


def missing(title: str, names: Iterable[str], folder: Path, remedy: str) -> InputError:
    """The error for missing files: their names, the folder, and how to get them."""
    return InputError(
        f"{title} is not complete: {', '.join(names)} not found in {folder}. {remedy}, "
        "or name a folder that has them with --data or FEDHV_DATA."
    )
