"""CUDA that packages are built for, and the driver of a node.

A driver runs programs of its CUDA major version and of older ones. Sources: "Minor Version Compatibility" in CUDA
Compatibility of NVIDIA (the drivers of CUDA 10 to 13); release notes of PyTorch; "Tested build configurations" of
TensorFlow (packages whose version does not name CUDA).

Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import re
from typing import Iterable, Iterator, NamedTuple

#: First driver for each major version of CUDA.
DRIVERS = {13: 580, 12: 525, 11: 450, 10: 410}
DRIVER_FILE = "/proc/driver/nvidia/version"

_DRIVER = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
_REQUIREMENT = re.compile(r"[\s\"-]*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(?:==?=?\s*([0-9][\w.+!]*))?")
_LOCKED = re.compile(r'^\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"', re.MULTILINE)
_PROJECT = re.compile(r"^dependencies\s*=\s*\[(.*?)\]\s*$", re.MULTILINE | re.DOTALL)
_INDEX = re.compile(r"^\s*--(?:extra-)?index-url[ =]\S*/(?:cu(\d+)|cpu|rocm[\d.]*)/?\s*$", re.MULTILINE)
_VERSIONED = re.compile(r"\+cu(\d{2,3})")
_NAMED = re.compile(r"(?:^|-)cu(?:da)?(\d\d)[\dx]?(?:$|-)")
_EXTRA = re.compile(r"cuda(\d\d)")
_RUNTIMES = ("nvidia-cuda-runtime", "cudatoolkit", "pytorch-cuda", "cuda-version", "cuda-toolkit", "cuda-cudart")
# First version of a package for each major version of CUDA, the newest first.
_BUILT_FOR = {
    "torch": (((2, 1), 12), ((1, 13), 11), ((0,), 10)),
    "tensorflow": (((2, 15), 12), ((2, 4), 11), ((0,), 10)),
}


class Package(NamedTuple):
    """A package that was requested or installed; empty fields are not known."""

    name: str
    version: str = ""
    extras: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


class CudaNeed(NamedTuple):
    """Major version of CUDA, and the package that is built for it."""

    major: int
    package: str


def requested(files: dict[str, str]) -> list[Package]:
    """Return the packages that the files of a request name, without the dependencies of these."""
    if "pyproject.toml" in files:
        named = _PROJECT.search(files["pyproject.toml"])
        lines = re.findall(r"\"([^\"]+)\"|'([^']+)'", named[1]) if named else []
        return _parse(one or other for one, other in lines)
    if "environment.yml" in files:
        text = files["environment.yml"].partition("dependencies")[2]
        return _parse(line for line in text.splitlines() if line.strip().startswith(("-", '"')))
    return _parse(files["requirements.txt"].splitlines())


def needed_by(files: dict[str, str]) -> CudaNeed | None:
    """Return the newest CUDA that the packages of a request need; None: no package is known to need one."""
    locked = [Package(*found) for found in _LOCKED.findall(files.get("uv.lock", ""))]
    if locked:
        return newest(locked)
    index = _INDEX.search(files.get("requirements.txt", ""))
    packages = requested(files)
    if index is None:
        return newest(packages)
    needs = newest(one for one in packages if one.name not in _BUILT_FOR)
    torch = next((one for one in packages if one.name == "torch"), None)
    if torch is None or not index[1]:
        return needs
    return max(filter(None, [needs, CudaNeed(int(index[1][:-1]), str(torch))]))


def newest(packages: Iterable[Package]) -> CudaNeed | None:
    """Return the newest CUDA that packages need; None: no package is known to need one."""
    found = [CudaNeed(major, str(one)) for one in packages for major in [_major(one)] if major]
    return max(found, key=lambda need: need.major, default=None)


def installed(path: str) -> Iterator[Package]:
    """Yield the packages in an environment, by the names of their metadata."""
    for folder in _folders(path):
        for entry in os.listdir(folder):
            if entry.endswith(".dist-info"):
                name, _, version = entry[: -len(".dist-info")].rpartition("-")
                yield Package(_normal(name), version)
            elif folder.endswith("conda-meta") and entry.endswith(".json"):
                name, _, version = entry.rpartition("-")[0].rpartition("-")
                yield Package(_normal(name), version)


def node_driver(path: str = DRIVER_FILE) -> str:
    """Return the version of the NVIDIA driver of this node; empty if it has none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = _DRIVER.search(file.readline(1000))
    except OSError:
        return ""
    return found[1] if found else ""


def limit_of(driver: str) -> int:
    """Return the newest major version of CUDA that a driver runs."""
    major = int(driver.partition(".")[0])
    return max((cuda for cuda, first in DRIVERS.items() if major >= first), default=9)


def _folders(path: str) -> list[str]:
    libraries = os.path.join(path, "lib")
    names = sorted(os.listdir(libraries)) if os.path.isdir(libraries) else []
    folders = [os.path.join(libraries, name, "site-packages") for name in names if name.startswith("python3")]
    return [folder for folder in (*folders, os.path.join(path, "conda-meta")) if os.path.isdir(folder)]


def _parse(lines: Iterable[str]) -> list[Package]:
    found = []
    for line in lines:
        text = line.strip()
        named = None if text.startswith(("#", "--")) else _REQUIREMENT.match(text)
        if named:
            found.append(Package(_normal(named[1]), named[3] or "", named[2] or ""))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _major(package: Package) -> int:
    """Return the major version of CUDA that a package is built for; 0: none is known."""
    name, version, extras = package
    if found := _VERSIONED.search(version):
        return int(found[1][:-1])
    if "+" in version:  # +cpu, +rocm6.2
        return 0
    base = re.sub(r"-cu\d\d$", "", name)
    if base in _RUNTIMES and (digits := re.match(r"\d+", version)):
        return int(digits[0])
    if (found := _NAMED.search(name)) or (found := _EXTRA.search(extras)):
        return int(found[1])
    if name not in _BUILT_FOR:
        return 0
    parts = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return next((major for first, major in _BUILT_FOR[name] if not parts or parts >= first), 0)
