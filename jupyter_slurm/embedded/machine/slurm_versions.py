"""Other versions of Slurm, unpacked from Debian into a directory and patched to run from it.

Nothing is installed or changed on this machine. The packages of a Debian release are extracted. The loader and the
library path in Slurm's programs are set to those of that directory (patchelf(1)). So the programs need neither a chroot
nor a namespace: they see the machine's own files and users, and so do the jobs that they start.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jupyter_slurm.embedded.machine.installation import Installation, refuse_missing
from jupyter_slurm.embedded.machine.packages import command_to_install, find_program, missing_packages
from jupyter_slurm.errors import EmbeddedError, MissingPackages

__all__ = ["RELEASES", "UnpackedInstallation", "debian_mirror", "default_cache", "installation_for", "slurm_root"]

RELEASES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
"""Versions of Slurm, each with the Debian release that contains it."""

_PUBLIC_MIRROR = "http://deb.debian.org/debian"
_LIBRARY = b"libslurmfull.so"
_CACHE_OF_ROOT = Path("/var/cache/jupyter_slurm-roots")


@dataclass(frozen=True, eq=False)
class UnpackedInstallation(Installation):
    """A Slurm in a directory of :func:`slurm_root`. munge and MariaDB are those of this machine."""

    directory: Path

    def program(self, name: str) -> str:
        """Return the path of a program; Slurm's programs are in the directory."""
        path = self.directory / "bin" / name
        return str(path) if path.exists() else super().program(name)

    def check(self, *, accounting: bool) -> None:
        """Raise MissingPackages if other programs are missing, EmbeddedError if the directory has no Slurm."""
        if not (self.directory / "bin" / "slurmctld").exists():
            raise EmbeddedError(
                f"There is no Slurm in {self.directory}.", hint="Install Slurm in this directory, or name another one."
            )
        refuse_missing([name for name in missing_packages(accounting=accounting) if not name.startswith("slurm")])

    @property
    def root(self) -> str:
        """Return the directory."""
        return str(self.directory)

    @property
    def path(self) -> str:
        """Return the directory of the commands."""
        return str(self.directory / "bin")

    @property
    def plugin_dir(self) -> str:
        """Return the directory of the plugins."""
        return str(_plugin_dir(self.directory))

    @property
    def stepd(self) -> str:
        """Return the path of slurmstepd."""
        return str(self.directory / "bin" / "slurmstepd")


def slurm_root(version: str, cache: Path | None = None) -> Path:
    """Return the directory with that version of Slurm, which is created on first use.

    Parameters
    ----------
    version : str
        One of :data:`RELEASES`.
    cache : Path, optional
        Parent of such directories: ``$XDG_CACHE_HOME/jupyter_slurm-roots``. Without that variable, below ``~/.cache``,
        or below ``/var/cache`` for root, whose home is closed to other users. Other users share the one of root.

    Raises
    ------
    MissingPackages
        mmdebstrap or patchelf is not installed.
    EmbeddedError
        The version is unknown, or cannot be downloaded.
    """
    if version not in RELEASES:
        raise EmbeddedError(
            f"Slurm {version} cannot be installed automatically.",
            hint=f"Choose one of these versions: {', '.join(RELEASES)}.",
        )
    directory = (cache or default_cache()) / version
    if cache is None and not directory.exists() and (of_root := _CACHE_OF_ROOT / version).exists():
        return of_root
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.with_suffix(".lock")):
        if not directory.exists():
            if missing := [name for name in ("mmdebstrap", "patchelf") if find_program(name) is None]:
                hint = command_to_install(missing)
                raise MissingPackages(f"Slurm {version} needs {' and '.join(missing)}.", hint=hint, packages=missing)
            _build(version, directory)
    return directory


def installation_for(root: str) -> Installation:
    """Return the Slurm in that directory; if empty, that of this machine."""
    return UnpackedInstallation(Path(root).absolute()) if root else Installation()


