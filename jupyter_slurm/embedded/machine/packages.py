"""System packages that the embedded cluster needs, and the one command that installs them.

Standard library only and runnable by path (``python3 jupyter_slurm/embedded/machine/packages.py``): ``make`` runs this
file before anything else is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["PROGRAMS", "command_to_install", "find_program", "missing_packages", "packages_for"]

SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Directories searched for daemons besides PATH: an ordinary user's PATH seldom has the sbin directories."""


@dataclass(frozen=True)
class Program:
    """A program, its Debian package, and whether only accounting needs it."""

    name: str
    package: str
    accounting: bool = False


PROGRAMS: tuple[Program, ...] = (
    Program("slurmctld", "slurm-wlm"),
    Program("slurmd", "slurm-wlm"),
    Program("sbatch", "slurm-wlm"),
    Program("munged", "munge"),
    Program("setsid", "util-linux"),
    Program("slurmdbd", "slurmdbd", accounting=True),
    Program("mariadbd", "mariadb-server", accounting=True),
    Program("mariadb-install-db", "mariadb-server", accounting=True),
)


def find_program(name: str) -> str | None:
    """Return the absolute path of a program on PATH or in a system directory, or None."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES])
    return shutil.which(name, path=path)


def packages_for(*, accounting: bool) -> list[str]:
    """Return the names of all Debian packages that a cluster needs, each once."""
    return list(dict.fromkeys(p.package for p in PROGRAMS if accounting or not p.accounting))


def missing_packages(*, accounting: bool) -> list[str]:
    """Return the Debian packages whose programs are missing on this machine, each once."""
    needed = (p for p in PROGRAMS if accounting or not p.accounting)
    return list(dict.fromkeys(p.package for p in needed if find_program(p.name) is None))


def is_debian(os_release: Mapping[str, str]) -> bool:
    """Return whether an os-release(5) file is that of Debian or of a derived system (Ubuntu, Mint, …)."""
    family = {os_release.get("ID", ""), *os_release.get("ID_LIKE", "").split()}
    return bool(family & {"debian", "ubuntu"})


def read_os_release(paths: Iterable[str] = ("/etc/os-release", "/usr/lib/os-release")) -> dict[str, str]:
    """Return the fields of the first readable os-release(5) file; empty if there is none."""
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                pairs = (line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#"))
                return {key: "".join(shlex.split(value)) for key, value in pairs}
        except (OSError, ValueError):
            continue
    return {}


def command_to_install(packages: Sequence[str], os_release: Mapping[str, str] | None = None) -> str:
    """Return the command to type, or the package names if apt is not the package manager."""
    if is_debian(read_os_release() if os_release is None else os_release):
        sudo = "" if os.geteuid() == 0 else "sudo "
        return f"{sudo}apt-get install -y --no-install-recommends {shlex.join(packages)}"
    return (
        "Install the programs that Debian calls " + ", ".join(packages) + " with this system's package manager "
        "(Slurm's daemons must have been built with --enable-multiple-slurmd)."
    )


def main(argv: Sequence[str]) -> int:
    """Print the packages, one a line: all of them, or with ``--missing`` those not yet installed."""
    accounting = "--no-accounting" not in argv
    names = missing_packages(accounting=accounting) if "--missing" in argv else packages_for(accounting=accounting)
    sys.stdout.writelines(f"{name}\n" for name in names)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
