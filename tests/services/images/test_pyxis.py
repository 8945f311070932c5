"""Tests of Pyxis on a real Slurm, with a stand-in of the plugin that runs a step in an unpacked image, without enroot."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sessions import Address, run_a_cell

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.errors import MissingPackages, UsageError

HERE = "what a node does is the same over SSH"
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.here_only(HERE)]

SCRIPT = """#!/bin/sh
trap 'echo told USR1; exit 3' USR1
trap 'echo told TERM; exit 4' TERM
trap 'echo told INT; exit 5' INT
trap 'echo told HUP; exit 6' HUP
echo "$JUPYTER_SLURM_CONTAINER"
while :; do sleep 0.1; done
"""
SOURCE = Path(__file__).parents[2] / "data" / "pyxis" / "stand_in.c"
ABOUT = """
import json, os, sys
print(json.dumps([open("/etc/debian_version").read().strip()[:2], os.getcwd(), os.environ["JUPYTER_SLURM_CONTAINER"],
                  os.environ.get("HF_TOKEN"), os.environ.get("NOT_MINE"), len(os.sched_getaffinity(0)), sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def pyxis_cluster(
    short_tmp: Path, image_tree: Path, unavailable: Callable[[str], None]
) -> Iterator[tuple[EmbeddedCluster, Path]]:
    """Provide a cluster with the stand-in of Pyxis, and the file in which it records its options."""
    compiler = shutil.which("gcc")
    if compiler is None or not Path("/usr/include/slurm/spank.h").exists():
        unavailable("gcc or libslurm-dev is not installed")
    folder = short_tmp / "pyxis"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "nvcr.io#me%torch:1").symlink_to(image_tree)
    (folder / "torch.sqsh").write_text(f"{image_tree}\n")
    argv = [compiler or "", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(folder / "pyxis.so"), str(SOURCE)]
    subprocess.run(argv, check=True)
    (folder / "plugstack.conf").write_text(f"required {folder}/pyxis.so {folder}/images {folder}/record\n")
    description = load_description()
    extra = (*description.extra, f"PlugStackConfig={folder}/plugstack.conf")
    cluster = EmbeddedCluster(replace(description, extra=extra), directory=short_tmp / "p")
    try:
        cluster.start(until=os.getpid())
    except MissingPackages as error:
        unavailable(str(error))
    try:
        yield cluster, folder
    finally:
        cluster.stop()


@pytest.fixture
async def desk(
    open_desk: Any, pyxis_cluster: tuple[EmbeddedCluster, Path], tmp_path: Path, jupyter_tree: Path
) -> AsyncIterator[Any]:
    """Provide a desk at the cluster with Pyxis."""
    cluster, folder = pyxis_cluster
    (folder / "record").unlink(missing_ok=True)
    notebook = folder / "images" / "me%notebook:6"
    if not notebook.exists():
        notebook.symlink_to(jupyter_tree)
    data = tmp_path / "sets"
    data.mkdir()
    torch = {"image": "nvcr.io/me/torch:1", "bind": [f"{data}:/in_it:ro"]}
    environments = {
        "torch": {**torch, "variables": {"HF_TOKEN": "x"}},
        "notebook": {"image": "me/notebook:6"},
        "other": {"image": "me/other:1"},
        "digest": {"image": f"me/torch@sha256:{'0a' * 32}"},
    }
    async with open_desk(cluster, tmp_path, environments=environments, container={"runtime": "pyxis"}) as desk:
        yield desk


async def _done(desk: Any, text: str, *options: str, **more: Any) -> dict[str, Any]:
    job = await desk.submit(text, "-p", "devwork", *options, **more)
    return dict(await desk.finished(job["key"]))


def _recorded(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / "record").read_text().splitlines())


async def test_a_cell_runs_in_an_image_by_one_step_of_srun(
    desk: Any, pyxis_cluster: tuple[EmbeddedCluster, Path], tmp_path: Path
) -> None:
    env = {**desk.env, "NOT_MINE": "1"}
    python = {"python": None, "args": ["a b", "$x"], "context": {"env": env}}
    done = await _done(desk, ABOUT, "-n", "2", "-c", "2", env="torch", **python)
    assert done["state"] == "COMPLETED", await desk.text(done["key"], "stderr")
    told = json.loads(await desk.text(done["key"]))
    assert told == [
        "12",
        str(tmp_path),
        "pyxis nvcr.io/me/torch:1",
        "x",
        None,
        len(os.sched_getaffinity(0)),
        ["a b", "$x"],
    ]
    recorded = _recorded(pyxis_cluster[1])
    assert (recorded["image"], recorded["workdir"]) == ("nvcr.io#me/torch:1", str(tmp_path))
    assert f"{tmp_path}/sets:/in_it:ro" in recorded["mounts"].split(",")
    assert {"HF_TOKEN", "HOME"} <= set(recorded["env"].split(","))
    assert (recorded["remap_root"], recorded["entrypoint"]) == ("no", "no")


@pytest.mark.parametrize(("name", "code"), [("USR1", 3), ("TERM", 4), ("INT", 5), ("HUP", 6)])
async def test_a_file_of_enroot_exit_codes_and_signals(
    desk: Any, pyxis_cluster: tuple[EmbeddedCluster, Path], name: str, code: int
) -> None:
    file = str(pyxis_cluster[1] / "torch.sqsh")
    job = await desk.submit(SCRIPT, "-p", "devwork", env=file)
    running = await _has_printed(desk, job["key"], file)
    pyxis_cluster[0].run("scancel", f"--signal={name}", "--batch", str(running["id"]))
    done = await desk.finished(job["key"])
    assert (done["exit_code"], await desk.text(job["key"])) == (code, f"pyxis {file}\ntold {name}\n"), done
    assert not list(Path(done["folder"]).glob("held*"))


async def _has_printed(desk: Any, key: str, text: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while text not in await desk.text(key):
            await asyncio.sleep(0.1)
    return dict(await desk.job(key))


async def test_a_step_has_the_cpus_and_the_name_of_its_job(desk: Any) -> None:
    code = (
        "import os\nprint(os.environ['SLURM_CPUS_PER_TASK'], os.environ['SLURM_JOB_NAME'], os.environ['SLURM_NTASKS'],"
        " 'SLURM_GPU_BIND' in os.environ)"
    )
    options = ("-n", "2", "-c", "2", "-J", "my name", "--gpu-bind=none")
    done = await _done(desk, code, *options, env="torch", python=None)
    assert await desk.text(done["key"]) == "2 my name 1 False\n", await desk.text(done["key"], "stderr")


async def test_a_signal_before_the_command_ends_the_step(
    desk: Any, pyxis_cluster: tuple[EmbeddedCluster, Path], tmp_path: Path
) -> None:
    cluster, folder = pyxis_cluster
    slow = tmp_path / "slow.sqsh"
    os.mkfifo(slow)  # the plugin waits for a writer
    job = await desk.submit(SCRIPT, "-p", "devwork", env=str(slow))
    async with asyncio.timeout(60):
        while not (folder / "record").exists():
            await asyncio.sleep(0.1)
    running = await desk.job(job["key"])
    cluster.run("scancel", "--signal=TERM", "--batch", str(running["id"]))
    async with asyncio.timeout(60):
        done = await desk.finished(job["key"])
    assert done["exit_code"] == 128 + 15, done


async def test_a_session_in_an_image(desk: Any) -> None:
    asked = desk.asked("#!", "-p", "devwork")
    asked = {field: asked[field] for field in ("key", "options", "context")}
    about = {"name": "n", "env": "notebook", "default_python": "/usr/bin/python3", "idle": 86400.0}
    await desk.core.sessions.launch(desk.id, {**asked, **about})
    told = await desk.until(asked["key"], lambda job: job["session"]["state"] == "ready" or job["finished"])
    assert told["session"]["state"] == "ready", await desk.text(asked["key"], "stderr")
    token = (Path(told["folder"]) / "serving" / "token").read_text()
    code = "print(open('/etc/debian_version').read()[:2], __import__('os').environ['SLURM_JOB_ID'])"
    assert await run_a_cell(Address(told["session"]["url"], token), code) == f"12 {told['id']}\n"
    await desk.core.sessions.end(desk.id, asked["key"])
    assert (await desk.finished(asked["key"]))["finished"]


async def test_what_pyxis_cannot_do_is_said(desk: Any, pyxis_cluster: tuple[EmbeddedCluster, Path]) -> None:
    with pytest.raises(UsageError, match="launcher=srun does not work with Pyxis"):
        await desk.submit("1", "-p", "devwork", env="torch", launcher="srun")
    wanted = {"act": "pull", "image": "me/torch:1", "key": desk.asked("1")["key"]}
    with pytest.raises(UsageError, match="Pyxis keeps no images"):
        await desk.core.images.submit_image(desk.id, wanted)
    done = await _done(desk, "1", env="digest", python=None)
    assert "Pyxis takes an image by its tag, not by a digest" in await desk.text(done["key"], "stderr")
    done = await _done(desk, "1", env="other", python=None)
    assert (done["state"], "pyxis: failed to create" in await desk.text(done["key"], "stderr")) == ("FAILED", True)
