"""Keys that must not be accepted: those in the file of RevokedHostKeys (text or KRL), and keys that are too short.

Source: ssh_config(5), RevokedHostKeys, RequiredRSASize; ssh-keygen(1), KEY REVOCATION LISTS.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from typing import Final

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.keys.public_keys import bare_key, certificate, key_type, read_line, rsa_bits, signer

__all__ = ["SHORT_KEY_HINT", "in_revoked_file", "short_key_reason"]

SHORT_KEY_HINT: Final = (
    "Such keys can be forged. Ask the people who run it for a longer one, or for one of another type."
)
"""Advice for a host whose key is too short."""

_KRL_MAGIC: Final = b"SSHKRL\n\0"


def short_key_reason(host: HostConfig, blob: bytes) -> str:
    """Explain how RequiredRSASize excludes a key, of a host or of the user; empty if it does not."""
    bits = rsa_bits(blob)
    if bits is None or bits >= host.required_rsa_size:
        return ""
    return f"it has {bits} bits, and RequiredRSASize is {host.required_rsa_size}"


def in_revoked_file(host: HostConfig, blob: bytes) -> bool:
    """Look up a key in RevokedHostKeys; an unreadable file revokes every key, as in OpenSSH."""
    if not host.revoked_host_keys:
        return False
    try:
        with open(host.revoked_host_keys, "rb") as file:
            text = file.read()
    except OSError:
        return True
    if text.startswith(_KRL_MAGIC):
        return _in_krl(host.revoked_host_keys, blob)
    found = certificate(blob)
    ours = (bare_key(blob), signer(found) if found is not None else None)
    words = (line.split() for line in text.decode("utf-8", "replace").splitlines())
    return any(read_line(*line[:2]) in ours for line in words if len(line) > 1 and not line[0].startswith("#"))


def _in_krl(path: str, blob: bytes) -> bool:
    """Query ssh-keygen: only OpenSSH reads its KRL format."""
    with tempfile.NamedTemporaryFile("wb", suffix=".pub") as file:
        file.write(key_type(blob).encode() + b" " + base64.b64encode(blob) + b"\n")
        file.flush()
        argv = ["ssh-keygen", "-Q", "-f", path, file.name]
        try:
            return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30).returncode != 0
        except (OSError, subprocess.SubprocessError):
            return True
