"""Tests of sessions in containers: every runtime of this machine, real images, a kernel's cell by the local port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from containers import Docker
from registry import Registry
from sessions import Address, run_a_cell

HERE = (
    "what a node does is the same; tests/magics/environments/test_containers.py has a session in a container over SSH"
)
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.here_only(HERE),
    pytest.mark.xdist_group("session-images"),  # shared images, whose unpacking takes a minute
]


class Launcher:
    """Launches sessions in images, and ends them."""

    def __init__(self, desk: Any) -> None:
        self.desk, self.keys = desk, list[str]()

    async def launch(self, env_name: str, path: str = "", **more: Any) -> str:
        env = {**self.desk.env, "PATH": f"{path}{self.desk.env['PATH']}"}
        asked = self.desk.asked("#!", "-p", "devwork", context={"env": env})
        asked = {field: asked[field] for field in ("key", "options", "context")}
        self.keys.append(asked["key"])
        about = {"name": env_name, "env": env_name, "default_python": "/usr/bin/python3", "idle": 86400.0}
        await self.desk.core.sessions.launch(self.desk.id, {**asked, **about, **more})
        return str(asked["key"])

    async def ready(self, key: str) -> dict[str, Any]:
        told = await self.desk.until(
            key, lambda job: job["session"]["state"] == "ready" or job["finished"], timeout=180
        )
        said = await self.desk.text(key, "stderr")
        assert told["session"]["state"] == "ready", (told["error"], said)
        return dict(told)

    async def run(self, told: dict[str, Any], code: str) -> str:
        token = (Path(told["folder"]) / "serving" / "token").read_text()
        return await run_a_cell(Address(told["session"]["url"], token), code)

    async def over(self, key: str) -> str:
        """Wait for the end of a session that cannot start; return the reason."""
        await self.desk.finished(key)
        told = await self.desk.until(key, lambda job: job["error"])  # may come a moment after the end
        assert told["state"] == "FAILED"
        return f"{told['error']['detail']} {told['error'].get('hint')}"


@pytest.fixture(scope="module")
def environments(
    docker: Docker, registry: Registry, jupyter_tar: Path, jupyter_tree: Path, pip_tree: Path, wheels: Path
) -> dict[str, Any]:
    """Provide images for sessions, by name."""
    notebook = "jupyter-slurm/notebook:6"
    docker.run("import", str(jupyter_tar), notebook)
    client = {"DOCKER_HOST": docker.host}
    tree = {"image": str(jupyter_tree), "variables": {"APPTAINER_USERNS": "1"}}  # the job is root's
    bare = {"image": str(pip_tree), "runtime": "charliecloud"}
    return {
        "docker": {"image": notebook, "runtime": "docker", "variables": client},
        **{name: {**tree, "runtime": name} for name in ("charliecloud", "apptainer", "singularity")},
        "pip": {
            **bare,
            "variables": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)},
            "bind": [str(wheels)],
        },
        "offline": {**bare, "variables": {"PIP_NO_INDEX": "1"}},
        "bare": {"image": docker.image, "variables": client},
        "held": {"image": f"{registry.host}/held:1", "runtime": "docker", "variables": {**client, **registry.env}},
    }


@pytest.fixture
async def sessions(
    open_desk: Any, cluster: Any, tmp_path: Path, environments: dict[str, Any]
) -> AsyncIterator[Launcher]:
    """Provide a cluster with images for sessions."""
    images = {"image_dir": str(tmp_path / "images")}
    async with open_desk(cluster, tmp_path, environments=environments, container=images) as desk:
        launcher = Launcher(desk)
        yield launcher
        await asyncio.gather(*(desk.core.sessions.end(desk.id, key) for key in launcher.keys))


async def test_a_jupyter_of_2022_in_every_runtime_from_its_launch_to_its_end(
    sessions: Launcher, docker: Docker, apptainer: Path, jupyter_tree: Path, unavailable: Callable[[str], None]
) -> None:
    if shutil.which("ch-run") is None:
        unavailable("charliecloud-runtime is not installed")
    names = ("docker", "charliecloud", "apptainer", "singularity")
    keys = [await sessions.launch(name, f"{apptainer}:") for name in names]
    ready = await asyncio.gather(*map(sessions.ready, keys))
    code = "import os; print(open('/etc/debian_version').read()[:2], os.environ['JUPYTER_SLURM_CONTAINER'], os.environ['SLURM_JOB_ID'])"
    printed = await asyncio.gather(*(sessions.run(told, code) for told in ready))
    for name, told, line in zip(names, ready, printed, strict=True):
        image = "jupyter-slurm/notebook:6" if name == "docker" else jupyter_tree
        assert line == f"12 {name} {image} {told['id']}\n"
        assert told["session"]["server"] == "notebook 6.4.12"
        assert not any("no Jupyter" in warning for warning in told["warnings"])
    (container,) = docker.running()
    inspected = docker.run("inspect", container)  # the same for every user of the daemon
    assert ready[0]["folder"] in inspected
    assert Path(ready[0]["folder"], "serving", "token").read_text() not in inspected
    await asyncio.gather(*(sessions.desk.core.sessions.end(sessions.desk.id, key) for key in keys))
    async with asyncio.timeout(60):
        while docker.running() or any(map(_processes, (told["folder"] for told in ready))):
            await asyncio.sleep(0.1)


def _processes(folder: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if folder.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def test_how_far_an_image_is_and_why_it_will_not_do_is_said(
    sessions: Launcher, registry: Registry, docker: Docker, pip_tree: Path
) -> None:
    image, let_go = registry.add("held", is_held=True)
    held, bare = await sessions.launch("held"), await sessions.launch("bare")
    told = await sessions.desk.until(held, lambda job: job["session"]["message"] == "image: 2 of 3 layers")
    assert told["session"]["state"] == "starting"
    assert re.fullmatch(
        r"/usr/bin/python3\S* has no Jupyter\. Install it with jupyter=install.*", await sessions.over(bare)
    )
    let_go()
    waiting = ["-p", "devwork", "--begin=now+3600"]
    for name, said in (
        ("bare", rf"Job \d+, the last session in {docker.image}, failed: "),
        ("offline", str(pip_tree)),
    ):
        again = await sessions.launch(name, options=waiting, name=f"{name}-again")
        (warning,) = (await sessions.desk.job(again))["warnings"]
        assert re.match(rf"{said}.*(?:seems to have|has) no Jupyter\b.* Install one with jupyter=install", warning), (
            warning
        )
    assert "has no python3. The end of the log" in await sessions.over(held)
    said = f"container: The image {image} has no python3. Choose another one with python=PATH.\n"
    assert (await sessions.desk.text(held, "stderr")).endswith(said)


async def test_a_jupyter_is_put_beside_the_python_of_an_image_once(
    sessions: Launcher, unavailable: Callable[[str], None]
) -> None:
    if shutil.which("ch-run") is None:
        unavailable("charliecloud-runtime is not installed")
    offline = {"cwd": sessions.desk.folder, "env": {**sessions.desk.env, "PIP_NO_INDEX": "1"}}
    python = {"python": "/usr/bin/python3", "env": None}  # without an image
    alone = await sessions.launch("alone", jupyter="install", context=offline, **python)
    assert "cannot reach PyPI" in await sessions.over(alone)
    assert (Path(sessions.desk.folder) / "images" / "jupyter").is_dir()
    assert "cannot reach PyPI" in await sessions.over(await sessions.launch("offline", jupyter="install"))
    keys = [await sessions.launch("pip", jupyter="install", name=name) for name in ("one", "two")]
    bare = await sessions.launch("bare", jupyter="install")
    assert "has no pip to install jupyterlab" in await sessions.over(bare)
    both = await asyncio.gather(*map(sessions.ready, keys))
    logs = [await sessions.desk.text(key, "stderr") for key in keys]
    assert ["installing jupyterlab: " in log for log in logs].count(True) == 1
    assert ["waiting for job " in log for log in logs].count(True) == 1
    code = "import pip, sys; print(open('/etc/debian_version').read()[:2], pip.__file__[:9], sys.prefix != sys.base_prefix)"
    for told in both:
        assert told["session"]["server"].startswith("jupyterlab 4")
        assert await sessions.run(told, code) == "12 /usr/lib/ True\n"
