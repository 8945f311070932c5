"""Tests of ``image=`` for steps: a real Charliecloud and a real Docker, in a real allocation."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from containers import Docker

pytestmark = [pytest.mark.slurm, pytest.mark.root]

_PLACE = "import os, sys\nplace = open('/etc/debian_version').read()[:3], sys.executable, os.getcwd()"


@pytest.fixture
def tree(image_tree: Path, unavailable: Callable[[str], None]) -> Path:
    """Return an unpacked image that Charliecloud runs."""
    if shutil.which("ch-run") is None:
        unavailable("charliecloud-runtime is not installed")
    (image_tree / "inside").touch()
    return image_tree


@pytest.fixture(autouse=True)
def nothing_is_left(kernel: Any) -> Iterator[None]:
    yield
    kernel.ok("import jupyter_slurm\nfor one in jupyter_slurm.allocations(): one.release()")


@pytest.fixture
def venv(short_tmp: Path, alice: str, unavailable: Callable[[str], None]) -> Path:
    """Return a virtual environment, with a module beside it."""
    if not os.path.exists("/usr/share/modules/init/bash"):
        unavailable("environment-modules is not installed")
    folder = short_tmp / "for steps"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder], check=True)
    (short_tmp / "greeter").write_text("#%Module\nsetenv GREETED {two words}\n")
    return folder


@pytest.mark.carrier("openssh")
@pytest.mark.by_day
def test_steps_run_in_the_image_of_their_line_or_of_their_allocation(kernel: Any, tree: Path, venv: Path) -> None:
    kernel.ok(f'%salloc -p arandu -n 2 as=held "image={tree}" wait')
    assert kernel.run("%srun wait as=step -n 2 sh -c 'ls -d /inside; exit 3'").status == "error"
    assert kernel.value("(step.stdout, step.exit_code)") == str(("/inside\n/inside\n", 3))
    kernel.ok("x = [1, 'é']\ndef double(n):\n    return 2 * n")
    kernel.ok(f"%%srun -n 1 wait in=x,double out=place,y as=step -- 'a b'\n{_PLACE}\ny = double(x), sys.argv[1:]\n3")
    assert kernel.value("(y, place[1])") == str((([1, "é", 1, "é"], ["a b"]), "/usr/bin/python3"))
    assert kernel.value("step.record['used']['container']") == f"charliecloud {tree}"
    kernel.ok("%%srun -n 1 wait as=step\n#!/bin/sh\nls -d /inside")
    assert kernel.value("step.stdout") == "/inside\n"
    for word in ("image=none", "env=none"):
        kernel.ok(f"%srun {word} wait as=step -n 1 sh -c '! ls -d /inside 2>&1 && echo $SLURM_STEP_ID'")
    words = f'"env={venv}" modules={venv.parent}/greeter'
    kernel.ok(f"%srun {words} wait as=step -n 1 sh -c 'echo $VIRTUAL_ENV, $GREETED; ls -d /inside; true'")
    assert kernel.value("step.stdout") == f"{venv}, two words\n", "not added to that of the allocation"
    kernel.ok("%srun wait as=step --export=NONE -n 1 sh -c 'ls -d /inside'")
    assert "resume, because" in kernel.run("%srun resume hostname").traceback
    kernel.run("%srun wait as=step -n 1 no-such-program")
    assert kernel.value("step.exit_code") == "125"
    assert "has no no-such-program" in kernel.value("step.stderr")


@pytest.mark.here_only("what a node does is the same")
def test_a_session_runs_in_the_image_of_its_allocation(kernel: Any, tree: Path, wait_for: Callable[..., Any]) -> None:
    kernel.ok(f'%salloc -p arandu as=held "image={tree}"')
    server = "/usr/bin/python3 -m http.server --bind {host} {port} --directory /"
    kernel.ok(f"%slurm launch on=held name=seen -- {server}")
    wait_for(lambda: kernel.value("seen.state") == "ready", "the server in the image")
    assert httpx.get(kernel.value("seen.url") + "inside", trust_env=False).status_code == 200
    kernel.ok("seen.stop()")
    assert kernel.value("(seen.state, held.state)") == str(("CANCELLED", "RUNNING"))


def _copy_mpi(tree: Path) -> None:
    """Add mpi4py and Open MPI of this computer, which has the same release of Debian as the image."""
    plain, libraries = Path("/usr/lib/python3/dist-packages"), Path("/usr/lib/x86_64-linux-gnu")
    for folder in (
        plain / "mpi4py",
        libraries / "openmpi",
        libraries / "pmix2",
        Path("/etc/openmpi"),
        Path("/usr/share/openmpi"),
    ):
        if folder.exists():
            shutil.copytree(folder, tree / folder.relative_to("/"), dirs_exist_ok=True, ignore_dangling_symlinks=True)
    programs = [
        *plain.glob("mpi4py/MPI.*.so"),
        *libraries.glob("openmpi/lib/openmpi*/*.so"),
        *libraries.glob("pmix2/**/*.so"),
    ]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    for library in sorted({word for word in told.split() if word.startswith("/") and ".so" in word}):
        target = tree / library.rstrip(":").lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library.rstrip(":"), target)


@pytest.mark.here_only("what a node does is the same")
def test_mpi_in_an_image_has_the_ranks_of_slurm_on_two_nodes(
    kernel: Any, image_tree: Path, tmp_path: Path, unavailable: Callable[[str], None]
) -> None:
    """Shared memory is switched off, because both nodes of the embedded Slurm have that of this computer."""
    if not Path("/usr/lib/python3/dist-packages/mpi4py").exists():
        unavailable("Debian's mpi4py is not installed")
    tree = tmp_path / "mpi"
    shutil.copytree(image_tree, tree, symlinks=True)
    _copy_mpi(tree)
    kernel.ok(
        f'%%sbatch -p devwork -N 2 -n 3 --mem-per-cpu 200M launcher=mpi wait as=mpi "env={tree}" '
        "--export=ALL,OMPI_MCA_btl=^vader\n"
        "import os\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "assert world.Get_rank() == int(os.environ['RANK'])\n"
        "print(world.allreduce(world.Get_rank()), 'of', world.Get_size(), os.environ['JUPYTER_SLURM_CONTAINER'])\n"
        "assert set(world.allgather(os.environ['SLURM_NODEID'])) == {'0', '1'}\n"
    )
    printed = [f"[{rank}] 3 of 3 charliecloud {tree}" for rank in range(3)]
    assert sorted(kernel.value("mpi.stdout").splitlines()) == printed


def _printed(kernel: Any, cell: str) -> str:
    return "".join(m["content"]["text"] for m in kernel.under(cell) if m["msg_type"] == "stream")


@pytest.mark.here_only("what a node does is the same")
@pytest.mark.parametrize("runtime", ["charliecloud", "docker"])
def test_a_process_for_cells_lives_in_the_image(
    kernel: Any, runtime: str, request: pytest.FixtureRequest, wait_for: Callable[..., Any]
) -> None:
    docker: Docker | None = request.getfixturevalue("docker") if runtime == "docker" else None
    image = docker.image if docker else request.getfixturevalue("tree")
    kernel.ok(f"import os\nos.environ['DOCKER_HOST'] = '{docker.host if docker else ''}'")
    kernel.ok("%salloc -p arandu as=held")
    kernel.ok(f'%%remote out=place "image={image}"\nseen = 1\n{_PLACE}\nprint(place[0])')
    assert kernel.value("place[:2]") == str(("12.", "/usr/bin/python3"))
    cell = kernel.begin("%%remote\nimport time\nseen = 2\nprint('sleeps', flush=True)\nwhile True: time.sleep(0.1)")
    wait_for(lambda: kernel.pump() or "sleeps" in _printed(kernel, cell), "the cell runs")
    kernel.manager.signal_kernel(signal.SIGINT)
    assert "was interrupted" in kernel.end(cell).traceback
    kernel.ok("%%remote out=seen\nseen")
    assert kernel.value("seen") == "2"
    assert "already runs with other options" in kernel.run("%%remote image=none\n1").traceback
    kernel.ok("%remote restart")
    kernel.ok(f"%%remote out=place\n{_PLACE}")
    assert kernel.value("place[:2]") == str(("12.", "/usr/bin/python3")), "as before the restart"
    assert "exit code 4" in kernel.run("%%remote\nimport os\nos._exit(4)").traceback
    kernel.ok("%%remote out=place image=none\nimport os\nplace = os.environ.get('JUPYTER_SLURM_CONTAINER')")
    assert kernel.value("place") == "None"
    kernel.ok("%remote stop")
    refused = kernel.run(f'%%remote "image={image}" python=/no/python\n1').traceback
    assert "has no /no/python. Choose another one with python=PATH" in refused
    if docker:
        wait_for(lambda: not docker.running(), "no container")
