"""Tests of containers on the node, with a real Docker, as an ordinary user who is unknown to the image."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import Node

pytestmark = [pytest.mark.root, pytest.mark.slow]

ABOUT = """
import getpass, json, os, sys
print(json.dumps({
    "ids": [os.getuid(), os.getgid()], "groups": sorted(os.getgroups()), "user": getpass.getuser(),
    "home": os.path.expanduser("~"), "folder": os.getcwd(), "args": sys.argv[1:], "cpus": sorted(os.sched_getaffinity(0)),
    "umask": os.umask(0), "env": dict(os.environ), "debian": open("/etc/debian_version").read().strip(),
    "can_get_root": "NoNewPrivs:\\t0" in open("/proc/self/status").read(),
}))
"""


def test_a_cell_is_who_submitted_it_with_the_cpus_of_the_job_and_its_folders(node: Node) -> None:
    data = node.folder / 'da,ta "x"'
    data.mkdir()
    (data / "read").write_text("it")
    place = node.job(
        ABOUT + "\nprint(open('/in it/read').read(), os.access('/in it', os.W_OK), file=sys.stderr)",
        bind=[f"{data}:/in it:ro"],
        variables={"HF_TOKEN": "x"},
    )
    account = pwd.getpwnam(node.user)
    odd = 'it\'s $(a) "word"\n\x01'
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})  # of the job; Docker's daemon has all
    try:
        told = node.about(
            place, "a b", odd, groups=(account.pw_gid, 20), HF_TOKEN="hf'secret", NOT_MINE="1", SLURM_MEM_PER_NODE="100"
        )
    finally:
        os.sched_setaffinity(0, cpus)
    assert told["ids"] == [account.pw_uid, account.pw_gid]
    assert told["groups"] == sorted({account.pw_gid, 20})
    assert (told["user"], told["home"], told["folder"]) == (node.user, account.pw_dir, str(place))
    assert told["args"] == ["a b", odd]
    assert told["cpus"] == [max(cpus)]
    assert (told["umask"], told["can_get_root"]) == (0o027, False)
    assert told["debian"].startswith("12")
    assert told["env"]["HF_TOKEN"] == "hf'secret"
    assert told["env"]["SLURM_JOB_ID"] == "7"
    assert not {"NOT_MINE", "LD_PRELOAD", "DOCKER_HOST"} & told["env"].keys()
    assert json.loads((place / "end.json").read_text())["exit_code"] == 0
    assert json.loads((place / "used.json").read_text())["container"] == f"docker {node.docker.image}"
    assert (place / "end.json").stat().st_uid == account.pw_uid


def test_exit_codes_output_and_signals_go_through(node: Node, wait_for: Callable[..., Any]) -> None:
    code, out, err = node.run(node.job(run=["/bin/sh", "-c", "printf 'a\\0\\n'; yes | head -c 20000000; exit 127"]))
    assert (code, len(out), out[:3], err) == (127, 20_000_003, "a\0\n", "")
    script = "trap 'echo told; exit 3' USR1; trap 'echo ended; exit 4' TERM; echo on; while :; do sleep 0.1; done"
    for number, said, expected in ((signal.SIGUSR1, "told\n", 3), (signal.SIGTERM, "ended\n", 4)):
        process = node.start(node.job(run=["/bin/sh", "-c", script]))
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)  # as Slurm does: only to the process of the batch script
        assert process.stdout.read() == said
        assert process.wait(120) == expected
    assert node.docker.running() == []


def test_no_container_outlives_its_job(node: Node, wait_for: Callable[..., Any]) -> None:
    """After a kill of the runner, Docker's client, both at once (as by the control group of a job), or slurmstepd."""
    held = ["/bin/sh", "-c", "trap '' TERM HUP INT; echo on; while :; do sleep 0.1; done"]
    for which in ("runner", "client", "both", "parent"):
        process = node.start(node.job(run=held), under=("sh", "-c", '"$@"; exit 9', "sh") if which == "parent" else ())
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        (child,) = _children(process.pid)
        pids = {"runner": [process.pid], "client": [child], "both": [process.pid, child], "parent": [process.pid]}[
            which
        ]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not node.docker.running(), f"{which}: {node.docker.run('ps')}")
        assert process.wait(120) == (-signal.SIGKILL if which != "client" else 128 + signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_container_that_a_daemon_forgot_is_removed_by_the_next_job_of_the_same_user(node: Node, bob: str) -> None:
    """Not a container of another user, of a running job, or of another node; also a container that never started."""
    sleep = ["--entrypoint=/bin/sleep", node.docker.image, "1000"]
    own = ["--network=none", f"--label=jupyter_slurm.user={pwd.getpwnam(node.user).pw_uid}"]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    space = f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    begun = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    holders = {
        "gone": f"{space}/4194999/1",
        "again": f"{space}/{os.getpid()}/1",  # another process has the number now
        "runs": f"{space}/{os.getpid()}/{begun}",
        "elsewhere": f"{boot}/pid:[1]/4194999/1",
        "far": f"{space.replace(boot, str(uuid.uuid4()))}/4194999/1",
        "odd": "x",
    }
    for name, holder in holders.items():
        node.docker.run("run", "--detach", f"--name={name}", *own, f"--label=jupyter_slurm.holder={holder}", *sleep)
    node.docker.run("create", "--name=never", *own, f"--label=jupyter_slurm.holder={holders['gone']}", *sleep)
    others = f"--label=jupyter_slurm.user={pwd.getpwnam(bob).pw_uid}"
    node.docker.run(
        "run",
        "--detach",
        "--name=bobs",
        "--network=none",
        others,
        f"--label=jupyter_slurm.holder={holders['gone']}",
        *sleep,
    )
    try:
        assert node.run(node.job("1"))[0] == 0
        assert sorted(node.docker.running()) == ["bobs", "elsewhere", "far", "odd", "runs"]
    finally:
        node.docker.run("rm", "--force", *node.docker.running())


def test_what_there_is_not_is_said_in_words(node: Node, short_path: Path) -> None:
    """No image, Python, daemon, GPUs, permission, folder or runtime: the message, and the end of the job."""
    (short_path / "locked").touch(mode=0o600)
    (short_path / "shim").mkdir()
    for name in ("docker", "podman"):  # as in the package podman-docker
        (short_path / "shim" / name).write_text("#!/bin/sh\n# podman\nexit 125\n")
        (short_path / "shim" / name).chmod(0o755)
    no = "docker://example.invalid/no/such:1".removeprefix("docker://")
    looks: list[tuple[Path, dict[str, str], str]] = [
        (node.job("1", image=no), {}, f"The image {no} is not on this node"),
        (node.job("1", bind=["/no/such"]), {}, "This node has no folder /no/such"),
        (node.job("1", image="/no/such.sif"), {}, "This node has no image /no/such.sif"),
        (node.job("1"), {"PATH": f"{short_path}/shim"}, "podman does not work on this node"),
        (node.job("1", runtime="podman"), {"PATH": "/nowhere"}, "This node has no podman"),
        (node.job("1"), {"PATH": "/nowhere"}, "This node has no docker nor podman nor apptainer nor singularity"),
        (node.job("1"), {"DOCKER_HOST": f"unix://{short_path}/none"}, "The daemon of docker does not answer"),
        (node.job("1"), {"DOCKER_HOST": f"unix://{short_path}/locked"}, "You have no permission to use docker"),
        (node.job("1"), {}, "Only UTF-8"),
        (node.job("1"), {"CUDA_VISIBLE_DEVICES": "GPU-0"}, "docker on this node seems to give no GPUs to containers"),
        (
            node.job("1", python="/bin/true"),
            {},
            "has no Python in /bin/true, or none that works. Choose another one with python=PATH.",
        ),
        (node.job(run=["/bin/zsh", "/x"]), {}, f"The image {node.docker.image} has no /bin/zsh"),
    ]
    for place, env, said in looks:
        code, _, err = node.run(place, *(["\udcff"] if said == "Only UTF-8" else []), **env)
        assert (code, said in err) == (125, True), (said, err)
        if "cell" in json.loads((place / "job.json").read_text()):
            assert json.loads((place / "end.json").read_text())["exit_code"] == 125
    assert node.docker.running() == []


_PODMAN = """#!/bin/bash
# A Podman that needs its folders as the real one does, and leaves the rest to Docker.
for folder in "$XDG_RUNTIME_DIR" "$TMPDIR" "$DOCKER_CONFIG" "$XDG_DATA_HOME"; do
    [ -z "$folder" ] || [ -d "$folder" ] || { echo "Error: lstat $folder: no such file or directory" >&2; exit 125; }
done
words=()
for word; do case $word in
    --cgroups=*|--userns=*|--group-add=*|--security-opt=label=*) ;;
    *) words+=("$word") ;;
esac; done
exec docker "${words[@]}"
"""


def test_a_runtime_gets_no_folders_that_only_the_submitting_machine_has(node: Node, short_path: Path) -> None:
    shim = short_path / "shim"
    shim.mkdir()
    (shim / "podman").write_text(_PODMAN)
    (shim / "podman").chmod(0o755)
    path = f"{shim}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
    names = ("XDG_RUNTIME_DIR", "TMPDIR", "DOCKER_CONFIG", "XDG_DATA_HOME")
    lost = dict.fromkeys(names, "/run/user/99999/x")
    ran = node.run(node.job("print(42)", runtime="podman"), PATH=path, **lost)
    assert ran[:2] == (0, "42\n"), ran
    for name in names:
        assert f"container: {name}=/run/user/99999/x is not used" in ran[2]
    (shim / "podman").write_text("#!/bin/sh\necho first >&2\necho the last line >&2\nexit 125\n")
    ran = node.run(node.job("print(42)", runtime="podman"), PATH=path)
    assert (ran[0], "podman does not work on this node (the last line)" in ran[2]) == (125, True), ran


def test_the_daemon_may_die_in_the_middle(
    node: Node, new_docker: Callable[[str], Any], wait_for: Callable[..., Any]
) -> None:
    """The job ends with a message; the remaining container ends by itself."""
    with new_docker("dying") as dying:
        place = node.job("import os, time\nprint(os.stat('/proc/1').st_ctime, flush=True)\nwhile True: time.sleep(0.1)")
        process = node.start(place, DOCKER_HOST=dying.host)
        assert process.stdout is not None
        process.stdout.readline()
        inside = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if str(place) in _text(path)]
        os.kill(dying.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, "The daemon of docker does not answer" in err) == (125, True), err
        assert len(inside) >= 3
        wait_for(lambda: not [path for path in inside if str(place) in _text(path / "cmdline")], str(inside))


