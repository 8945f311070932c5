"""The same tests over every way to a cluster: on its login node, and from elsewhere over SSH."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from replicas.fixtures import parametrize_replica

from ssh_hosts.sshd import SshHost

__all__ = ["Way", "login_host", "new_login_host", "pytest_generate_tests", "way"]

CARRIERS = ("paramiko", "openssh")
_REMOTE = [pytest.mark.remote, pytest.mark.root]


@dataclass(frozen=True)
class Way:
    """How a test reaches a cluster.

    Attributes
    ----------
    carrier : str
        ``local``, or what carries SSH.
    host : SshHost or None
        The login node; None where the test itself is on it.
    """

    carrier: str
    host: SshHost | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the cluster is reached over SSH."""
        return self.host is not None

    def settings(self, cluster: Any, folder: Path, job_root: str) -> dict[str, Any]:
        """Write the profile ``far`` of a cluster below ``folder``; return the settings that lead to it.

        The job directories lie in ``job_root`` either way.
        """
        if self.host is None:
            return {"job_root": job_root}
        sites = folder / "sites"
        sites.mkdir(exist_ok=True)
        said = {"host": self.host.name, "ssh_config": str(self.host.ssh_config), "carrier": self.carrier}
        slurm = {"conf": str(cluster.slurm_conf), "job_root": job_root}
        (sites / "far.toml").write_text(f"[login]\n{_toml(said)}\n[slurm]\n{_toml(slurm)}")
        return {"job_root": str(folder / "laptop"), "sites": [str(sites)]}


def _toml(values: dict[str, str]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


@pytest.fixture(scope="session")
def login_host(ssh_host: Callable[..., SshHost], short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> SshHost:
    """A login node of all clusters of this session: a real sshd, processes and a /tmp of its own, two sessions, no SFTP.

    It sees what lies in ``short_tmp`` (the clusters) and in the folders of the tests, as on a shared file system. The
    start-up files of whoever runs the tests are empty there: what they wait for is not what is tested.
    """
    return new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=2)


def new_login_host(
    ssh_host: Callable[..., SshHost], short_tmp: Path, tmp_path_factory: pytest.TempPathFactory, *, sessions: int
) -> SshHost:
    """Start such a host with another MaxSessions: a tunnel by a step takes one more than commands do."""
    name = "login" if sessions == 2 else f"login{sessions}"
    folder = tmp_path_factory.mktemp("startup")
    empty, names = folder / "empty", folder / "hosts"
    empty.touch()
    names.write_text(Path("/etc/hosts").read_text() + f"127.0.0.1 {name}\n")  # srun looks itself up
    own = [Path.home() / name for name in (".bashrc", ".bash_profile", ".bash_login", ".profile")]
    return ssh_host(
        name=name,
        users=["root"],
        own_network=False,
        shared=[short_tmp, tmp_path_factory.getbasetemp()],
        mounts={"/etc/hosts": names, **{str(file): empty for file in own if file.is_file()}},
        options={"PermitRootLogin": "prohibit-password", "MaxSessions": sessions},
        sftp=False,
    )


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> Way:
    """How this test reaches its cluster. Whoever asks for it runs once over each way, or says ``here_only(why)``."""
    if request.param == "local":
        return Way("local")
    return Way(request.param, request.getfixturevalue("login_host"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over each way there is, or with each ``remote_carrier`` of SSH; over one that ``carrier(name)`` says."""
    only = metafunc.definition.get_closest_marker("carrier")
    # One worker takes a file's tests over one way: some files have a cluster of their own.
    remote = [
        pytest.param(name, marks=[*_REMOTE, pytest.mark.xdist_group(f"{metafunc.module.__name__}-{name}")])
        for name in (only.args if only else CARRIERS)
    ]
    if "remote_carrier" in metafunc.fixturenames:
        metafunc.parametrize("remote_carrier", remote)
    parametrize_replica(metafunc)
    if "way" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("here_only")
        metafunc.parametrize("way", ["local", *(remote if not marked else ())], indirect=True)
