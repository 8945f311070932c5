"""Without OpenSSH: only what OpenSSH itself offers by default is offered to a real sshd; and packets have a size."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest

from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.transport.ssh.config.algorithms import DEFAULTS, changed
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig, resolve_route
from jupyter_slurm.transport.ssh.via_paramiko.channels import ReceiveBuffer
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostChain, HostVerifier
from jupyter_slurm.transport.ssh.via_paramiko.packetizer import OrderlyPacketizer

HOST = HostConfig("old", "old.example", user="me")


class KeysAgreed(SlurmError):
    """Both sides have agreed on all algorithms."""


def reach(sshd: Any, host: HostConfig) -> paramiko.Transport:
    """Connect up to the login."""
    reached: list[paramiko.Transport] = []

    def login(_: HostConfig, transport: paramiko.Transport) -> None:
        reached.append(transport)
        raise KeysAgreed("agreed", hint="none")

    chain = HostChain([host], HostVerifier(lambda *_: None, login), lambda *_: sshd.connect())
    with pytest.raises(KeysAgreed):
        chain.open()
    return reached[0]


WEAK = [
    ("Ciphers", "aes256-cbc,3des-cbc", "ciphers", "aes256-cbc"),
    ("MACs", "hmac-md5,hmac-sha1-96", "macs", "hmac-md5"),
]


@pytest.mark.parametrize(("keyword", "names", "field", "first"), WEAK)
def test_a_server_with_weak_algorithms_only_is_refused_and_they_are_named(
    piped_sshd: Any, keyword: str, names: str, field: str, first: str
) -> None:
    # The MAC counts only with a cipher that needs one.
    piped_sshd.configure(f"{keyword} {names}", *(["Ciphers aes128-ctr"] if keyword == "MACs" else []))
    with pytest.raises(TransportError) as caught:
        reach(piped_sshd, HOST)
    assert f"no {keyword} that OpenSSH uses by default, only {names.replace(',', ', ')}." in caught.value.message
    assert f"`{keyword} +{first}` under `Host old` in ~/.ssh/config." in caught.value.hint
    wanted = changed(keyword.lower(), f"+{first}").split(",")
    reach(piped_sshd, replace(HOST, **{field: tuple(wanted)}))


def test_a_key_exchange_that_paramiko_lacks_too_is_named(piped_sshd: Any) -> None:
    piped_sshd.configure("KexAlgorithms diffie-hellman-group1-sha1")
    with pytest.raises(TransportError) as caught:
        reach(piped_sshd, HOST)
    assert "no KexAlgorithms that OpenSSH uses by default, only diffie-hellman-group1-sha1" in caught.value.message
    assert "KexAlgorithms +diffie-hellman-group1-sha1" in caught.value.hint


def test_nothing_weak_is_offered(piped_sshd: Any) -> None:
    options = reach(piped_sshd, HOST).get_security_options()
    offered = {
        "ciphers": options.ciphers,
        "macs": options.digests,
        "kexalgorithms": options.kex,
        "hostkeyalgorithms": options.key_types,
    }
    for keyword, names in offered.items():
        assert names
        assert set(names) <= set(DEFAULTS[keyword]), keyword
    weak = ("cbc", "arcfour", "md5", "sha1-96", "group1-", "group14-sha1", "ssh-dss", "ssh-rsa")
    assert not [name for names in DEFAULTS.values() for name in names if any(word in name for word in weak)]


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        ("Ciphers +aes128-cbc", "aes128-cbc", "3des-cbc"),
        ("Ciphers ^3des-cbc", "3des-cbc", "aes128-cbc"),
        ("Ciphers -aes*-ctr", "aes128-gcm@openssh.com", "aes128-ctr"),
        ("Ciphers aes256-ctr", "aes256-ctr", "aes128-ctr"),
    ],
)
async def test_a_change_of_the_list_in_the_configuration_counts_without_openssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, has: str, lacks: str
) -> None:
    (tmp_path / "config").write_text(f"Host old\n{text}\n")
    monkeypatch.setenv("PATH", str(tmp_path))  # where no ssh is
    (host,) = await resolve_route("old", config_file=str(tmp_path / "config"))
    assert has in host.ciphers
    assert lacks not in host.ciphers


@pytest.mark.parametrize("size", [0xFFFFFFFF, 300 << 10, 0, 3])
def test_a_packet_of_an_impossible_size_ends_the_connection_at_once(size: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(size.to_bytes(4, "big") + bytes(1 << 10))
        ours.settimeout(30)
        with pytest.raises(paramiko.SSHException, match=r"a packet of|Invalid packet"):
            OrderlyPacketizer(ours).read_message()


async def test_a_server_that_announces_an_endless_packet_is_left() -> None:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs:
            theirs.sendall(b"SSH-2.0-odd\r\n" + b"\x7f\xff\xff\xfc")
            while theirs.recv(4096):
                pass

    threading.Thread(target=serve, daemon=True).start()
    chain = HostChain([HOST], HostVerifier(lambda *_: None, lambda *_: None), lambda *_: ours)
    with pytest.raises(TransportError, match="cannot be reached"):
        await asyncio.to_thread(chain.open)
    assert not chain.is_alive


def test_a_server_that_ignores_the_window_does_not_fill_the_memory() -> None:
    pieces = ReceiveBuffer()
    for _ in range(512):
        pieces.frombytes(bytes(32 << 10))
    with pytest.raises(paramiko.SSHException, match="ignores the window"):
        pieces.frombytes(b"x")
