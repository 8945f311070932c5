"""Repetition of tests over every route to a cluster: on its login node, and over SSH.

`make test` repeats a test over one carrier, with the first set of its parameters. `make test-nightly` does the rest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from replicas.fixtures import parametrize_replica

from ssh_hosts.sshd import SshHost

__all__ = ["Way", "login_host", "new_login_host", "pytest_generate_tests", "pytest_itemcollected", "way"]

CARRIERS = ("paramiko", "openssh")
_REMOTE = [pytest.mark.remote, pytest.mark.root]
_REPEATED = pytest.StashKey[set[tuple[str, str]]]()


@dataclass(frozen=True)
class Way:
    """Route of a test to a cluster.

    Attributes
    ----------
    carrier : str
        ``local``, or the carrier of SSH.
    host : SshHost or None
        The login node; None if the test itself runs on it.
    """

    carrier: str
    host: SshHost | None = None

    @property
    def is_remote(self) -> bool:
        """Return whether the cluster is reached over SSH."""
        return self.host is not None

    def settings(self, cluster: Any, folder: Path, job_root: str) -> dict[str, Any]:
        """Write the profile ``far`` of a cluster below ``folder``; return the settings for it.

        The job directories are in ``job_root`` in both cases.
        """
        if self.host is None:
            return {"job_root": job_root}
        sites = folder / "sites"
        sites.mkdir(exist_ok=True)
        said = {"host": self.host.name, "ssh_config": str(self.host.ssh_config), "carrier": self.carrier}
        slurm = {"conf": str(cluster.slurm_conf), "job_root": job_root}
        (sites / "far.toml").write_text(f"[login]\n{_toml(said)}\n[slurm]\n{_toml(slurm)}")
        return {"job_root": str(folder / "laptop"), "sites": [str(sites)], "trust": "always"}


def _toml(values: dict[str, str]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


@pytest.fixture(scope="session")
def login_host(ssh_host: Callable[..., SshHost], short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> SshHost:
    """Provide a login node of this session's clusters: a real sshd, own processes and /tmp, two sessions, no SFTP.

    The host sees the files in ``short_tmp`` (the clusters) and in the folders of the tests, as on a shared file system.
    The start-up files of the user who runs the tests are empty on it: their delays are not under test.
    """
    return new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=2)


def new_login_host(
    ssh_host: Callable[..., SshHost],
    short_tmp: Path,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    sessions: int,
    mounts: Mapping[str, Path] | None = None,
) -> SshHost:
    """Return such a host with another MaxSessions, and with other files in place of its own."""
    name = "login" if sessions == 2 else f"login{sessions}"
    folder = tmp_path_factory.mktemp("startup")
    empty, names = folder / "empty", folder / "hosts"
    empty.touch()
    names.write_text(Path("/etc/hosts").read_text() + f"127.0.0.1 {name}\n")  # srun resolves its own host name
    own = [Path.home() / name for name in (".bashrc", ".bash_profile", ".bash_login", ".profile")]
    return ssh_host(
        name=name,
        users=["root"],
        own_network=False,
        shared=[short_tmp, tmp_path_factory.getbasetemp()],
        mounts={"/etc/hosts": names, **{str(file): empty for file in own if file.is_file()}, **(mounts or {})},
        options={"PermitRootLogin": "prohibit-password", "MaxSessions": sessions},
        sftp=False,
    )


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> Way:
    """Provide the route of this test to its cluster. A test runs once per route, or is marked ``here_only(why)``."""
    if request.param == "local":
        return Way("local")
    return Way(request.param, request.getfixturevalue("login_host"))


def _carriers(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Return the carriers of a test: those of its mark, both if it asks for a carrier, otherwise one by its name."""
    if marked := metafunc.definition.get_closest_marker("carrier"):
        return tuple(marked.args)
    if "remote_carrier" in metafunc.fixturenames:
        return CARRIERS
    return (CARRIERS[zlib.crc32(metafunc.definition.originalname.encode()) % len(CARRIERS)],)


def _by_day(metafunc: pytest.Metafunc, carriers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the routes of a test in `make test`: "local", carriers, or both. It has the others at night.

    They are those of its mark, or a single one chosen by its name. A test with further parameters is not repeated over SSH
    by day, unless it is marked ``each_case``.
    """
    definition, number = metafunc.definition, zlib.crc32(metafunc.definition.originalname.encode())
    carrier = carriers[number % len(carriers)]
    if marked := definition.get_closest_marker("by_day"):
        return ("local", *marked.args)
    if "way" not in metafunc.fixturenames or definition.get_closest_marker("each_case"):
        return ("local", carrier)
    if definition.get_closest_marker("here_only") or definition.get_closest_marker("parametrize"):
        return ("local",)
    return (carrier,) if number // 2 % 2 else ("local",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over each route, with each ``remote_carrier`` of SSH, or over those of ``carrier(names)``."""
    carriers = _carriers(metafunc)
    by_day = _by_day(metafunc, carriers)
    nightly = {name: [] if name in by_day else [pytest.mark.nightly] for name in ("local", *carriers)}
    # One worker takes a file's tests over one route: some files have their own cluster.
    remote = [
        pytest.param(
            name,
            marks=[*_REMOTE, *nightly[name], pytest.mark.xdist_group(f"{metafunc.module.__name__}-{name}")],
        )
        for name in carriers
    ]
    if "remote_carrier" in metafunc.fixturenames:
        metafunc.parametrize("remote_carrier", remote)
    parametrize_replica(metafunc)
    if "way" in metafunc.fixturenames:
        ways = [pytest.param("local", marks=nightly["local"]), *remote]
        metafunc.parametrize(
            "way", ways[:1] if metafunc.definition.get_closest_marker("here_only") else ways, indirect=True
        )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to the night what repeats a test over SSH with other parameters than the first, unless ``each_case`` is set."""
    made = getattr(item, "callspec", None)
    if made is None or made.params.get("way") not in CARRIERS or item.get_closest_marker("each_case"):
        return
    repeated = item.config.stash.setdefault(_REPEATED, set())
    one = (item.nodeid.partition("[")[0], made.params["way"])
    if one in repeated:
        item.add_marker(pytest.mark.nightly)
    repeated.add(one)
