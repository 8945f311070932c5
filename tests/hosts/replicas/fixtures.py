"""Fixtures: replicas of sites (tests/conftest.py registers them for every test)."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replicas.described import SITES, Site
from replicas.replica import Replica

__all__ = ["parametrize_replica", "replica", "replicas"]


@pytest.fixture(scope="session")
def replicas(
    request: pytest.FixtureRequest,
    short_tmp: Path,
    new_user: Callable[..., str],
    ssh_key: Path,
    unavailable: Callable[[str], None],
) -> Iterator[Callable[[str], Replica]]:
    """Return a factory: ``replicas("arandu")`` is the logged-in replica of a site, shared by all tests."""
    made: dict[str, Replica] = {}

    def image(kind: str) -> Path:
        tar: Path = request.getfixturevalue({"python": "image_tar", "jupyter": "jupyter_tar"}[kind])
        return tar

    def get(name: str) -> Replica:
        if name in made:
            return made[name]
        password = secrets.token_hex(8)
        user = new_user(password=password, home=Site.home_of(name))
        site = Site.read(name, user)
        needed = {"docker": "dockerd", "charliecloud": "ch-run", "singularity": "mmdebstrap", "": "slurmctld"}
        registry = ["docker-registry", "openssl"] if site.software.registry else []
        for program in ("slurmctld", needed[site.software.runtime], *registry):
            if shutil.which(program, path="/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") is None:
                unavailable(f"not installed: {program}")
        directory = short_tmp / f"r-{name}"
        directory.mkdir(mode=0o711)
        path = [request.getfixturevalue("apptainer")] if site.software.runtime == "singularity" else []
        own = Path(sys.prefix)
        shared = [own] if own.is_relative_to("/tmp") else []
        try:
            made[name] = Replica(
                site, directory, user=user, password=password, key=ssh_key, tars=image, path=path, shared=shared
            )
        except OSError as error:
            unavailable(str(error))
        said = made[name].laptop.connect()
        assert said.code == 0, said.text
        return made[name]

    yield get
    for one in made.values():
        one.close()


@pytest.fixture
def replica(request: pytest.FixtureRequest, replicas: Callable[[str], Replica]) -> Replica:
    """Provide the replica of each site in turn; ``@pytest.mark.sites("arandu")`` selects sites."""
    return replicas(request.param)


def parametrize_replica(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture ``replica`` on each site; one worker, with the replica, runs all tests of a site."""
    if "replica" not in metafunc.fixturenames:
        return
    only, by_day = map(metafunc.definition.get_closest_marker, ("sites", "by_day"))
    marks = [pytest.mark.slurm, pytest.mark.root, pytest.mark.remote]
    sites = [
        pytest.param(
            name,
            marks=[
                *marks,
                *([] if by_day is None or name in by_day.args else [pytest.mark.nightly]),
                pytest.mark.xdist_group(f"replica-{name}"),
            ],
        )
        for name in (only.args if only else SITES)
    ]
    metafunc.parametrize("replica", sites, indirect=True)
