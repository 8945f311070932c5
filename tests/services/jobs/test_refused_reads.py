"""Tests of what an ordinary user may not do, or asks in an odd way, over SSH: refused with words, nothing read."""

from __future__ import annotations

import base64
import pwd
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost
from ssh_hosts.ways import Way

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import JobNotFound, JobOutputMissing, SubmitRefused, TransportError

pytestmark = [pytest.mark.slurm, pytest.mark.root]


def home(user: str) -> Path:
    return Path(pwd.getpwnam(user).pw_dir)


@pytest.fixture(scope="module")
def shared_host(
    ssh_host: Callable[..., SshHost],
    alice: str,
    bob: str,
    short_tmp: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SshHost]:
    """Provide a login node of two ordinary users."""
    names = tmp_path_factory.mktemp("names") / "hosts"
    names.write_text(Path("/etc/hosts").read_text() + "127.0.0.1 shared\n")
    mounts = {"/etc/hosts": names}
    host = ssh_host(name="shared", users=[alice, bob], own_network=False, shared=[short_tmp], mounts=mounts, sftp=False)
    yield host
    host.close()


@pytest.fixture
async def alices(
    cluster: EmbeddedCluster, shared_host: SshHost, alice: str, tmp_path: Path, desk_by: Callable[..., Any]
) -> AsyncIterator[Any]:
    async with desk_by(Way("paramiko", shared_host), cluster, tmp_path, job_root=str(home(alice) / "jobs")) as desk:
        desk.folder = str(home(alice))
        yield desk


async def test_a_job_of_another_user_is_neither_cancelled_nor_read(
    alices: Any, cluster: EmbeddedCluster, bob: str, wait_for: Callable[..., Any]
) -> None:
    log = home(bob) / "log.txt"
    argv = ["sbatch", "--parsable", f"--output={log}", "--wrap", "echo private; sleep 600"]
    job = cluster.run(*argv, user=bob).stdout.strip()
    wait_for(log.exists, "the log")
    log.chmod(0o644)
    home(bob).chmod(0o755)  # even if the file system would allow it
    of = alices.core.cluster(alices.id)
    calls: dict[str, Callable[[], Any]] = {
        "look": lambda: alices.job(job),
        "cancel": lambda: of.actions.cancel(job),
        "log": lambda: of.results.output(job, "stdout", 0, None),
    }
    for name, call in calls.items():
        with pytest.raises(JobNotFound, match=f"You have no job {job}, it belongs to another user") as caught:
            await call()
        assert "jupyter_slurm.jobs()" in caught.value.hint, name
    for answer in await of.actions.act("cancel", [job]):
        assert (answer["now"], answer["error"]["title"]) == (None, "JobNotFound")
    refused = await of.run_command(["scancel", job], table=False, context={})
    assert refused["exit_code"] != 0
    assert b"denied" in base64.b64decode(refused["stderr"])
    assert cluster.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"
    cluster.run("scancel", job)


async def test_an_output_where_the_user_may_not_write(alices: Any) -> None:
    job = await alices.submit("#!/bin/sh\necho hi\n", "-o", "/etc/x")
    ended = await alices.finished(job["key"])
    assert (ended["state"], Path("/etc/x").exists()) == ("FAILED", False)
    assert re.search(r"output file could not be opened( \(/etc/x\))?, so it never started", ended["reason_text"])
    assert "check that you may write to it" in ended["next_step"]
    with pytest.raises(JobOutputMissing, match="looked for /etc/x"):
        await alices.core.cluster(alices.id).results.output(job["key"], "stdout", 0, None)


@pytest.mark.parametrize(
    ("options", "named"),
    [(("-J", "n" * 10_000), "The value of -J has 10000"), (("--comment=" + "c" * 1025,), "of --comment has 1025")],
)
async def test_a_value_that_is_too_long_for_slurm_is_named(alices: Any, options: tuple[str, ...], named: str) -> None:
    with pytest.raises(SubmitRefused, match="too long") as caught:
        await alices.submit("#!/bin/sh\ntrue\n", *options)
    assert named in caught.value.hint
    with pytest.raises(SubmitRefused, match="too long") as caught:
        await alices.submit(f"#!/bin/sh\n#SBATCH --job-name={'n' * 2000}\ntrue\n")
    assert "#SBATCH lines" in caught.value.hint


async def test_the_longest_name_that_slurm_takes(alices: Any) -> None:
    job = await alices.submit("#!/bin/sh\necho hi\n", "--job-name=" + "n" * 1024)
    ended = await alices.finished(job["key"])
    assert (ended["state"], ended["name"], await alices.text(job["key"])) == ("COMPLETED", "n" * 1024, "hi\n")


async def test_a_library_that_is_loaded_first_in_the_job_alone(alices: Any) -> None:
    """The variable reaches the job, neither sbatch nor a program of jupyter_slurm on the login node."""
    job = await alices.submit("#!/bin/sh\necho $LD_PRELOAD\n", "--export=ALL,LD_PRELOAD=/no/such/library.so")
    ended = await alices.finished(job["key"])
    assert (ended["state"], ended["warnings"]) == ("COMPLETED", [])
    assert await alices.text(job["key"]) == "/no/such/library.so\n"
    assert "cannot be preloaded" in await alices.text(job["key"], "stderr")


async def test_a_log_that_is_a_link_to_what_the_user_may_not_read(alices: Any, alice: str) -> None:
    """The job itself replaces its log: it is read as its owner, so that nothing of root's comes out."""
    job = await alices.submit(
        "#!/bin/sh\necho hi\nuntil [ -e go ]; do sleep 0.1; done\nln -sf /etc/shadow out.txt\n",
        f"--output={home(alice)}/out.txt",
        f"--chdir={home(alice)}",
    )
    (home(alice) / "go").touch()
    ended = await alices.finished(job["key"])
    assert ended["state"] == "COMPLETED"
    with pytest.raises(TransportError, match="Permission denied") as caught:
        await alices.core.cluster(alices.id).results.output(job["key"], "stdout", 0, None)
    assert "root:" not in str(caught.value)
