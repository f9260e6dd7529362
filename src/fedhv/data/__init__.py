"""Datasets on disk: location, reading, downloading and verification of files."""

from fedhv.data.celeba import Faces, ProgressCallback, load_celeba
from fedhv.data.cifar import load_cifar10
from fedhv.data.download import download
from fedhv.data.locate import Location, data_directory, data_location
from fedhv.data.mnist import ImageArrays, load_fashion_mnist, load_mnist
from fedhv.data.verify import Finding, verify

__all__ = [
    "Faces",
    "Finding",
    "ImageArrays",
    "Location",
    "ProgressCallback",
    "data_directory",
    "data_location",
    "download",
    "load_celeba",
    "load_cifar10",
    "load_fashion_mnist",
    "load_mnist",
    "verify",
]
