"""Tests of the names that a form offers for an environment and a folder: on this computer, and over SSH."""

from __future__ import annotations

import os
import shutil
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]


@pytest.fixture
def work() -> Iterator[Path]:
    """Provide a folder in the home directory, with two folders, a file, and a virtual environment in a usual place."""
    folder = Path.home() / f"jsl-places-{os.getpid()}"
    for name in ("data sets", "$(touch oops)", ".hidden"):
        (folder / name).mkdir(parents=True)
    (folder / "data.txt").touch()
    venv.create(folder / "venv", symlinks=True)
    yield folder
    shutil.rmtree(folder)


async def test_environments_and_folders_are_found_and_the_last_used_ones_come_first(desk: Any, work: Path) -> None:
    async def names(kind: str, start: str = "", wait: float = 60.0) -> dict[str, str]:
        told = (await desk.core.clusters.list_names(desk.id, kind, wait, "", start))["names"]
        return {one["name"]: one["about"] for one in told}

    home = f"~/{work.name}"
    assert await names("folder", f"{home}/") == {
        f"{home}/$(touch oops)/": "",
        f"{home}/data sets/": "",
        f"{home}/venv/": "",
    }
    made = Path((await desk.core.environments.list_to_api(desk.id))["folder"])
    (made / ".made").mkdir(parents=True)
    (made / "of-a-job").symlink_to(".made/0123456789abcdef.01234567")
    assert await names("folder", f"{work}/d") == {f"{work}/data sets/": ""}
    assert await names("folder", f"{work}/.") == {f"{work}/.hidden/": ""}
    assert await names("folder", "/no/such/") == await names("folder", "no path") == {}
    assert f"{home}/" in await names("folder")
    found = await names("environment")
    assert (found[f"{home}/venv"], found["of-a-job"]) == ("venv", "made")

    await desk.submit("#!/bin/sh\n", "--hold", env=f"{home}/venv")
    assert next(iter((await names("environment")).items())) == (f"{home}/venv", "venv, last used")
