"""Docker daemon of the test suite, and an image of Debian's Python that needs no registry."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded.machine.packages import find_program
from jupyter_slurm.embedded.machine.slurm_versions import debian_mirror, default_cache
from jupyter_slurm.services.jobdir.runner_files import RUNNER

__all__ = [
    "Docker",
    "Node",
    "apptainer",
    "docker",
    "image_tar",
    "image_tree",
    "jupyter_tar",
    "jupyter_tree",
    "kept_wheels",
    "new_docker",
    "node",
    "pip_tree",
    "wheels",
]

_RELEASE = "bookworm"
_PACKAGES = "base-files,base-passwd,coreutils,dash,libc-bin,libpython3-stdlib,libstdc++6,python3-minimal"
_LEFT_OUT = (
    "./usr/share/javascript/mathjax/",
    "./usr/bin/gdb",
    "./usr/share/doc/",
    "./usr/share/man/",
    "./usr/share/locale/",
    "./var/lib/apt/",
    "./var/cache/",
    "./dev/",
)


@dataclass(frozen=True)
class Docker:
    """A running Docker daemon.

    Attributes
    ----------
    host : str
        Value of DOCKER_HOST.
    image : str
        A small image with Python.
    pid : int
        Process ID of the daemon.
    """

    host: str
    image: str
    pid: int

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command of the client and return its output."""
        env = {**os.environ, "DOCKER_HOST": self.host}
        return subprocess.run(["docker", *words], env=env, capture_output=True, text=True, check=check).stdout

    def running(self) -> list[str]:
        """Return the names of all containers, including those that have ended."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()


@pytest.fixture(scope="session")
def image_tar(unavailable: Callable[[str], None]) -> Path:
    """Provide a root file system with Python, kept between runs beside the unpacked versions of Slurm."""
    return _kept(_PACKAGES, unavailable)


@pytest.fixture(scope="session")
def jupyter_tar(unavailable: Callable[[str], None]) -> Path:
    """Provide the same with the Jupyter of Debian 12: notebook 6.4."""
    return _kept(f"{_PACKAGES},python3-notebook", unavailable)


def _kept(packages: str, unavailable: Callable[[str], None]) -> Path:
    if find_program("mmdebstrap") is None:
        unavailable("mmdebstrap is not installed")
    path = default_cache() / f"image-{_RELEASE}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}.tar"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _build(path, packages)
    return path


def _build(path: Path, packages: str) -> None:
    made, slim = path.with_suffix(".made.tar"), path.with_suffix(".new")
    argv = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={packages}", _RELEASE, str(made)]
    subprocess.run([*argv, f"deb {debian_mirror()} {_RELEASE} main"], check=True, capture_output=True)
    with tarfile.open(made) as whole, tarfile.open(slim, "w") as kept:
        for member in whole:
            if not member.name.startswith(_LEFT_OUT):
                kept.addfile(member, whole.extractfile(member) if member.isfile() else None)
    made.unlink()
    slim.rename(path)


@pytest.fixture(scope="session")
def image_tree(image_tar: Path, short_tmp: Path, alice: str) -> Path:
    """Provide the Python image, unpacked by alice, in the form of Charliecloud and Apptainer."""
    return _unpacked(image_tar, short_tmp / "it's an image", alice)


@pytest.fixture(scope="session")
def jupyter_tree(jupyter_tar: Path, short_tmp: Path, alice: str) -> Path:
    """Provide the Jupyter image, unpacked."""
    return _unpacked(jupyter_tar, short_tmp / "jupyter image", alice)


@pytest.fixture(scope="session")
def wheels() -> Path:
    """Provide the wheels that install JupyterLab in the image without a network; also kept between runs."""
    return kept_wheels("jupyterlab", "jupyterlab", "pip")


def kept_wheels(name: str, *wanted: str) -> Path:
    """Return the folder of this name with wheels for the image's Python; fetch them if missing."""
    folder = default_cache() / f"wheels-{name}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = folder.with_suffix(".new")
            get = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--python-version=3.11"]
            subprocess.run([*get, "-d", made, *wanted], check=True)
            made.rename(folder)
    return folder


@pytest.fixture(scope="session")
def pip_tree(image_tar: Path, wheels: Path, short_tmp: Path, alice: str) -> Path:
    """Provide the Python image with pip, unpacked."""
    tree = _unpacked(image_tar, short_tmp / "pip image", alice)
    with zipfile.ZipFile(next(wheels.glob("pip-*.whl"))) as wheel:
        wheel.extractall(tree / "usr/lib/python3/dist-packages")
    return tree


def _unpacked(tar: Path, folder: Path, user: str) -> Path:
    folder.mkdir(mode=0o755)
    os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    unpack = ["tar", "-C", str(folder), "--no-same-owner", "-xf", str(tar)]
    subprocess.run(unpack, check=True, user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=[])
    for name in ("dev", "etc/passwd", "etc/group"):
        (folder / name).touch() if "/" in name else (folder / name).mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def apptainer(unavailable: Callable[[str], None]) -> Path:
    """Provide a folder for PATH with Debian sid's Apptainer under both its names; kept between runs."""
    if missing := [name for name in ("mmdebstrap", "patchelf") if find_program(name) is None]:
        unavailable(f"not installed: {', '.join(missing)}")
    root = default_cache() / "apptainer"
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _unpack_apptainer(root)
    return root / "path"


