"""Tests of ``env=`` with an image: cells and scripts in containers of a real Docker, through Slurm, also over SSH."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from containers import Docker
from ssh_hosts.ways import new_login_host

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.carrier("openssh"),
    pytest.mark.by_day(),  # the replicas have containers over SSH
]


@pytest.fixture(scope="module")
def login_host(ssh_host: Any, short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Provide a login node with OpenSSH's default limit of sessions, one of them for the tunnel."""
    return new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=10)


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        for key, value in table.items():
            said = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items()) if isinstance(value, dict) else ""
            lines.append(f"{key} = {f'{{ {said} }}' if said else json.dumps(value)}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], home: Path, docker: Docker, way: Any) -> dict[str, str]:
    """Provide the environment of the kernel, on a cluster with images for jobs."""
    (home / "da ta").mkdir(exist_ok=True)
    (home / "da ta" / "set").write_text("of the site")
    reached = {"DOCKER_HOST": docker.host}
    # The Python of these tests, in an image of the same release of Debian.
    own = sorted({sys.prefix, sys.base_prefix} - {"/usr"})
    told: dict[str, dict[str, Any]] = {
        "box": {"image": docker.image, "variables": {**reached, "HF_TOKEN": "it's $HOME"}},
        "lost": {"image": "example.invalid/no/such:1", "variables": reached},
        "lab": {
            "image": docker.image,
            "variables": reached,
            "python": sys.executable,
            "bind": [f"{one}:{one}:ro" for one in own],
        },
    }
    site = {"runtime": "docker", "bind": [f"{home}/da ta:/sets"]}
    if way.is_remote:
        profile = home / "sites" / "far.toml"
        profile.write_text(
            profile.read_text() + _toml({"container": site, **{f"env.{name}": one for name, one in told.items()}})
        )
        return environment
    settings = home / "config" / "jupyter_slurm_config.json"
    chosen = json.loads(settings.read_text())
    chosen["Settings"] |= {"environments": told, "container": site}
    settings.write_text(json.dumps(chosen))
    return {**environment, "DOCKER_HOST": docker.host}


def test_a_cell_runs_in_an_image_with_its_values_and_is_submitted_again(
    kernel: Any, docker: Docker, wait_for: Callable[..., Any]
) -> None:
    kernel.ok("x = {'a': [1, 2.5, 'é', b'\\xff']}\ndef double(n):\n    return 2 * n\n")
    kernel.ok(
        "%%sbatch env=box in=x,double out=y as=cell -- 'a b'\nimport os, sys\n"
        "y = [x, double(21), sys.version_info[:2], os.environ['HF_TOKEN'], open('/sets/set').read(), sys.argv[1:], os.getcwd()]\n"
        "print(open('/etc/debian_version').read()[:2])\ny[1]"
    )
    kernel.ok("cell.wait()")
    assert kernel.value("cell.outputs['y']") == kernel.value(
        "[x, 42, (3, 11), \"it's $HOME\", 'of the site', ['a b'], cell.record['work_dir']]"
    )
    assert kernel.value("cell.stdout") == "12\n42\n"
    kernel.ok("told = cell.record['environment']")
    assert (
        kernel.value("told['image'], told['runtime'], told['variables']['HF_TOKEN']")
        == f"{docker.image} docker (hidden)"
    )
    assert kernel.value("cell.record['used']['container']") == f"docker {docker.image}"
    kernel.ok("again = cell.resubmit().wait()")
    assert kernel.value("again.outputs['y'] == cell.outputs['y'], again.record['env']") == "True box"
    wait_for(lambda: not docker.running(), "no container")


def test_an_unpacked_image_is_named_by_its_folder(
    kernel: Any, image_tree: Path, unavailable: Callable[[str], None]
) -> None:
    if shutil.which("ch-run") is None:
        unavailable("charliecloud-runtime is not installed")
    kernel.ok(
        f'%%sbatch "env={image_tree}" as=tree out=y wait\ny = open("/etc/debian_version").read()[:3]\nprint("ran")'
    )
    assert kernel.value("y, tree.stdout") == "12. ran\n"
    assert kernel.value("tree.record['used']['container']") == f"charliecloud {image_tree}"


def test_a_terminal_is_in_the_container_of_its_job(
    kernel: Any, docker: Docker, open_screen: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    kernel.ok("%%sbatch env=box as=cell\nimport os, time\nopen('up', 'w').close()\ntime.sleep(600)")
    job = kernel.value("cell.id").strip("'")
    wait_for(lambda: docker.run("ps", "--quiet"), "a container")
    kernel.ok("import os, time\nwhile cell.refresh().state != 'RUNNING': time.sleep(0.2)")
    screen = open_screen(job)
    screen.wait(rb"[#$] ")
    screen.ask("echo in $JUPYTER_SLURM_CONTAINER, $SLURM_JOB_ID $TERM", rb"in docker \S+, %s xterm" % job.encode())
    screen.ask("stty size </dev/tty || echo none", rb"30 100\r\n|none\r\n")
    node = open_screen(job, "--host")
    node.wait(rb"[#$] ")
    node.ask("echo in $JUPYTER_SLURM_CONTAINER, $SLURM_JOB_ID", rb"in , %s" % job.encode())
    node.ask("exit 4", b"exit 4")
    assert node.end() == 4
    screen.type(b"sleep 4321\r")
    wait_for(lambda: "4321" in docker.run("top", docker.running()[0]), "a program in the container")
    screen.type(b"\x1dd")
    name = screen.wait(rb"shell ([0-9a-f]{8})`")[1].decode()
    screen.end()
    assert open_screen(name, "--close").end() == 0
    wait_for(lambda: "4321" not in docker.run("top", docker.running()[0]), "its end")
    kernel.ok("cell.cancel().wait(check=False)")
    wait_for(lambda: not docker.running(), "no container")


def test_a_terminal_starts_from_the_image_of_an_allocation(
    kernel: Any, image_tree: Path, open_screen: Callable[..., Any], unavailable: Callable[[str], None]
) -> None:
    if shutil.which("ch-run") is None:
        unavailable("charliecloud-runtime is not installed")
    kernel.ok(f'%salloc as=boxed "env={image_tree}" wait')
    screen = open_screen("boxed")
    screen.wait(rb"[#$] ")
    screen.ask("echo in $JUPYTER_SLURM_CONTAINER, $TERM", rb"in charliecloud .+, xterm-256color\r\n")
    screen.ask("exit 6", b"exit 6")
    assert screen.end() == 6
    kernel.ok("boxed.release()")


@pytest.mark.here_only("what a node does is the same")
def test_scripts_arrays_and_sweeps_run_in_an_image(kernel: Any, docker: Docker, wait_for: Callable[..., Any]) -> None:
    kernel.ok(
        '%%sbatch env=box as=plain -- \'a b\' c\n#!/bin/sh -e\ncat /etc/debian_version\necho "$#" "$1"\nfalse\necho never'
    )
    kernel.ok('%%sbatch env=box as=swept sweep=lr:1,2\n#!/bin/sh\necho "$lr $task_index $SLURM_ARRAY_TASK_ID"')
    kernel.ok("%%sbatch env=box as=tasks --array=0-1 out=n\nn = task_index * 10")
    kernel.ok("plain.wait(check=False), swept.wait(), tasks.wait()")
    assert kernel.value("plain.stdout.split('\\n')[1:], plain.exit_code") == "['2 a b', ''] 1"
    assert kernel.value("plain.stdout[:3]") == "12."
    assert kernel.value("[task.stdout for task in swept]") == "['1 0 0\\n', '2 1 1\\n']"
    assert kernel.value("[task.result() for task in tasks]") == "[0, 10]"
    wait_for(lambda: not docker.running(), "no container")


def test_a_session_is_a_jupyter_in_the_image(
    kernel: Any, docker: Docker, wait_for: Callable[..., Any], way: Any
) -> None:
    """The session answers at its local port; the container has its processes, ends with it, and has Jupyter."""
    if sys.base_prefix == "/usr" and sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and takes others only with what they need")
    where = "far" if way.is_remote else ""
    ran = kernel.run(f"%slurm launch {where} -p devwork name=inside env=lab jupyter=install")
    assert ran.status == "ok", ran.traceback
    ran = kernel.run("inside.wait_ready(80)\npage = open(inside.page()).read()")
    assert ran.status == "ok", ran.traceback + kernel.value("inside.log(50)")
    token, login = (
        kernel.value("page.split('value=\"')[1].split('\"')[0]"),
        kernel.value("page.split('action=\"')[1].split('\"')[0]"),
    )
    asked = httpx.get(
        login.removesuffix("login") + "api/status", headers={"Authorization": f"token {token}"}, trust_env=False
    )
    assert asked.json()["kernels"] == 0
    assert "start.py jupyterlab" in docker.run("top", docker.running()[0], "-ww", "-eo", "pid,args")
    if not way.is_remote:  # another server, in a job with restarts: its supervisor is not in the image
        kernel.ok(
            "%slurm launch -p devwork name=files env=box dir=/etc resume -- python3 -m http.server {port} --bind {host}"
        )
        ran = kernel.run("files.wait_ready(80)")
        assert ran.status == "ok", ran.traceback + kernel.value("files.log(50)")
        assert "debian_version" in httpx.get(kernel.value("files.url"), trust_env=False).text
        kernel.ok("files.stop()")
        assert kernel.value("files.state") == "CANCELLED"
    kernel.ok("inside.stop()")
    wait_for(lambda: not docker.running(), "no container")
    ran = kernel.run(f"%slurm launch {where} -p devwork name=none env=lost\n")
    ran = kernel.run("none.wait_ready(80)")
    assert "The image example.invalid/no/such:1 is not on this node" in ran.traceback


@pytest.mark.here_only("what a node does is the same")
def test_each_rank_has_a_container(kernel: Any, docker: Docker, wait_for: Callable[..., Any]) -> None:
    kernel.ok("rate = 0.5")
    kernel.ok(
        "%%sbatch -p devwork -N 2 --ntasks-per-node 1 launcher=srun env=box in=rate out=total as=grid -- 'an argument'\n"
        "import os, sys\nrank = int(os.environ['RANK'])\ntotal = rate + rank\n"
        "print(os.environ['WORLD_SIZE'], open('/etc/debian_version').read()[:2], sys.argv[1], bool(os.environ['MASTER_ADDR']))"
    )
    kernel.ok(
        "%%sbatch -p devwork -n 2 --mem-per-cpu 100M launcher=srun env=box as=bad\nimport os\nassert os.environ['RANK'] != '1'\nimport time\ntime.sleep(600)"
    )
    kernel.ok("%%sbatch -p devwork -n 2 --mem-per-cpu 100M launcher=torchrun env=box as=torch\n1")
    kernel.ok("grid.wait(), bad.wait(check=False), torch.wait(check=False)")
    assert sorted(kernel.value("grid.stdout").splitlines()) == [f"[{n}] 2 12 an argument True" for n in (0, 1)]
    assert kernel.value("grid.result()") == "0.5"
    assert kernel.value("bad.exit_code, 'AssertionError' in bad.stderr") == "1 True"
    assert "No module named" in kernel.value("torch.stderr")  # the image has no torch
    wait_for(lambda: not docker.running(), "no container")


@pytest.mark.here_only("what a node does is the same")
def test_no_container_is_left_of_a_job_that_was_ended(
    kernel: Any, docker: Docker, wait_for: Callable[..., Any]
) -> None:
    """After scancel with a warning signal, and after a kill of all its processes on the node."""
    kernel.ok(
        "%%sbatch env=box as=told\nimport signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('told', flush=True)))\n"
        "print('on', flush=True)\nwhile True: time.sleep(0.1)"
    )
    kernel.ok("%%sbatch env=box as=killed\n#!/bin/sh\ntrap '' TERM\necho on\nwhile :; do sleep 0.1; done")
    wait_for(lambda: kernel.value("told.stdout + killed.stdout") == "on\non\n", "both are on")
    assert len(docker.running()) == 2
    kernel.ok("told.cancel()\n%scancel --signal=KILL --full {killed.id}")
    wait_for(lambda: not docker.running(), "no container")
    kernel.ok("told.wait(check=False), killed.wait(check=False)")
    assert kernel.value("told.stdout") == "on\ntold\n"
    assert kernel.value("killed.state == 'COMPLETED'") == "False"


@pytest.mark.here_only("what a node does is the same")
def test_cells_and_scripts_with_resume_are_told_in_their_containers(
    kernel: Any, docker: Docker, wait_for: Callable[..., Any]
) -> None:
    kernel.ok(
        "%%sbatch env=box resume as=long\nimport time\nfrom jupyter_slurm_job import checkpoint_dir, interrupted\n"
        "(checkpoint_dir() / 'kept').write_text('x')\nprint('on', flush=True)\nwhile not interrupted(): time.sleep(0.1)\nprint('told')"
    )
    wait_for(lambda: kernel.value("long.stdout") == "on\n", "it is on")
    kernel.ok("%scancel --batch --signal=USR1 {long.id}")
    wait_for(lambda: "requeued" in kernel.value("long.stderr"), "it is requeued")
    wait_for(lambda: not docker.running(), "no container")
    kernel.ok("long.cancel()")
    kernel.ok(
        "%%sbatch env=box resume as=trapped\n#!/bin/sh\ntrap 'told=1' USR1\ncd \"$JUPYTER_SLURM_CHECKPOINT_DIR\" || exit 9\necho on\n"
        'while [ ! "$told" ]; do sleep 0.1; done\necho "told $(cat $JUPYTER_SLURM_INTERRUPTED)"'
    )
    wait_for(lambda: kernel.value("trapped.stdout") == "on\n", "it is on")
    kernel.ok("%scancel --batch --signal=USR1 {trapped.id}")
    wait_for(lambda: "requeued" in kernel.value("trapped.stderr"), "it is requeued")
    kernel.ok("trapped.cancel()")
    assert kernel.value("trapped.stdout").startswith("on\ntold ")
    assert kernel.value("long.stdout") == "on\ntold\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("env=docker://Ubuntu", "docker://ubuntu"),
        ("'env=docker://a --privileged'", "is not a valid image name"),
        ("env=/no/such.sif", "/no/such.sif does not exist on "),
        ("env=boxes", "Did you mean box?"),
        ("env=box launcher=mpi -n 2", "launcher=mpi does not work with docker"),
        ("env=box --export=NONE", "would remove the variables of the environment"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_queued(kernel: Any, line: str, said: str) -> None:
    kernel.ok(
        "before = len(jupyter_slurm.jobs())"
        if kernel.run("jupyter_slurm").status == "ok"
        else "import jupyter_slurm\nbefore = len(jupyter_slurm.jobs())"
    )
    ran = kernel.run(f"%%sbatch {line}\n1")
    assert ran.status == "error"
    assert said in ran.traceback
    assert kernel.value("len(jupyter_slurm.jobs()) == before") == "True"


def test_images_are_listed_and_files_of_a_laptop_go_along(kernel: Any, home: Path, way: Any) -> None:
    """On one machine the builder searches the files; over SSH they are searched before the submission."""
    (home / "Dockerfile").write_text("FROM a:1\nCOPY told /told\n")
    kernel.ok(f"import jupyter_slurm\nfile = '{home}/Dockerfile'")
    assert kernel.value("jupyter_slurm.images().columns[:2]") == "['IMAGE', 'SIZE']"
    ran = kernel.run("shown = %slurm image build seen:1 {file} show")
    is_refused = (ran.status, "Dockerfile copies told, but" in ran.traceback)
    assert is_refused == (("error", True) if way.is_remote else ("ok", False))
    (home / "told").write_text("told")
    kernel.ok("shown = %slurm image build seen:1 {file} show")
    kernel.ok(
        f"import os\nhere = os.path.relpath('{home}')\nshown = %slurm image build seen:1 {{file}} context={{here}} show"
    )
    kernel.ok("shown = %slurm image build seen:1 {file} context=~/data show -p devwork\nassert '-p' in shown.argv")
    kernel.ok("shown = %slurm image build own:1 environment base=python:3.11-slim show\nassert 'sbatch' in shown.argv")


@pytest.mark.here_only("what a node does is the same")
def test_a_notebook_builds_an_image_and_runs_cells_in_it(
    kernel: Any, docker: Docker, home: Path, wait_for: Callable[..., Any]
) -> None:
    made = home / "re cipe"
    made.mkdir()
    (made / "told").write_text("taken along")
    (made / "Dockerfile").write_text(f'FROM {docker.image}\nCOPY told /told\nENTRYPOINT ["cat"]\nCMD ["/told"]\n')
    kernel.ok(f"import jupyter_slurm, os\nfile = '{made}/Dockerfile'\nshown = %slurm image build mine:1 {{file}} show")
    assert "-build.py" in kernel.value("shown.script")
    kernel.ok("%slurm image build mine:1 {file} -p devwork as=built wait")
    assert "env=docker://mine:1 runs in it" in kernel.value("built.stdout")
    assert kernel.value("built.record['image']['file']['kind'], built.state") == "dockerfile COMPLETED"
    kernel.ok("%%sbatch env=docker://mine:1 as=ran wait out=told\ntold = open('/told').read()")
    assert kernel.value("told") == "taken along"
    entered = 'as=entered wait\n#!/bin/sh\n"$JUPYTER_SLURM_ENTRYPOINT"; "$JUPYTER_SLURM_ENTRYPOINT" /told /etc/debian_version\n'
    kernel.ok(f"%%sbatch env=docker://mine:1 {entered}")
    assert kernel.value("entered.stdout").startswith("taken alongtaken along12.")
    kernel.ok("table = %slurm image list\nrow = next(row for row in table if row['IMAGE'] == 'mine:1')")
    assert "docker on " in kernel.value("row['WHERE']")
    assert kernel.value("row['FROM'], jupyter_slurm.images() == table") == "Dockerfile True"
    assert kernel.run("built.resubmit()").status == "error"
    anew = f"['image', 'build', 'mine:1', '{made}/Dockerfile', '-p', 'devwork', 'replace']"
    said = kernel.ok(f"import jupyter_slurm.cli.main as cli\ncli.main({anew})").stdout
    assert "env=docker://mine:1 runs in it" in said
    said = kernel.ok("cli.main(['image', 'remove', 'mine:1'])").stdout
    assert "docker image rm mine:1" in said
    (made / "Added").write_text("FROM a:1\nADD told /told\n")
    (made / "Endless").write_text(f"FROM {docker.image}\nRUN echo begun; sleep 600\n")
    kernel.ok(f"%slurm image build endless:1 '{made}/Endless' -p devwork as=endless")
    wait_for(lambda: "\nbegun" in kernel.value("endless.stdout"), "it is being built")
    kernel.ok("endless.cancel()\nendless.wait(check=False)")
    assert kernel.value("endless.state") == "CANCELLED"
    wait_for(lambda: not docker.running(), "no container")
    assert "endless" not in docker.run("image", "ls")
    for line, why in (
        ("build mine:1 {file} wait", "Add `replace` to replace it"),
        ("build two:1 {file} runtime=apptainer", "which is a Dockerfile"),
        (f"build two:1 '{made}/Added' runtime=charliecloud", "Use COPY for files"),
        ("build Two:1 {file}", "docker://two:1"),
        ("build two:1", "needs a file or `environment`"),
        ("build two:1 /no/such", "cannot be read"),
        ("build two:1 environment context=/tmp", "has no effect for this command"),
        ("pull two:1 --array=1-2", "one job makes an image"),
        ("remove two:1", "There is no image two:1"),
    ):
        ran = kernel.run(f"%slurm image {line}")
        assert (ran.status, why in ran.traceback) == ("error", True), ran.traceback


def test_an_image_that_is_not_there_is_the_reason_of_the_end(kernel: Any) -> None:
    ran = kernel.run("%%sbatch env=lost wait\n1")
    assert ran.status == "error"
    assert "The image example.invalid/no/such:1 is not on this node" in ran.traceback