def test_no_container_waits_for_a_daemon_that_hangs(
    node: Node, new_docker: Callable[[str], Any], wait_for: Callable[..., Any]
) -> None:
    """The job is killed, and the daemon gets no request."""
    with new_docker("frozen") as frozen:
        place = node.job("import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)")
        process = node.start(place, DOCKER_HOST=frozen.host)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        inside = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if "cell-run.py" in _text(path)]
        inside = [path for path in inside if str(place) in _text(path / "cmdline") and path.name != str(process.pid)]
        assert inside
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            for pid in [process.pid, *_children(process.pid)]:
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not any(str(place) in _text(path / "cmdline") for path in inside), str(inside))
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        process.wait(120)
        wait_for(lambda: not frozen.running(), "Docker removes it")


@pytest.fixture
def charliecloud(unavailable: Callable[[str], None]) -> None:
    if shutil.which("ch-run") is None:
        unavailable("charliecloud-runtime is not installed")


@pytest.mark.parametrize("runtime", ["charliecloud", "apptainer", "singularity"])
def test_unpacked_images_run_as_the_jobs_own_process(
    node: Node, image_tree: Path, runtime: str, request: pytest.FixtureRequest, wait_for: Callable[..., Any]
) -> None:
    """Signals and exit codes are as without a container; a killed job leaves no process."""
    found = request.getfixturevalue("charliecloud" if runtime == "charliecloud" else "apptainer")
    path = {"PATH": f"{found}:/usr/bin:/bin"} if found else {}
    data = node.folder / "it's data"
    data.mkdir()
    data.chmod(0o777)
    described = {"image": str(image_tree), "runtime": runtime, "bind": [f"{data}:/sets"]}
    place = node.job(ABOUT, variables={"HF_TOKEN": "x"}, **described)
    account = pwd.getpwnam(node.user)
    odd = "a b\udcff" if runtime == "charliecloud" else "a b"
    told = node.about(place, odd, HF_TOKEN="hf'secret", NOT_MINE="1", **path)
    assert told["ids"] == [account.pw_uid, account.pw_gid]
    assert (told["user"], told["home"], told["folder"]) == (node.user, account.pw_dir, str(place))
    assert (told["args"], told["umask"], told["can_get_root"]) == ([odd], 0o027, False)
    assert told["debian"].startswith("12")
    assert told["env"]["HF_TOKEN"] == "hf'secret"
    assert not {"NOT_MINE", "LD_PRELOAD"} & told["env"].keys()
    assert json.loads((place / "used.json").read_text())["container"] == f"{runtime} {image_tree}"
    script = "trap 'echo told; exit 3' USR1; trap 'echo ended; exit 4' TERM; touch /sets/made; echo on; while :; do sleep 0.1; done"
    for number, said, expected in (
        (signal.SIGUSR1, "told\n", 3),
        (signal.SIGTERM, "ended\n", 4),
        (signal.SIGKILL, "", -9),
    ):
        place = node.job(run=["/bin/sh", "-c", script, str(node.folder / "mark")], **described)
        process = node.start(place, **path)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)
        assert (process.stdout.read(), process.wait(120)) == (said, expected)
    marked = str(node.folder / "mark")
    wait_for(lambda: not [one for one in Path("/proc").glob("[0-9]*/cmdline") if marked in _text(one)], "all is over")
    assert (data / "made").stat().st_uid == account.pw_uid
    code, _, err = node.run(node.job(run=["/bin/zsh", "/x"], **described), **path)
    assert (code, "has no /bin/zsh" in err) == (125, True), err
    for python in ("/bin/ls", "/bin/true"):
        code, out, err = node.run(node.job("1", python=python, **described), **path)
        assert (
            code,
            out,
            f"has no Python in {python}, or none that works. Choose another one with python=PATH" in err,
        ) == (125, "", True), err


@pytest.mark.usefixtures("charliecloud")
def test_links_in_an_image_lead_nowhere_when_places_are_made(node: Node, short_path: Path) -> None:
    image, outside = short_path / "hostile", short_path / "outside"
    for folder in (image / "etc", image / "usr", outside):
        folder.mkdir(parents=True)
    outside.chmod(0o777)
    (image / "scratch").symlink_to(outside)
    code, _, _ = node.run(node.job("1", image=str(image), bind=[f"{outside}:/scratch/me"]))
    assert code != 0
    assert list(outside.iterdir()) == []


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