def default_cache() -> Path:
    """Return the directory of unpacked versions."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "jupyter_slurm-roots"
    return _CACHE_OF_ROOT if os.geteuid() == 0 else Path.home() / ".cache" / "jupyter_slurm-roots"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(version: str, directory: Path) -> None:
    """Unpack beside the final directory, and rename when complete."""
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=directory.parent) as temporary:
        tree = Path(temporary) / "tree"
        _unpack(RELEASES[version], tree)
        tree.chmod(0o755)
        _relocate(tree, directory)
        tree.rename(directory)
    try:
        major, minor = UnpackedInstallation(directory).version
        if f"{major}.{minor:02d}" != version:
            raise EmbeddedError(
                f"Debian {RELEASES[version]} now has Slurm {major}.{minor:02d}, not {version}.",
                hint=f"Use version {major}.{minor:02d}, or update jupyter_slurm.",
            )
    except BaseException:
        shutil.rmtree(directory)
        raise


def _unpack(release: str, tree: Path) -> None:
    """Extract Slurm and its dependencies; no script of a package is run."""
    _run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=extract",
            # Else an ordinary user needs the programs of a user namespace.
            *([] if os.geteuid() == 0 else ["--mode=chrootless"]),
            "--include=slurm-wlm,slurmdbd",
            # A release may be used long after its list was signed, on a machine whose mirror is a snapshot.
            '--aptopt=Acquire::Check-Valid-Until "false"',
            # Packages of bookworm have files in /lib and /bin, which later ones have in /usr.
            '--setup-hook=cd "$1"; mkdir usr; for x in bin sbin lib lib64; do mkdir usr/$x; ln -s usr/$x; done',
            release,
            str(tree),
            f"deb {debian_mirror()} {release} main",
        ]
    )


def debian_mirror() -> str:
    """Return the Debian mirror of this machine's own apt, or the public mirror."""
    try:
        targets = _run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(CREATED_BY)|$(REPO_URI)"])
    except (EmbeddedError, OSError):
        return _PUBLIC_MIRROR
    prefix = "Debian|Debian|Packages|"
    return next((line.removeprefix(prefix) for line in targets.splitlines() if line.startswith(prefix)), _PUBLIC_MIRROR)


def _relocate(tree: Path, final: Path) -> None:
    """Put Slurm's programs into ``bin``, bound to the loader and the libraries of their final directory."""
    binaries = tree / "bin"
    binaries.unlink()
    binaries.mkdir()
    libraries = next(tree.glob("usr/lib/*/ld-linux-*.so.*")).parent
    loader = final / next(libraries.glob("ld-linux-*.so.*")).relative_to(tree)
    search = [final / path.relative_to(tree) for path in (libraries, _plugin_dir(tree))]
    for path in [*(tree / "usr" / "bin").iterdir(), *(tree / "usr" / "sbin").iterdir()]:
        if path.is_symlink() or not path.is_file() or _LIBRARY not in path.read_bytes():
            continue
        # Debian names the daemons slurmd-wlm etc., and creates the plain names by update-alternatives(1).
        program = binaries / path.name.removesuffix("-wlm")
        shutil.copy2(path, program)
        # RPATH, not RUNPATH: RPATH also applies to libraries of plugins (ld.so(8)).
        rpath = os.pathsep.join(map(str, search))
        _run(["patchelf", "--set-interpreter", str(loader), "--force-rpath", "--set-rpath", rpath, str(program)])


def _plugin_dir(tree: Path) -> Path:
    found = next(tree.glob("usr/lib/*/slurm-wlm"), None)
    if found is None:
        raise EmbeddedError(f"There is no Slurm in {tree}.", hint="Check the directory, or install the version again.")
    return found


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=True
        )
    except subprocess.CalledProcessError as error:
        raise EmbeddedError(
            f"{argv[0]} failed: {(error.stderr or error.stdout).strip()[-2000:]}",
            hint="Check the network and the free space, and try again.",
        ) from error
    return done.stdout
