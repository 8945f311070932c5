"""Keys and certificates of a user for a host, in the order in which OpenSSH offers them.

Source: ssh_config(5), IdentityFile, CertificateFile, IdentitiesOnly and IdentityAgent; the order was measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.keys.private_keys import public_part
from jupyter_slurm.transport.ssh.keys.public_keys import CERTIFICATE, bare_key, certificate, fault, key_type, read_line
from jupyter_slurm.transport.ssh.keys.ssh_agent import AgentRefusal, SshAgent
from jupyter_slurm.transport.ssh.prompts import printable

__all__ = ["Identity", "identities"]


@dataclass(frozen=True)
class Identity:
    """A key or certificate for a login.

    Attributes
    ----------
    label : str
        Text shown to the user.
    blob : bytes or None
        The public key or certificate; None: only the private key has it.
    path : str or None
        File of the private key.
    agent_key : bytes or None
        The agent's key that signs for this identity.
    remark : str
        Why a certificate will not be accepted.
    """

    label: str
    blob: bytes | None
    path: str | None = None
    agent_key: bytes | None = None
    remark: str = ""


def identities(
    host: HostConfig, agent: SshAgent | None, *, clock: Callable[[], float] = time.time
) -> tuple[list[Identity], list[str]]:
    """Return the identities to offer to a host in order, and remarks about unreadable sources."""
    remarks: list[str] = []
    held: list[tuple[bytes, str]] = []
    if agent is not None:
        try:
            held = agent.keys()
        except AgentRefusal as error:
            remarks.append(f"agent {agent.path}: {error}")
    files = _files(host, clock())
    certificates = [_certificate(path, f"certificate {path}", clock()) for path in host.certificate_files]
    chosen = [found for found in certificates if found is not None]
    others: list[Identity] = []
    for blob, comment in held:
        ours = next((found for found in files if found.blob == blob), None)
        if ours is not None:
            files.remove(ours)
            chosen.append(replace(ours, agent_key=blob, label=f"{ours.label} by the agent"))
        elif not host.identities_only:
            others.append(
                Identity(f"key {printable(comment, 100) or key_type(blob)} of the agent", blob, agent_key=blob)
            )
    return [_with_signer(found, held, host) for found in (*chosen, *others, *files)], remarks


def _files(host: HostConfig, now: float) -> list[Identity]:
    found = []
    for path in host.identity_files:
        blob = public_part(path)
        if blob is None and not os.path.exists(path):
            continue
        found.append(Identity(f"key {path}", blob, path))
        if not host.certificate_files:  # the certificate beside the key counts if none is configured
            beside = _certificate(f"{path}-cert.pub", f"certificate {path}-cert.pub", now)
            found += [replace(beside, path=path)] if beside is not None else []
    return found


def _certificate(path: str, label: str, now: float) -> Identity | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    blob = read_line(words[0], words[1]) if len(words) >= 2 else None
    found = certificate(blob) if blob is not None else None
    if blob is None or found is None:
        return None
    first = found.valid_principals[0].decode("utf-8", "replace") if found.valid_principals else ""
    return Identity(label, blob, remark=fault(found, blob, first, now, (), host=False) or "")


def _with_signer(identity: Identity, held: list[tuple[bytes, str]], host: HostConfig) -> Identity:
    """Find the signer of a certificate: its key in the agent, or in a file."""
    if identity.blob is None or identity.agent_key is not None or not key_type(identity.blob).endswith(CERTIFICATE):
        return identity
    plain = bare_key(identity.blob)
    for blob, _ in held:
        if blob in (plain, identity.blob):
            return replace(identity, agent_key=blob)
    if identity.path is None:
        path = next((path for path in host.identity_files if public_part(path) == plain), None)
        return replace(identity, path=path)
    return identity
