"""Tests of ``jupyter slurm code``: plain OpenSSH with the written host, and a job that starts by itself."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from ssh_hosts import Site

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.runner.session import ssh_server
from jupyter_slurm.services.tunnels.ssh_config import with_include, without_include

_TEXT: dict[str, Any] = {"text": True, "timeout": 150, "check": False, "stdin": subprocess.DEVNULL}
_PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
# The directory of ssh comes from the user database: that of the tests belongs to nobody's configuration.
_MAIN = """import sys
from jupyter_slurm.cli.editors import ssh_files
from jupyter_slurm.cli.main import main
from jupyter_slurm.client.sessions import launch
ssh_files.ssh_folder = lambda: {folder!r}
launch._SHORTEST = 1
sys.exit(main())
"""


class Person(NamedTuple):
    """A user of the cluster's host, with separate SSH files."""

    env: dict[str, str]
    ssh_folder: Path

    def slurm(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run ``jupyter slurm WORDS``."""
        argv = [sys.executable, "-c", _MAIN.format(folder=str(self.ssh_folder)), *words]
        return subprocess.run(argv, env=self.env, capture_output=True, **{**_TEXT, **more})

    def argv(self, program: str, *words: str) -> list[str]:
        """Return a command line of OpenSSH with the file that was written."""
        return [program, "-F", str(self.ssh_folder / "jupyter_slurm.conf"), *words]

    def ssh(self, program: str, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a program of OpenSSH."""
        return subprocess.run(self.argv(program, *words), env=self.env, capture_output=True, **{**_TEXT, **more})


def _queued(cluster: EmbeddedCluster) -> set[str]:
    return set(cluster.run("squeue", "--noheader", "--format=%A").stdout.split())


@pytest.fixture
def person(own_agent: dict[str, str], cluster: EmbeddedCluster, tmp_path: Path) -> Person:
    """Provide a user of the default cluster."""
    folder = tmp_path / "dot-ssh"
    folder.mkdir(mode=0o700)
    (folder / "config").write_text("Host other\n    Port 1\n")
    return Person({**own_agent, **cluster.env()}, folder)


@pytest.mark.slurm
@pytest.mark.slow
def test_programs_of_ssh_share_a_job_that_starts_by_itself(
    person: Person, cluster: EmbeddedCluster, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    made = person.slurm("code", "name=far", "-p", "arandu", "--gpus=1", "--comment=a 'b' %c", "/data/project")
    assert made.returncode == 0, made.stderr
    assert "code --remote ssh-remote+far /data/project" in made.stdout
    assert (person.ssh_folder / "config").read_text() == "Include jupyter_slurm.conf\n\nHost other\n    Port 1\n"
    comments = cluster.run("squeue", "--noheader", "--format=%k").stdout
    assert "a 'b' %c" not in comments, "no job before the first connection"

    first = person.ssh("ssh", "far", "echo $SLURM_JOB_ID; echo $CUDA_VISIBLE_DEVICES; id -un; exit 7")
    assert first.returncode == 7, first.stderr
    job, gpu, user = first.stdout.split()
    assert (gpu, user) == ("0", pwd.getpwuid(os.getuid()).pw_name)
    assert "submitting a job" in first.stderr
    if os.geteuid() == 0 or "gid=5" in Path("/proc/mounts").read_text():  # else only root can make a terminal for sshd
        assert person.ssh("ssh", "-tt", "far", "tty").stdout.startswith("/dev/pts/")
    second = [
        subprocess.Popen(
            person.argv("ssh", "far", "echo $SLURM_JOB_ID; cat"),
            env=person.env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    assert [each.communicate("sent", timeout=60)[0] for each in second] == [f"{job}\nsent"] * 2

    sent = tmp_path / "a file"
    sent.write_bytes(os.urandom(3_000_000))
    copied = [tmp_path / name for name in ("by-scp", "by-rsync", "by-sftp")]
    assert person.ssh("scp", "-q", str(sent), f"far:{copied[0]}").returncode == 0
    shell = " ".join(person.argv("ssh"))
    done = subprocess.run(["rsync", "-a", "-e", shell, str(sent), f"far:{copied[1]}"], env=person.env, **_TEXT)
    assert done.returncode == 0
    batch = tmp_path / "batch"
    batch.write_text(f'put "{sent}" {copied[2]}\n')
    assert person.ssh("sftp", "-q", "-b", str(batch), "far").returncode == 0
    assert all(path.read_bytes() == sent.read_bytes() for path in copied)

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as free:

        def serve() -> None:
            connection = server.accept()[0]
            with connection:
                connection.sendall(b"from the node")

        threading.Thread(target=serve, daemon=True).start()
        local = free.getsockname()[1]
        free.close()
        way = f"{local}:127.0.0.1:{server.getsockname()[1]}"
        forward = subprocess.Popen(
            person.argv("ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", way, "far"),
            env=person.env,
            stderr=subprocess.PIPE,
            text=True,
        )

        def read() -> bytes:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", local)) as connection:
                return connection.recv(100)
            return b""

        assert wait_for(read, "the forwarded port") == b"from the node"

    # Another key, and another host key, are refused.
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    hosts = json.loads((tmp_path / "jupyter_slurm_config.json").read_text())["Settings"]["state_dir"]
    text = (person.ssh_folder / "jupyter_slurm.conf").read_text()
    for changed, message in (
        (re.sub("IdentityFile .*", f"IdentityFile {other}", text), "Permission denied (publickey)"),
        (re.sub("HostKeyAlias .*", "HostKeyAlias unknown", text), "Host key verification failed"),
    ):
        strange = tmp_path / "strange"
        strange.write_text(changed)
        argv = ["ssh", "-F", str(strange), "far", "true"]
        refused = subprocess.run(argv, env=person.env, capture_output=True, **_TEXT)
        assert message in refused.stderr
    for path in Path(hosts, "ssh-hosts", "far").iterdir():
        assert path.stat().st_mode & 0o077 == (0o044 if path.suffix == ".pub" else 0)

    # The end of the job ends the connection, with its reason.
    assert person.slurm("code", "--list").stdout.startswith("far: local ")
    cluster.run("scancel", job)
    told = forward.communicate(timeout=60)[1]
    assert re.search(r"Session \d+ \(far\) has ended: CANCELLED", told), told

    assert person.slurm("uninstall", "--yes").returncode == 0
    assert (person.ssh_folder / "config").read_text() == "Host other\n    Port 1\n"
    assert not (person.ssh_folder / "jupyter_slurm.conf").exists()
    assert not Path(hosts, "ssh-hosts").exists()


@pytest.mark.slurm
@pytest.mark.slow
def test_an_interrupt_cancels_a_pending_job(
    person: Person, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    assert person.slurm("code", "name=short", "-p", "arandu", "--begin=now+3600").returncode == 0
    argv = [sys.executable, "-c", _MAIN.format(folder=str(person.ssh_folder)), "code", "--connect", "short"]
    before = _queued(cluster)
    with subprocess.Popen(argv, env=person.env, text=True, start_new_session=True, **_PIPES) as waiting:
        assert waiting.stderr is not None
        while "pending" not in waiting.stderr.readline():
            pass
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, "")
    assert "was cancelled" in err
    wait_for(lambda: not _queued(cluster) - before, "the end of the job")


@pytest.mark.slurm
@pytest.mark.slow
def test_a_connection_that_ends_while_sbatch_runs_is_followed_by_one_to_the_same_job(
    person: Person, cluster: EmbeddedCluster, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    """An editor gives up after some seconds, and ends its ssh."""
    begun, goes_on, programs = tmp_path / "begun", tmp_path / "goes-on", tmp_path / "bin"
    programs.mkdir()
    path = person.env["PATH"]
    sbatch = shutil.which("sbatch", path=path)
    wait = f"touch {begun}; until [ -e {goes_on} ]; do sleep 0.1; done"
    wait = f'case "$*" in *--version* | *--usage* | *--help*) ;; *) {wait};; esac'
    (programs / "sbatch").write_text(f'#!/bin/sh\n{wait}\nexec {sbatch} "$@"\n')
    (programs / "sbatch").chmod(0o755)
    person = person._replace(env={**person.env, "PATH": f"{programs}:{path}"})
    assert person.slurm("code", "name=far", "noopen", "-p", "arandu").returncode == 0
    argv = [sys.executable, "-c", _MAIN.format(folder=str(person.ssh_folder)), "code", "--connect", "far"]
    before = _queued(cluster)
    with subprocess.Popen(argv, env=person.env, text=True, start_new_session=True, **_PIPES) as ended:
        wait_for(begun.exists, "sbatch")
        ended.send_signal(signal.SIGHUP)
        out, err = ended.communicate(timeout=60)
    assert (ended.returncode, out) == (-signal.SIGHUP, ""), err
    goes_on.touch()
    done = person.ssh("ssh", "far", "echo $SLURM_JOB_ID")
    assert done.returncode == 0, done.stderr
    assert "Another session" not in done.stderr
    assert _queued(cluster) - before == {done.stdout.strip()}
    cluster.run("scancel", done.stdout.strip())


@pytest.mark.slurm
@pytest.mark.slow
def test_two_laptops_have_a_job_each_for_a_host_of_one_name(
    person: Person, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    (second / "dot-ssh").mkdir(mode=0o700, parents=True)
    told = json.loads((tmp_path / "jupyter_slurm_config.json").read_text())
    told["Settings"]["state_dir"] = str(second / "state")
    (second / "jupyter_slurm_config.json").write_text(json.dumps(told))
    other = Person({**person.env, "JUPYTER_CONFIG_DIR": str(second)}, second / "dot-ssh")
    jobs = []
    for laptop in (person, other, person, other):
        if len(jobs) < 2:
            assert laptop.slurm("code", "name=far", "noopen", "-p", "arandu").returncode == 0
        done = laptop.ssh("ssh", "far", "echo $SLURM_JOB_ID")
        assert done.returncode == 0, done.stderr
        assert ("Another session has the name far" in done.stderr) == (len(jobs) == 1)
        jobs.append(done.stdout)
        own = re.search(r"^\S+ .* ssh far *$", laptop.slurm("sessions").stdout, re.MULTILINE)
        assert own, "the name of the host, also where the session has a longer one"
        assert own[0].split()[2] == jobs[-1].strip()
        refused = laptop.slurm("open", own[0].split()[0], "--no-browser")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "is a host for ssh and has no page" in refused.stderr
    assert "on the computer that started it" in laptop.slurm("sessions").stdout
    told = json.loads(person.slurm("sessions", "--json").stdout)
    assert sorted(one["session"]["ssh_host"] for one in told) == ["far", "far"]
    assert len({one["label"] for one in told}) == 2
    assert jobs[:2] == jobs[2:]
    assert jobs[0] != jobs[1]
    cluster.run("scancel", *map(str.strip, jobs[:2]))


@pytest.mark.slurm
@pytest.mark.slow
def test_an_unused_job_ends(person: Person, cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> None:
    assert person.slurm("code", "name=short", "idle=0:10", "-p", "arandu").returncode == 0
    text = (person.ssh_folder / "jupyter_slurm.conf").read_text()
    main = shlex.join([sys.executable, "-c", _MAIN.format(folder="/none").replace("\n", "; ").rstrip("; ")])
    (person.ssh_folder / "jupyter_slurm.conf").write_text(re.sub(r"(ProxyCommand ).* code ", rf"\1{main} code ", text))
    done = person.ssh("ssh", "short", "echo $SLURM_JOB_ID")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: done.stdout.strip() not in _queued(cluster), "the end of the unused job", timeout=90)


_WRONG = (
    (("/data", "-p", "gpu"), "'-p' stands after the folder '/data'"),
    (("-p", "gpu", "data"), "'data' is not an absolute path on the cluster"),
    (("editor=vi",), "editor=vi is not supported"),
    (("name=-x",), "'-x' is not a valid name"),
    (("name=gate",), "gate is a host by which the cluster far is reached"),
    (("name=LOGIN.far",), "LOGIN.far is a host by which the cluster far is reached"),
    (("--bad",), "sbatch has no option --bad"),
    (("--wait",), "--wait is not supported: a session is a job that runs a server"),
    (("--remove", "none"), "There is no host 'none'"),
    (("--connect", "../x"), "There is no host '../x'"),
)


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
def test_from_a_laptop_a_login_is_asked_for_at_the_terminal_and_other_users_are_refused(
    laptop: Any, ssh_site: Site
) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", '[login]\nhost = "login"\n')
    code = (r"erification code: *", ssh_site.codes.next)
    made = laptop.slurm("code", "far", "noopen", "--chdir=/tmp", dialogue=[code])
    assert made.code == 0, made.text
    assert laptop.printed("disconnect", "far").returncode == 0
    done = laptop.at_terminal("ssh", "far-code", "hostname; id -un", dialogue=[code], timeout=150)
    assert re.search(rf"^(node1|node2)\n{ssh_site.user}$", done.text.replace("\r", ""), re.MULTILINE), done.text
    (session,) = json.loads(laptop.printed("sessions", "--cluster", "far", "--json").stdout)
    assert "ssh far-code" in laptop.printed("sessions", "--cluster", "far").stdout
    address = ("127.0.0.1", session["session"]["local_port"])
    with contextlib.suppress(ConnectionResetError), socket.create_connection(address, 30) as connection:
        assert connection.recv(100) == b"", "another user of the laptop gets nothing from the node"
    copied = laptop.at_terminal("rsync", "-e", "ssh", str(laptop.ssh / "config"), "far-code:from-laptop")
    assert copied.code == 0, copied.text
    sent = Path(f"~{ssh_site.user}/from-laptop").expanduser()
    assert sent.read_text() == (laptop.ssh / "config").read_text()
    assert laptop.printed("stop", "far-code", "--cluster", "far").returncode == 0


@pytest.mark.slurm
def test_wrong_words_write_nothing(person: Person, tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/far.toml").write_text('[login]\nhost = "ana@login.far"\njump = ["gate:22"]\n')
    config = tmp_path / "jupyter_slurm_config.json"
    told = json.loads(config.read_text())
    told["Settings"]["sites"] = [str(tmp_path / "sites")]
    config.write_text(json.dumps(told))
    for words, message in _WRONG:
        refused = person.slurm("code", *words)
        assert refused.returncode == 1
        assert message in refused.stderr
    assert not (person.ssh_folder / "jupyter_slurm.conf").exists()


def test_the_line_of_a_key_has_the_environment_of_the_job() -> None:
    env = {"A": 'x "y" %', "HOME": "/h", "SSH_AUTH_SOCK": "/s", "BASH_FUNC_f%%": "()", "B": "1\n2", "C": "end\\"}
    env["NAME"] = "Jos\udce9"  # as Python reads a value that is not UTF-8: sshd's file could not be written
    assert ssh_server.key_line("ssh-ed25519 AAAA", env) == 'environment="A=x \\"y\\" %" ssh-ed25519 AAAA\n'
    assert ssh_server.key_line("ssh-ed25519 AAAA", {}) == "ssh-ed25519 AAAA\n"


def test_a_node_without_sshd_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_server, "_SYSTEM_FOLDERS", ())
    part = {"command": ["sshd", "{port}"], "base_url": "/", "ssh": "ssh-ed25519 AAAA"}
    place: Any = SimpleNamespace(folder=str(tmp_path), job={"session": part}, put=None)
    with pytest.raises(ssh_server.command.SessionStartError, match=r"has no sshd, which an editor needs"):
        ssh_server.SshServer(place, {"PATH": str(tmp_path)}).start()


def test_the_include_is_removed_as_it_was_added() -> None:
    for text in ("", "Host x\n", "# mine\r\nHost x\n  User \udcff\n"):
        added = with_include(text)
        assert added is not None
        assert without_include(added) == text
        assert without_include(text) == text
