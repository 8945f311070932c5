"""Tests of Docker by way of sudo, with the real sudo and a real Docker that only root may use."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from containers import Docker, Node

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHOW = "import json, os; print(json.dumps([os.getuid(), os.getgroups(), os.environ.get('HF_TOKEN')]))"
HELD = "echo on; while :; do sleep 0.1; done"


@contextlib.contextmanager
def allowed(text: str) -> Iterator[None]:
    """Add lines to those of sudo for a while."""
    path = Path(f"/etc/sudoers.d/jupyter-slurm-test-{os.getpid()}")  # sudo reads no name with a dot
    path.write_text(text)
    path.chmod(0o440)
    try:
        yield
    finally:
        path.unlink()


@pytest.fixture(scope="module")
def root_docker(
    new_docker: Callable[[str], contextlib.AbstractContextManager[Docker]], unavailable: Callable[[str], None]
) -> Iterator[Docker]:
    """Provide a Docker that only root may use."""
    if shutil.which("sudo") is None:
        unavailable("sudo is not installed")
    with new_docker("only-root") as docker:
        os.chown(docker.host.removeprefix("unix://"), 0, 0)
        yield docker


@pytest.fixture
def node(node: Node, root_docker: Docker) -> Node:
    """Provide a node whose users may not use its Docker."""
    return dataclasses.replace(node, docker=root_docker, started=node.started)


@pytest.fixture
def permission(node: Node) -> Iterator[None]:
    """Let alice run Docker by way of sudo, without a password."""
    client = shutil.which("docker")
    with allowed(f'Defaults:{node.user} env_keep += "DOCKER_HOST"\n{node.user} ALL=(root) NOPASSWD: {client}\n'):
        yield


@pytest.mark.usefixtures("permission")
def test_a_cell_runs_as_the_user_with_its_variables_and_files(node: Node) -> None:
    code, _, err = node.run(node.job(SHOW))
    assert (code, "You have no permission to use docker" in err) == (125, True), err
    account = pwd.getpwnam(node.user)
    place = node.job(f"{SHOW}\nopen('made', 'w').close()", sudo=True, variables={"HF_TOKEN": "x"})
    secret = " hf'se\"cret $HOME # x "
    assert node.about(place, HF_TOKEN=secret) == [account.pw_uid, [account.pw_gid], secret]
    assert (place / "made").stat().st_uid == account.pw_uid
    assert json.loads((place / "end.json").read_text())["exit_code"] == 0
    place = node.job(SHOW, sudo=True, variables={"HF_TOKEN": "x"})
    code, _, err = node.run(place, HF_TOKEN="a\nb")
    assert (code, "With sudo, HF_TOKEN cannot be passed to a container" in err) == (125, True), err
    longest = "x" * (64 * 1024 - 1 - len("HF_TOKEN="))
    assert node.about(place, HF_TOKEN=longest)[2] == longest
    code, _, err = node.run(node.job(SHOW, sudo=True, variables={"HF_TOKEN": "x"}), HF_TOKEN=longest + "x")
    assert (code, "its value is longer than 64 KiB" in err) == (125, True), err
    assert node.docker.running() == []


@pytest.mark.usefixtures("permission")
def test_no_command_line_has_the_value_of_a_variable(node: Node) -> None:
    process = node.start(
        node.job(run=["/bin/sh", "-c", HELD], sudo=True, variables={"HF_TOKEN": "x"}), HF_TOKEN="hf-secret"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    texts = [_text(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert any(text.startswith("sudo -n docker run ") for text in texts)
    assert not [text for text in texts if "hf-secret" in text]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""


@pytest.mark.usefixtures("permission")
def test_exit_codes_and_signals_go_through(node: Node) -> None:
    code, out, _ = node.run(node.job(run=["/bin/sh", "-c", "echo out; exit 127"], sudo=True))
    assert (code, out) == (127, "out\n")
    script = f"trap 'echo told; exit 3' USR1; trap 'echo ended; exit 4' TERM; {HELD}"
    for number, said, expected in ((signal.SIGUSR1, "told\n", 3), (signal.SIGTERM, "ended\n", 4)):
        process = node.start(node.job(run=["/bin/sh", "-c", script], sudo=True))
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)
        assert (process.stdout.read(), process.wait(120)) == (said, expected)
    assert node.docker.running() == []


@pytest.mark.usefixtures("permission")
@pytest.mark.parametrize("which", ["runner", "parent"])
def test_no_container_outlives_its_job(node: Node, wait_for: Callable[..., Any], which: str) -> None:
    under = ("sh", "-c", '"$@"; exit 9', "sh") if which == "parent" else ()
    process = node.start(node.job(run=["/bin/sh", "-c", f"trap '' TERM HUP INT; {HELD}"], sudo=True), under=under)
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.kill()
    wait_for(lambda: not node.docker.running(), which)


@pytest.mark.usefixtures("permission")
def test_an_image_is_built_and_a_shell_enters_its_container(node: Node, wait_for: Callable[..., Any]) -> None:
    place = node.job(run=[])
    text = f"FROM {node.docker.image}\nCOPY told /etc/told\n"
    file = {"name": "Dockerfile", "kind": "dockerfile", "text": text, "folder": str(place)}
    (place / "told").write_text("a file")
    record = json.loads((place / "job.json").read_text())
    record["image"] = {"act": "build", "name": "me/train:1", "runtime": "docker", "sudo": True, "file": file}
    record["image"] |= {"image_dir": str(place / "images"), "build_dir": str(place / "room")}
    (place / "job.json").write_text(json.dumps(record))
    code, out, err = node.run(place, program="container-build.py")
    assert code == 0, out + err
    started = node.job(run=["/bin/sh", "-c", HELD], sudo=True, image="me/train:1")
    process = node.start(started)
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    argv = ["/usr/bin/python3", "-u", str(node.folder / "runner-x-terminal-container_shell.py"), str(started)]
    account = pwd.getpwnam(node.user)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": account.pw_dir, "DOCKER_HOST": node.docker.host}
    typed = ["script", "-qec", " ".join(f"'{word}'" for word in argv), "/dev/null"]
    done = subprocess.run(
        typed, user=node.user, group=account.pw_gid, extra_groups=[], env=env, capture_output=True,
        input="cat /etc/told; id -u; exit\n", text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "a file" in done.stdout, done
    assert str(account.pw_uid) in done.stdout
    process.kill()
    wait_for(lambda: not node.docker.running(), "the end")
    node.docker.run("image", "rm", "me/train:1")


def test_what_sudo_refuses_is_said_with_the_next_step(node: Node, short_path: Path) -> None:
    said = "sudo on this node does not run docker without a password ("
    with allowed(""):
        code, _, err = node.run(node.job("1", sudo=True), LANG="pt_BR.UTF-8")
        assert (code, said in err, "with NOPASSWD" in err) == (125, True, True), err
    with allowed(f"{node.user} ALL=(root) NOPASSWD: /bin/true\n"):
        code, _, err = node.run(node.job("1", sudo=True))
        assert (code, said in err) == (125, True), err
    (short_path / "only").mkdir()
    (short_path / "only" / "docker").symlink_to(shutil.which("docker") or "")
    code, _, err = node.run(node.job("1", sudo=True, runtime="docker"), PATH=str(short_path / "only"))
    assert (code, "This node has no sudo" in err) == (125, True), err


@pytest.mark.slurm
@pytest.mark.here_only("what a node does is the same over SSH")
async def test_the_setting_of_a_profile_reaches_the_jobs(
    open_desk: Any, cluster: Any, tmp_path: Path, root_docker: Docker
) -> None:
    environments = {"e": {"image": root_docker.image, "variables": {"DOCKER_HOST": root_docker.host}}}
    container = {"runtime": "docker", "sudo": True, "image_dir": str(tmp_path / "images")}
    with allowed('Defaults:root env_keep += "DOCKER_HOST"\n'):
        async with open_desk(cluster, tmp_path, environments=environments, container=container) as desk:
            job = await desk.submit("print(6 * 7)", "-p", "devwork", env="e", python=None)
            done = await desk.finished(job["key"])
            assert (done["state"], await desk.text(job["key"])) == ("COMPLETED", "42\n")
            record = json.loads((Path(done["folder"]) / "job.json").read_text())
            assert record["environment"]["sudo"] is True
            asked = desk.asked("1")
            env = {**asked["context"]["env"], "DOCKER_HOST": root_docker.host}
            wanted = {"act": "pull", "image": root_docker.image, "options": ["-p", "devwork"], "key": asked["key"]}
            wanted |= {"context": {**asked["context"], "env": env}}
            pulled = await desk.core.images.submit_image(desk.id, wanted)
            done = await desk.finished(pulled["key"])
            assert done["state"] == "COMPLETED", await desk.text(pulled["key"], "stderr")
            assert json.loads((Path(done["folder"]) / "job.json").read_text())["image"]["sudo"] is True
