"""Public keys and certificates in wire format: types, fingerprints, and validity of host certificates."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)
from paramiko import Message

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig

__all__ = [
    "CERTIFICATE",
    "SHORT_KEY_HINT",
    "bare_key",
    "certificate",
    "copy_key_hint",
    "fault",
    "fingerprint",
    "in_revoked_file",
    "key_type",
    "read_line",
    "rsa_bits",
    "short_key_reason",
    "signer",
]

CERTIFICATE: Final = "-cert-v01@openssh.com"
# Number of fields of the key itself, after the nonce of a certificate.
_CURVES: Final = ("nistp256", "nistp384", "nistp521")
_FIELDS: Final = {"ssh-rsa": 2, "ssh-ed25519": 1, **{f"ecdsa-sha2-{curve}": 2 for curve in _CURVES}}
_PARSED_TYPES: Final = {*_FIELDS, *(name + CERTIFICATE for name in _FIELDS)}
# Further types found in files: compared, but never used.
_COMPARED_TYPES: Final = {"ssh-dss", "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"}


def copy_key_hint(host: HostConfig, methods: Collection[str]) -> str:
    """Return what to do at a host that refuses the user's keys, by the methods that it accepts."""
    named = f"name the right key in ~/.ssh/config (IdentityFile, for Host {host.name})"
    if {*methods} == {"publickey"}:  # ssh-copy-id could not log in
        return (
            f"This host accepts only keys that it knows. If it knows another key of yours, {named}. If not, give your "
            "public key to the site: on its web page, or to the administrators."
        )
    target = host.name if "@" in host.name else f"{host.user}@{host.name}"
    return f"Copy your key to the host (`ssh-copy-id {target}`, or the site's web page), or {named}."


def key_type(blob: bytes) -> str:
    """Return the type named in a key or certificate; empty for other data."""
    size = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + size].decode("ascii", "replace") if 0 < size <= len(blob) - 4 else ""


def fingerprint(blob: bytes) -> str:
    """Return ``SHA256:…`` as ``ssh-keygen -l`` prints it; a certificate has the fingerprint of its key."""
    digest = hashlib.sha256(bare_key(blob)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def read_line(declared: str, encoded: str) -> bytes | None:
    """Return the key of a ``type base64`` line; None if it is not a key, or not of that type."""
    try:
        blob = base64.b64decode(encoded, validate=True)
    except ValueError:
        return None
    if key_type(blob) != declared or declared not in _PARSED_TYPES | _COMPARED_TYPES:
        return None
    if declared in _PARSED_TYPES:
        try:
            load_ssh_public_identity(f"{declared} {encoded}".encode())
        except (ValueError, UnsupportedAlgorithm):
            return None
    return blob


def certificate(blob: bytes) -> SSHCertificate | None:
    """Return the certificate; None for a plain key and for unreadable data."""
    declared = key_type(blob)
    if not declared.endswith(CERTIFICATE):
        return None
    try:
        identity = load_ssh_public_identity(declared.encode() + b" " + base64.b64encode(blob))
    except (ValueError, UnsupportedAlgorithm):
        return None
    return identity if isinstance(identity, SSHCertificate) else None


def bare_key(blob: bytes) -> bytes:
    """Return the key in a certificate; a plain key is returned unchanged."""
    declared = key_type(blob)
    name = declared.removesuffix(CERTIFICATE)
    if name == declared or name not in _FIELDS:
        return blob
    message = Message(blob)
    message.get_binary()  # the type
    message.get_binary()  # the nonce
    plain = Message()
    plain.add_string(name)
    for _ in range(_FIELDS[name]):
        plain.add_string(message.get_binary())
    return bytes(plain.asbytes())


def rsa_bits(blob: bytes) -> int | None:
    """Return the size of an RSA key, plain or in a certificate; None for another type."""
    plain = bare_key(blob)
    if key_type(plain) != "ssh-rsa":
        return None
    message = Message(plain)
    message.get_binary()  # the type
    message.get_mpint()  # the exponent
    return int(message.get_mpint().bit_length())


def signer(certificate: SSHCertificate) -> bytes:
    """Return the key of the authority that signed a certificate."""
    line = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])


def fault(
    certificate: SSHCertificate, blob: bytes, name: str, now: float, algorithms: Sequence[str], *, host: bool = True
) -> str | None:
    """Explain why a certificate is not valid for a name, at a time in seconds since the epoch; None: valid.

    Parameters
    ----------
    certificate, blob : SSHCertificate, bytes
        The certificate, and its wire format.
    name : str
        Host or user name that must be among its principals. A certificate without principals is valid for all names.
    algorithms : sequence of str
        Signature algorithms allowed for an authority (CASignatureAlgorithms); empty: SHA-2 and Ed25519.
    host : bool
        Whether it is a host certificate, else a user certificate.
    """
    if certificate.type != (SSHCertificateType.HOST if host else SSHCertificateType.USER):
        return f"it is not the certificate of a {'host' if host else 'user'}"
    if now < certificate.valid_after:
        return "it is not valid yet"
    if now >= certificate.valid_before:
        return "it has expired"
    if certificate.valid_principals and name.encode() not in certificate.valid_principals:
        return f"it is not for {name}"
    if host and certificate.critical_options:
        return "it has options that jupyter_slurm does not know"
    made_with = _signature_algorithm(blob)
    if made_with == "ssh-rsa" or (algorithms and made_with not in algorithms):
        return f"its authority signed with {made_with}, which is not allowed"
    try:
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm):
        return "its signature is wrong"
    return None


def _signature_algorithm(blob: bytes) -> str:
    message = Message(blob)
    name = message.get_text().removesuffix(CERTIFICATE)
    for _ in range(1 + _FIELDS[name]):
        message.get_binary()  # the nonce and the key
    message.get_int64()  # serial
    message.get_int()  # type
    for _ in range(2):
        message.get_binary()  # its key ID, principals
    message.get_int64()  # valid after
    message.get_int64()  # valid before
    for _ in range(4):
        message.get_binary()  # critical options, extensions, reserved, the authority
    return key_type(message.get_binary())


SHORT_KEY_HINT: Final = (
    "Ask the administrators of the host for a longer key or one of another type, because short keys can be forged."
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
