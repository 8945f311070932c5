"""Tests of images that jobs use: they are neither removed nor replaced."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.scripts.environments import Environment
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.images.image_jobs import Images
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.local.transport import LocalTransport

IMAGE = "library/lab:1"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    """Provide a cluster whose folder of images lies behind a link, with one image and no job."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "images").symlink_to(tmp_path / "disk")
    (tmp_path / "images/library%lab+1.sif").touch()
    settings = {"image_dir": f"{tmp_path}/images"}
    location = ClusterLocation("c", str(tmp_path), "me", str(tmp_path), "login", {}, container=settings)

    async def prepare() -> None:
        """Install nothing: the runner is that of the package."""

    runner = resources.files("jupyter_slurm.runner")
    submitter = SimpleNamespace(prepare=prepare, runner_path=lambda name: str(runner.joinpath(name)))
    transport, jobs, submitted = LocalTransport(), list[Any](), list[Any]()

    async def submit(asked: Any) -> Any:
        submitted.append(asked)

    folder = SimpleNamespace(job=lambda key: SimpleNamespace(path=f"{tmp_path}/{key}"))
    tracker = SimpleNamespace(active=lambda: jobs, folder=folder)
    client = SimpleNamespace(transport=transport)
    yield SimpleNamespace(
        location=location, submitter=submitter, tracker=tracker, client=client, jobs=jobs, submit=submit,
        submitted=submitted,
    )  # fmt: skip
    transport.close()


@pytest.mark.parametrize("used", [f"docker://{IMAGE}", IMAGE, "disk/library%lab+1.sif", "images/library%lab+1.sif"])
async def test_an_image_that_a_job_uses_is_neither_removed_nor_replaced(place: Any, tmp_path: Path, used: str) -> None:
    used = str(tmp_path / used) if used.endswith(".sif") else used
    for number, image in enumerate((used, "other:1", f"{tmp_path}/other.sif", None)):
        record = SimpleNamespace(environment=Environment.described("x", {"image": image} if image else {}))
        place.jobs.append(SimpleNamespace(id=str(number), record=record))
    place.jobs.append(SimpleNamespace(id="9", record=None))
    images = Images(lambda _: place)
    wanted: Any = {"key": "20260101-000000-abcdef01", "image": IMAGE, "act": "pull", "replace": True}
    for call in (lambda: images.remove("c", IMAGE), lambda: images.submit_image("c", wanted)):
        with pytest.raises(UsageError, match=rf"The image {IMAGE} is in use by job 0\."):
            await call()
    assert (tmp_path / "disk/library%lab+1.sif").exists()
    await images.submit_image("c", {**wanted, "replace": False})
    await images.submit_image("c", {**wanted, "runtime": "docker"})  # its store keeps what containers use

    del place.jobs[0]
    await images.submit_image("c", wanted)
    assert len(place.submitted) == 3
    assert (await images.remove("c", IMAGE))["removed"] == [f"{tmp_path}/images/library%lab+1.sif"]
