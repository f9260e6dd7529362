"""The official files of the datasets that may be downloaded: addresses, sizes and SHA-256.

Hashes are those of the uncompressed content, because the same idx file exists in several gzip packings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Official:
    """One official file.

    Attributes:
        name: Its name on disk, without ".gz".
        length: The bytes of its uncompressed content.
        sha256: The hash of its uncompressed content.
        remote: Its name on the server, by default `NAME.gz`.
    """

    name: str
    length: int
    sha256: str
    remote: str | None = None

    @property
    def packed(self) -> bool:
        """Whether the server has it as gzip."""
        return self.remote is None or self.remote.endswith(".gz")


@dataclass(frozen=True)
class Source:
    """A dataset's official files.

    Attributes:
        name: Its name in `fedhv data download`.
        title: Its name in messages.
        folder: The folder of its files, below the data directory.
        url: The web folder with each file as `NAME.gz`, or with `archive`.
        files: The files.
        archive: A tar.gz with all files; empty if each is downloaded separately.
        largest: The largest accepted number of bytes of one download.
        columns: The required columns of a dataset in one CSV file. Other versions of the table are accepted, so
            another SHA-256 is not an error.
    """

    name: str
    title: str
    folder: str
    url: str
    files: tuple[Official, ...]
    archive: str | None = None
    largest: int = 64 << 20
    columns: tuple[str, ...] = ()


IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
IDX_LENGTHS = (47_040_016, 60_008, 7_840_016, 10_008)


def _idx(*hashes: str) -> tuple[Official, ...]:
    return tuple(Official(*each) for each in zip(IDX_NAMES, IDX_LENGTHS, hashes, strict=True))


MNIST = Source(
    "mnist",
    "MNIST",
    "MNIST/raw",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    _idx(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

FASHION_MNIST = Source(
    "fashion-mnist",
    "Fashion-MNIST",
    "FashionMNIST/raw",
    # This address has no TLS; downloads are checked against the hashes below.
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    _idx(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

CIFAR10_RECORDS = 30_730_000
CIFAR10 = Source(
    "cifar10",
    "CIFAR-10",
    "cifar-10-batches-bin",
    "https://www.cs.toronto.edu/~kriz/",
    tuple(
        Official(name, CIFAR10_RECORDS, digest)
        for name, digest in (
            ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        )
    ),
    archive="cifar-10-binary.tar.gz",
    largest=256 << 20,
)

TOX21_ASSAYS = (
    *("NR-AR", "NR-AR-LBD", "NR-AhR", "NR-Aromatase", "NR-ER", "NR-ER-LBD", "NR-PPAR-gamma"),
    *("SR-ARE", "SR-ATAD5", "SR-HSE", "SR-MMP", "SR-p53"),
)
TOX21 = Source(
    "tox21",
    "Tox21",
    "tox21",
    # The file in DeepChem's repository has 8,014 molecules; the one that its loader downloads has 7,831. The address
    # has not been tested; length and SHA-256 are those of the file at this tag.
    "https://raw.githubusercontent.com/deepchem/deepchem/2.8.0/datasets/",
    (Official("tox21.csv", 536_070, "1689278aa402ef8da840be1126c547253338d390cc8526714910a3b2a39fa1c9"),),
    largest=8 << 20,
    columns=(*TOX21_ASSAYS, "smiles"),
)

GRADES = ("k", "1", "2", "3")
STAR_TESTS = tuple(f"{subject}{grade}" for subject in ("read", "math") for grade in GRADES)
STAR_YEARLY = ("star", "lunch", "school", "degree", "ladder", "experience", "tethnicity", "schoolid")
STAR = Source(
    "star",
    "STAR",
    "star",
    # `STAR` of R's package AER, from Rdatasets. The address has not been tested; length and SHA-256 are those of the
    # file at this commit.
    "https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/1dcc2bf5f955cc1224a3e1307256e1fe86b68dae/csv/AER/",
    (
        Official(
            "star.csv", 2_124_167, "0e8b179ea3d883730b25008ca1293c4c8f886aa8d5d299c03ab6ff05d0123ae6", remote="STAR.csv"
        ),
    ),
    largest=8 << 20,
    columns=(
        *("gender", "ethnicity", "birth"),
        *STAR_TESTS,
        *(f"{name}{grade}" for name in STAR_YEARLY for grade in GRADES),
    ),
)

SOURCES = {source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, TOX21, STAR)}
