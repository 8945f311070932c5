"""Tests of images from registries on the node: fetched once for several jobs, with real runtimes and registry."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import Node
from registry import Registry

pytestmark = [pytest.mark.root, pytest.mark.slow]

RUNTIMES = ("docker", "apptainer", "charliecloud")
SHOW = ["/bin/cat", "/etc/image"]


@pytest.fixture
def folder(node: Node, short_path: Path) -> Path:
    """Provide the folder of images, owned by alice."""
    made = short_path / "im ages"
    made.mkdir()
    os.chown(made, pwd.getpwnam(node.user).pw_uid, -1)
    return made


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, unavailable: Callable[[str], None]) -> tuple[str, dict[str, str]]:
    """Provide a runtime, and the environment variables of its jobs."""
    if request.param == "apptainer":
        return "apptainer", {"PATH": f"{request.getfixturevalue('apptainer')}:/usr/bin:/bin"}
    if request.param == "charliecloud" and shutil.which("ch-image") is None:
        unavailable("charliecloud-builders is not installed")
    return request.param, {}


def _kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_of_several_jobs_one_gets_an_image_and_the_others_wait_for_it(
    node: Node, registry: Registry, folder: Path, runtime: tuple[str, dict[str, str]]
) -> None:
    """Also if the fetching job is killed or terminated: no partial image remains, and the next job starts at once."""
    name, path = runtime
    image, let_go = registry.add(f"once/{name}", is_held=True)
    described = {"image": image, "runtime": name, "image_dir": str(folder)}
    env = {**registry.env, **path}

    def begin(job: str) -> subprocess.Popen[str]:
        return node.start(node.job(run=SHOW, **described), SLURM_JOB_ID=job, SLURMD_NODENAME="it's a node", **env)

    def hears(process: subprocess.Popen[str], said: str) -> None:
        assert process.stderr is not None
        heard, patience = "", threading.Timer(60, process.kill)
        patience.start()
        for line in process.stderr:
            heard += line
            if said in line:
                patience.cancel()
                return
        pytest.fail(f"{said!r} was not said: {heard}")

    under_way = {"docker": "2 of 3 layers", "apptainer": "fetching OCI image", "charliecloud": "2 of 3 layers"}[name]
    first = begin("7")
    hears(first, f"container: {image}: {under_way}")
    second = begin("8")
    hears(second, "waiting for job 7 on it's a node, which fetches the image")
    os.kill(first.pid, signal.SIGKILL)
    hears(second, under_way)
    last = begin("9")
    hears(last, "waiting for job 8 on it's a node, which fetches the image")
    second.send_signal(signal.SIGTERM)
    assert second.wait(120) == 128 + signal.SIGTERM
    hears(last, under_way)
    let_go()
    out, err = last.communicate(timeout=60)
    assert (last.returncode, out) == (0, f"once/{name}"), err
    found = _kept(folder)
    asked = len(registry.asked)
    assert node.run(node.job(run=SHOW, **described), **env)[:2] == (0, f"once/{name}")
    assert len(registry.asked) == asked
    assert _kept(folder) == found
    assert not [one for one in found if one.endswith((".part", ".lock"))], found


def test_why_an_image_cannot_be_had_is_one_sentence(
    node: Node, registry: Registry, folder: Path, runtime: tuple[str, dict[str, str]], short_path: Path
) -> None:
    name, path = runtime
    full, open_to_all = short_path / "full", short_path / "open"
    for made in (full, open_to_all):
        made.mkdir()
    open_to_all.chmod(0o777)
    image, _ = registry.add(f"there/{name}")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", full], check=True)
    os.chown(full, pwd.getpwnam(node.user).pw_uid, -1)
    looks: list[tuple[dict[str, Any], str]] = [
        ({"image": f"{registry.host}/no/such:1"}, "Check its name"),
        ({"image": f"{registry.host}/private/one:1"}, "login" if name != "charliecloud" else "ch-image --auth"),
        ({"image": "127.0.0.1:9/no/such:1"}, "Fetch it on a node that reaches the registry"),
    ]
    if name != "docker":
        looks.append(({"image": image, "image_dir": str(full)}, "to a folder with free space"))
        looks.append(({"image": image, "image_dir": str(open_to_all)}, "All users can write to"))
        looks.append(
            ({"image": image, "image_dir": "/proc/no"}, "/proc/no cannot be created: No such file or directory")
        )
    try:
        for described, said in looks:
            place = node.job(run=SHOW, **{"runtime": name, "image_dir": str(folder), **described})
            code, _, err = node.run(place, **registry.env, **path)
            last = err.splitlines()[-1]
            assert (code, said in last) == (125, True), (said, err)
            assert last.startswith("container: ")
            assert _kept(folder) == []
            assert _kept(full) == []
    finally:
        subprocess.run(["umount", full], check=True)
    if name == "docker":  # each node has its own images
        made = f"{registry.host}/made/elsewhere:1"
        (folder / ".docker-far-made.json").write_text(json.dumps({"image": made, "node": "dgx01"}))
        place = node.job(run=SHOW, runtime=name, image=made, image_dir=str(folder))
        assert (
            "A job created an image of this name on dgx01: add `-w dgx01`" in node.run(place, **registry.env, **path)[2]
        )
