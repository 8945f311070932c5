"""Tests of the removal of environments that jobs have made."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.scripts.environments import Environment
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.environment_builds.environment_jobs import EnvironmentBuilds
from jupyter_slurm.services.environments.created_environments import environment_folder, find_created
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.local.transport import LocalTransport

PLACE = f"{'0' * 16}.{'1' * 8}"


@pytest.fixture
def place(tmp_path: Path) -> Any:
    """Provide a cluster whose folder lies behind a link, with the environment ``torch`` and no job."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    location = ClusterLocation("c", f"{tmp_path}/home/jobs", "me", f"{tmp_path}/home", "login", {})
    folder = Path(environment_folder(location))
    (folder / ".made" / PLACE).mkdir(parents=True)
    (folder / ".made" / PLACE / "pyvenv.cfg").touch()
    (folder / "torch").symlink_to(f".made/{PLACE}")

    async def prepare() -> None:
        """Install nothing: the runner is that of the package."""

    runner = resources.files("jupyter_slurm.runner")
    submitter = SimpleNamespace(prepare=prepare, runner_path=lambda name: str(runner.joinpath(name)))
    transport, jobs = LocalTransport(), list[Any]()
    tracker = SimpleNamespace(active=lambda: jobs)
    client = SimpleNamespace(transport=transport)
    yield SimpleNamespace(location=location, submitter=submitter, tracker=tracker, client=client, jobs=jobs)
    transport.close()


@pytest.mark.parametrize("kind", ["name", "path of the name", "path"])
async def test_an_environment_that_a_job_uses_is_not_removed(place: Any, kind: str) -> None:
    folder = Path(environment_folder(place.location))
    used = {"path of the name": f"{folder}/torch", "path": str(folder / ".made" / PLACE)}.get(kind)
    used = used or (await find_created(place.client.transport, place.location, "torch")).path
    for number, one in enumerate((used, str(folder / "other"))):
        record = SimpleNamespace(environment=Environment.described("x", {"venv": one}))
        place.jobs.append(SimpleNamespace(id=str(number), record=record))
    place.jobs.append(SimpleNamespace(id="2", record=None))
    builds = EnvironmentBuilds(lambda _: place)
    with pytest.raises(UsageError, match=r"torch is in use by job 0\."):
        await builds.remove("c", "torch")
    assert (folder / "torch/pyvenv.cfg").exists()

    del place.jobs[0]
    assert await builds.remove("c", "torch") == {"removed": [f"{folder}/torch", f"{folder}/.made/{PLACE}"]}
    assert not (folder / ".made" / PLACE).exists()
    with pytest.raises(UsageError, match="no environment torch"):
        await builds.remove("c", "torch")
