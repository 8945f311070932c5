"""Diagnosis from OpenSSH's ``-v`` output; real connections are in tests/cli/test_doctor.py."""

import time

import pytest

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.via_openssh.messages import AskpassQuestions
from jupyter_slurm.transport.ssh.via_paramiko.diagnosis import LoginLogDiagnosis

_WAY = [HostConfig("gateway", "gw.example", 2222, "ana"), HostConfig("login", "Login.example", 22, "ana", ("gateway",))]


def said(host: str, port: int, *ways_in: str) -> str:
    head = (
        "debug1: Remote protocol version 2.0, remote software version OpenSSH_9.2p1",
        f"debug1: Authenticating to {host}:{port} as 'ana'",
        "debug1: Server host key: ssh-ed25519 SHA256:abc",
        f"debug1: Host '{host}' is known and matches the ED25519 host key.",
        "debug1: Found key in /home/ana/known hosts:7",
        "debug1: SSH2_MSG_NEWKEYS received",
    )
    return "\r\n".join((*head, *ways_in)) + "\r\n"


_KEY = "debug1: Offering public key: /home/a b/key ED25519 SHA256:xyz explicit"
_OVER = (
    'Authenticated to gw.example ([1.2.3.4]:2222) using "password".',
    'Authenticated to login (via proxy) using "publickey".',
)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_each_host_is_told_of_however_it_comes_in(size: int) -> None:
    found = []
    walk = LoginLogDiagnosis(_WAY, found.append, clock=lambda: 0.0)
    text = said("gw.example", 2222, _KEY, _OVER[0]) + said("login.example", 22, _KEY, _OVER[1])
    for at in range(0, len(text), size):
        walk.read_log(text[at : at + size])
    assert walk.is_over
    assert [(each.about, each.status) for each in found] == [
        (f"{host}, {step}", "ok") for host in ("gateway", "login") for step in ("reached", "host key", "login")
    ]
    assert found[1].said == "known (/home/ana/known hosts, line 7): ED25519 SHA256:abc"
    assert found[2].said == "ana is logged in by password (OpenSSH_9.2p1)"
    assert found[5].said == "ana is logged in by key /home/a b/key (OpenSSH_9.2p1)"
    assert [hop.refused_keys for hop in walk.hops] == [True, False]
    walk.read_log(text)
    assert len(found) == 6, "a connection that is made again is another matter"


def test_where_it_ends_is_the_host_that_said_something_last() -> None:
    for text, about in (
        ("", "gateway, reached"),
        (said("gw.example", 2222)[:-40], "gateway, host key"),
        (said("gw.example", 2222, _KEY), "gateway, login"),
        (said("gw.example", 2222, _OVER[0]), "login, reached"),
        (said("gw.example", 2222, _OVER[0]) + said("login.example", 22), "login, login"),
    ):
        walk = LoginLogDiagnosis(_WAY, lambda finding: None)
        walk.read_log(text)
        assert walk.failure(TransportError("no", hint="do")).about == about


def test_a_host_on_the_way_that_says_nothing_is_passed() -> None:
    """Check a ProxyCommand that runs ssh without -v."""
    found = []
    walk = LoginLogDiagnosis(_WAY, found.append)
    walk.read_log(said("login.example", 22, _KEY, _OVER[1]))
    assert walk.is_over
    assert {each.about.partition(",")[0] for each in found} == {"login"}
    assert [hop.host.name for hop in walk.hops] == ["login"]


def test_what_a_host_prints_is_no_line_of_openssh() -> None:
    found = []
    walk = LoginLogDiagnosis(_WAY, found.append)
    walk.read_log("x" * 300_000 + '\nMOTD: Authenticated to gw.example ([1.2.3.4]:2222) using "password".\n\0\ufffd\n')
    assert (found, walk.hops) == ([], [])


@pytest.mark.parametrize("text", ["a@" + "'@" * 20_000, "(a@" + ")@" * 20_000, "a" * 100_000])
def test_a_question_of_a_host_is_read_at_once(text: str) -> None:
    begun = time.process_time()
    assert AskpassQuestions(_WAY).read(text, "", 1, "").meaning == "secret"
    assert time.process_time() - begun < 1.0
