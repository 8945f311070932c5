"""Algorithms that OpenSSH offers by default, for connections without OpenSSH, and changes of them in ``~/.ssh/config``.

paramiko also has ciphers in CBC mode and MACs with MD5, with which an attacker can read or change some data. Source:
ssh_config(5) of OpenSSH 10.
"""

from __future__ import annotations

import fnmatch
from typing import Final

__all__ = ["DEFAULTS", "changed"]

_CERTIFICATE: Final = "-cert-v01@openssh.com"
_KEYS: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_SIGNATURES: Final = (*(key.removesuffix("@openssh.com") + _CERTIFICATE for key in _KEYS), *_KEYS)
_MACS: Final = ("umac-64", "umac-128", "hmac-sha2-256", "hmac-sha2-512", "hmac-sha1")

DEFAULTS: Final = {
    "ciphers": (
        "chacha20-poly1305@openssh.com",
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    ),
    "macs": (
        *(f"{mac}-etm@openssh.com" for mac in _MACS),
        *(f"{mac}@openssh.com" if mac.startswith("umac") else mac for mac in _MACS),
    ),
    "kexalgorithms": (
        "mlkem768x25519-sha256",
        "sntrup761x25519-sha512",
        "sntrup761x25519-sha512@openssh.com",
        "curve25519-sha256",
        "curve25519-sha256@libssh.org",
        "ecdh-sha2-nistp256",
        "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521",
        "diffie-hellman-group-exchange-sha256",
        "diffie-hellman-group16-sha512",
        "diffie-hellman-group18-sha512",
        "diffie-hellman-group14-sha256",
    ),
    "hostkeyalgorithms": _SIGNATURES,
    "pubkeyacceptedalgorithms": _SIGNATURES,
    "casignaturealgorithms": tuple(key for key in _KEYS),
}
"""The algorithms by keyword of ssh_config(5), in lower case."""


def changed(keyword: str, value: str) -> str:
    """Return the list that a value means: with ``+``, ``-`` or ``^`` in front, it changes the default list."""
    own = DEFAULTS.get(keyword, ())
    names = [name.strip() for name in value[1:].split(",") if name.strip()]
    if not own or value[:1] not in ("+", "-", "^"):
        return value
    if value[0] == "-":
        return ",".join(name for name in own if not any(fnmatch.fnmatchcase(name, pattern) for pattern in names))
    return ",".join(dict.fromkeys([*own, *names] if value[0] == "+" else [*names, *own]))
