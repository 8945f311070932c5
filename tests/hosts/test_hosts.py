"""Checks of the hosts that other tests use: real sshd, separate networks, and nothing left afterwards."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost
from ssh_hosts.machine import run
from ssh_hosts.network import Wire
from ssh_hosts.sshd import new_key

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.root, pytest.mark.nightly]  # of the test bed itself


@pytest.fixture(scope="module")
def host(ssh_host: Callable[..., SshHost]) -> SshHost:
    return ssh_host(name="lonely")


def test_a_host_is_a_machine_of_its_own(host: SshHost) -> None:
    (host.tmp / "its").write_text("")
    done = host.ssh("hostname; id -un; ls /tmp; cat /proc/1/comm")
    assert done.stdout.split() == ["lonely", host.user, "its", "bash"], done.stderr
    assert socket.gethostname() != "lonely"
    assert not Path("/tmp/its").exists()


def test_a_host_starts_and_ends_in_no_time(ssh_host: Callable[..., SshHost]) -> None:
    begin = time.monotonic()
    host = ssh_host(name="brief")
    assert host.ssh("true").returncode == 0
    assert time.monotonic() - begin < 10
    host.close()


def test_nothing_is_left_of_a_host(ssh_host: Callable[..., SshHost], wait_for: Callable[..., Any]) -> None:
    host = ssh_host(name="gone")
    detached = "setsid sleep 600 >/dev/null 2>&1 </dev/null &"
    assert host.ssh(detached).returncode == 0
    wait_for(lambda: "sleep" in host.processes().values(), "what was started there")
    before, cable = set(host.processes()), Path(f"/sys/class/net/{host.link.device}")
    assert cable.exists()
    host.close()
    assert not {pid for pid in before if _runs(pid)}
    wait_for(lambda: not cable.exists(), "its cable gone")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_stopped_sshd_refuses_and_comes_back_on_the_same_port(host: SshHost) -> None:
    with _client(host, "cat") as session:
        assert _echoes(session)
        host.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host.address, host.port), timeout=5)
        assert _echoes(session), "a connection that was there stays"
        host.start()
        assert host.ssh("true").returncode == 0


def test_killed_sessions_end_and_what_they_started_does_not(host: SshHost, wait_for: Callable[..., Any]) -> None:
    with _client(host, "setsid sleep 300 </dev/null >/dev/null 2>&1 & cat") as session:
        assert _echoes(session)
        wait_for(lambda: "sleep" in host.processes().values(), "what was started there")
        assert host.kill_sessions() >= 1
        assert session.wait(120) == 255
    assert "sleep" in host.processes().values()
    assert host.ssh("true").returncode == 0, "sshd itself is there"
    host.reboot()
    assert "sleep" not in host.processes().values()
    assert host.ssh("true").returncode == 0


def test_dropped_packets_are_lost_in_silence_and_come_back(host: SshHost) -> None:
    with _client(host, "cat") as session:
        assert _echoes(session)
        host.drop()
        with pytest.raises(TimeoutError):
            socket.create_connection((host.address, host.port), timeout=1.5)
        assert not _echoes(session, within=1.5)
        assert session.poll() is None, "nobody was told"
        host.restore()
        assert _answer(session, 20), "what was on its way arrives"
        assert host.ssh("true").returncode == 0


def test_a_host_that_ends_while_packets_are_lost_leaves_no_rule(ssh_host: Callable[..., SshHost]) -> None:
    host = ssh_host(name="lost")
    assert isinstance(host.link, Wire)
    rule = f"jsl_{host.link.device}"
    host.drop()
    assert rule in run("nft", "list", "tables").stdout.split()
    host.close()
    assert rule not in run("nft", "list", "tables").stdout.split()


@pytest.mark.parametrize("round_trip", [0.02, 0.05])
def test_an_answer_over_a_long_cable_takes_a_round_trip(
    ssh_host: Callable[..., SshHost], wait_for: Callable[..., Any], round_trip: float
) -> None:
    host = ssh_host(name="far", round_trip=round_trip)
    times = []
    for _ in range(10):
        begin = time.monotonic()
        socket.create_connection((host.address, host.port), timeout=10).close()
        times.append(time.monotonic() - begin)
    assert round_trip <= min(times) < 2 * round_trip
    with _client(host, "cat") as session:
        assert _echoes(session)
        host.drop()
        assert not _echoes(session, within=1.5)
        host.restore()
        assert _answer(session, 20)
    host.close()
    assert not Path(f"/sys/class/net/{host.link.device}").exists()


def test_a_host_on_our_own_network_reaches_our_clusters(
    ssh_host: Callable[..., SshHost], cluster: EmbeddedCluster, short_tmp: Path, wait_for: Callable[..., Any]
) -> None:
    host = ssh_host(name="login", own_network=False, shared=[short_tmp])
    submit = f"export SLURM_CONF={cluster.slurm_conf}; cd; printf '#!/bin/sh\nhostname\n' | sbatch --parsable -o out"
    done = host.ssh(submit)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    wait_for(
        lambda: cluster.run("squeue", "-hj", job, "-t", "all", "-o", "%T").stdout.strip() == "COMPLETED", "the job"
    )
    assert host.ssh("cat out").stdout.strip() == socket.gethostname()


def test_another_host_key_is_refused(ssh_host: Callable[..., SshHost]) -> None:
    host = ssh_host(name="reinstalled", port=2222)
    assert host.ssh("true").returncode == 0
    host.new_host_key()
    refused = host.ssh("true")
    assert refused.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    host.known_hosts.write_text(host.known_hosts_lines())
    assert host.ssh("true").returncode == 0


def test_options_of_sshd_hold(ssh_host: Callable[..., SshHost]) -> None:
    host = ssh_host(name="strict", options={"MaxSessions": 1, "AllowTcpForwarding": "no"}, sftp=False)
    effective = host.run("/usr/sbin/sshd", "-T").stdout
    assert "maxsessions 1\n" in effective
    assert "allowtcpforwarding no\n" in effective
    assert "subsystem" not in effective


def test_certificates_of_users_and_hosts(ssh_host: Callable[..., SshHost], tmp_path: Path) -> None:
    authority = new_key(tmp_path / "ca")
    public = (tmp_path / "ca.pub").read_text()
    host = ssh_host(
        name="certified",
        files={"user_ca.pub": public},
        options={"TrustedUserCAKeys": "/etc/ssh/user_ca.pub", "AuthorizedKeysFile": "none"},
        host_ca=authority,
    )
    host.known_hosts.write_text(f"@cert-authority * {public}")
    assert host.ssh("true").returncode == 255, "the key alone does not open it"
    mine = new_key(tmp_path / "mine")
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "mine", "-n", host.user, f"{mine}.pub")
    host.ssh_config.write_text(host.client_entry(f"IdentityFile {mine}", f"CertificateFile {mine}-cert.pub"))
    done = host.ssh("true")
    assert done.returncode == 0, done.stderr


def test_a_password_opens_what_takes_one(
    ssh_host: Callable[..., SshHost], new_user: Callable[..., str], tmp_path: Path
) -> None:
    person = new_user(password="open sesame")
    options = {"PasswordAuthentication": "yes", "AuthenticationMethods": "password"}
    host = ssh_host(name="worded", users=[person], options=options)
    assert host.ssh("true").returncode == 255
    askpass = tmp_path / "askpass"
    for word, code in (("open sesame", 0), ("open barley", 255)):
        askpass.write_text(f"#!/bin/sh\necho {word}\n")
        askpass.chmod(0o755)
        environment = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
        argv = ["ssh", "-F", str(host.ssh_config), "-o", "NumberOfPasswordPrompts=1", host.name, "true"]
        assert subprocess.run(argv, env=environment, capture_output=True).returncode == code


@pytest.mark.parametrize(
    ("shell", "file"),
    [("bash", ".bashrc"), ("zsh", ".zshenv"), ("fish", ".config/fish/config.fish"), ("tcsh", ".tcshrc")],
)
def test_login_shells_with_noise(
    ssh_host: Callable[..., SshHost],
    new_user: Callable[..., str],
    unavailable: Callable[[str], None],
    shell: str,
    file: str,
) -> None:
    try:
        person = new_user(shell=shell, files={file: "echo noise of $HOME\n"})
    except FileNotFoundError as error:
        unavailable(str(error))
    host = ssh_host(name=shell, users=[person])
    done = host.ssh(f"ps -o comm= -p {'$fish_pid' if shell == 'fish' else '$$'}; true")
    assert done.stdout == f"noise of /home/{person}\n{shell}\n", done.stderr


def _client(host: SshHost, command: str) -> subprocess.Popen[bytes]:
    argv = ["ssh", "-F", str(host.ssh_config), "-o", "BatchMode=yes", host.name, command]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def _echoes(session: subprocess.Popen[bytes], within: float = 10) -> bool:
    assert session.stdin is not None
    session.stdin.write(b"x")
    return _answer(session, within)


def _answer(session: subprocess.Popen[bytes], within: float) -> bool:
    assert session.stdout is not None
    ready, _, _ = select.select([session.stdout], [], [], within)
    return bool(ready) and session.stdout.read(1) == b"x"