def _unpack_apptainer(root: Path) -> None:
    """Unpack Apptainer, and bind it to the loader and the libraries beside it, with paths relative to itself."""
    made = root.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    argv = ["mmdebstrap", "--quiet", "--variant=extract", "--include=apptainer"]
    argv += ['--aptopt=Acquire::Check-Valid-Until "false"', "sid", str(made), f"deb {debian_mirror()} sid main"]
    subprocess.run(argv, check=True, capture_output=True)
    made.chmod(0o755)
    libraries = next(made.glob("usr/lib/*/ld-linux-*.so.*")).parent
    final = root / libraries.relative_to(made)
    for program in (made / "usr/bin/apptainer", libraries / "apptainer/bin/starter"):
        bound = ["--set-interpreter", str(final / next(libraries.glob("ld-linux-*.so.*")).name)]
        subprocess.run(["patchelf", *bound, "--force-rpath", "--set-rpath", str(final), str(program)], check=True)
    for prefix in ("usr", "usr/lib"):  # of the program, and of its starter
        (made / prefix / "etc").symlink_to(os.path.relpath(made / "etc", made / prefix))
        (made / prefix / "var/lib/apptainer/mnt/session").mkdir(parents=True)
    (made / "path").mkdir()
    for name in ("apptainer", "singularity"):
        (made / "path" / name).symlink_to("../usr/bin/apptainer")
    made.rename(root)


@contextlib.contextmanager
def _running(folder: Path, image_tar: Path, group: int, wait_for: Callable[..., Any]) -> Iterator[Docker]:
    """Run a daemon that does not change the machine's network."""
    folder.mkdir(mode=0o711)
    argv = ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    argv += [f"--host=unix://{folder}/s", f"--group={group}", "--bridge=none", "--userland-proxy=false"]
    argv += ["--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        running = Docker(f"unix://{folder}/s", "jupyter-slurm/test:1", daemon.pid)
        wait_for(lambda: running.run("version", check=False) if (folder / "s").exists() else "", "dockerd")
        running.run("import", str(image_tar), running.image)
        yield running
    finally:
        daemon.terminate()
        _wait(daemon)
        _end_others(folder)
        _unmount(folder)


@pytest.fixture(scope="session")
def new_docker(
    image_tar: Path, short_tmp: Path, alice: str, unavailable: Callable[[str], None], wait_for: Callable[..., Any]
) -> Callable[[str], contextlib.AbstractContextManager[Docker]]:
    """Return a factory: ``with new_docker(name) as docker`` starts a daemon to disturb, usable by root and alice."""
    if missing := [name for name in ("docker", "dockerd") if shutil.which(name) is None]:
        unavailable(f"not installed: {', '.join(missing)}")
    return lambda name: _running(short_tmp / name, image_tar, pwd.getpwnam(alice).pw_gid, wait_for)


@pytest.fixture(scope="session")
def docker(new_docker: Callable[[str], contextlib.AbstractContextManager[Docker]]) -> Iterator[Docker]:
    """Provide a Docker for this session, usable by root and alice."""
    with new_docker("docker") as running:
        yield running


def _end_others(folder: Path) -> None:
    """End the remains of a killed daemon: its containerd, which has the folder in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{folder}/exec".encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def _unmount(folder: Path) -> None:
    """Unmount the remains of a daemon: its network namespace, and the mounts of a killed daemon."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)


def _wait(daemon: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a daemon, which first ends its containers."""
    begun = time.monotonic()
    while daemon.poll() is None and time.monotonic() - begun < 30:
        time.sleep(0.05)
    daemon.kill()
    daemon.wait()


@dataclass
class Node:
    """A node that runs jobs as Slurm would, as alice. A job is a folder with a job.json."""

    folder: Path
    user: str
    docker: Docker
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def job(
        self, source: str | None = None, run: list[str] | None = None, python: str = "python3", **described: Any
    ) -> Path:
        key = f"20260101-000000-{len(list(self.folder.iterdir())):08x}"
        place = self.folder / key
        place.mkdir()
        what: dict[str, Any] = (
            {"run": run} if run else {"cell": {"source": source, "filename": "<cell>", "python": python}}
        )
        record = {"key": key, "environment": {"name": "e", "image": self.docker.image, **described}, **what}
        (place / "job.json").write_text(json.dumps(record))
        os.chown(place, pwd.getpwnam(self.user).pw_uid, -1)
        return place

    def start(
        self,
        place: Path,
        *args: str,
        groups: tuple[int, ...] = (),
        under: tuple[str, ...] = (),
        program: str = "container-run.py",
        **env: str,
    ) -> subprocess.Popen[str]:
        account = pwd.getpwnam(self.user)
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME": account.pw_dir, "USER": self.user,
                "DOCKER_HOST": self.docker.host, "SLURM_JOB_ID": "7", "LD_PRELOAD": ""}  # fmt: skip
        process = subprocess.Popen(
            [*under, "/usr/bin/python3", "-u", str(self.folder / f"runner-x-{program}"), str(place), *args],
            user=self.user, group=account.pw_gid, extra_groups=list(groups), umask=0o027,
            env={**base, **env}, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, place: Path, *args: str, **more: Any) -> tuple[int, str, str]:
        process = self.start(place, *args, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def about(self, place: Path, *args: str, **more: Any) -> dict[str, Any]:
        code, out, err = self.run(place, *args, **more)
        assert code == 0, err
        told: dict[str, Any] = json.loads(out)
        return told


@pytest.fixture
def node(short_path: Path, alice: str, docker: Docker) -> Iterator[Node]:
    short_path.chmod(0o755)
    for name in RUNNER:
        (short_path / f"runner-x-{name.replace('/', '-')}").write_bytes(
            resources.files("jupyter_slurm.runner").joinpath(name).read_bytes()
        )
    running = Node(short_path, alice, docker)
    yield running
    for process in running.started:
        process.kill()
        process.communicate()
