"""Private keys in files: their public part without a passphrase, and signatures."""

from __future__ import annotations

import base64
import os
import stat
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from paramiko import Message

from jupyter_slurm.transport.ssh.keys.public_keys import read_line

__all__ = ["KeyUnusable", "PassphraseNeeded", "PrivateKey", "load_private_key", "public_key", "public_part", "sign"]

PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey

_MAGIC: Final = b"openssh-key-v1\0"
_MAX_KEY_FILE_BYTES: Final = 1 << 20
_HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    "rsa-sha2-256": hashes.SHA256(),
    "rsa-sha2-512": hashes.SHA512(),
    "ecdsa-sha2-nistp256": hashes.SHA256(),
    "ecdsa-sha2-nistp384": hashes.SHA384(),
    "ecdsa-sha2-nistp521": hashes.SHA512(),
}


class PassphraseNeeded(Exception):
    """The key is encrypted, and the passphrase is missing or wrong."""


class KeyUnusable(Exception):
    """The file has no usable key; the message says why."""


def public_part(path: str) -> bytes | None:
    """Return the public key of a private key's file; None if it needs a passphrase.

    ``PATH`` itself may be a public key (the private key is in the agent), ``PATH.pub`` may exist, and OpenSSH's own
    format contains the public key unencrypted.
    """
    for name in (path, f"{path}.pub"):
        words = _read(name).decode("utf-8", "replace").split("\n", 1)[0].split()
        if len(words) >= 2 and (blob := read_line(words[0], words[1])) is not None:
            return blob
    return _in_the_clear(_read(path))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_KEY_FILE_BYTES)
    except OSError:
        return b""


def _in_the_clear(text: bytes) -> bytes | None:
    begin, end = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----END OPENSSH PRIVATE KEY-----"
    if begin not in text or end not in text:
        return None
    try:
        data = base64.b64decode(text.split(begin, 1)[1].split(end, 1)[0])
    except ValueError:
        return None
    if not data.startswith(_MAGIC):
        return None
    message = Message(data[len(_MAGIC) :])
    for _ in range(3):
        message.get_binary()  # cipher, kdf and its options
    return bytes(message.get_binary()) if message.get_int() == 1 else None


def load_private_key(path: str, passphrase: str | None = None) -> PrivateKey:
    """Read a private key.

    Raises
    ------
    PassphraseNeeded, KeyUnusable
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_MAX_KEY_FILE_BYTES)
    except OSError as error:
        raise KeyUnusable(f"it cannot be read: {error.strerror}") from None
    if b"PRIVATE KEY-----" not in data:
        raise KeyUnusable("it is not a private key, and the agent does not hold one for it")
    if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
        raise KeyUnusable(f"other users may read it: chmod 600 {path}")
    load = load_ssh_private_key if b"BEGIN OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key = load(data, passphrase.encode() if passphrase else None)
    except TypeError:  # the key needs a passphrase
        raise PassphraseNeeded from None
    except UnsupportedAlgorithm:
        raise KeyUnusable("its type is not supported; add it to the agent (ssh-add)") from None
    except (ValueError, InvalidTag):
        if passphrase:
            raise PassphraseNeeded from None
        raise KeyUnusable("it is not a private key that can be read") from None
    if not isinstance(key, PrivateKey):
        raise KeyUnusable("its type is not supported; add it to the agent (ssh-add)")
    return key


def public_key(key: PrivateKey) -> bytes:
    """Return the public key of a private key, in wire format."""
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])


def sign(key: PrivateKey, data: bytes, algorithm: str) -> bytes:
    """Return a signature in wire format."""
    if isinstance(key, RSAPrivateKey):
        signature = key.sign(data, padding.PKCS1v15(), _HASHES[algorithm])
    elif isinstance(key, EllipticCurvePrivateKey):
        pair = Message()
        for number in decode_dss_signature(key.sign(data, ECDSA(_HASHES[algorithm]))):
            pair.add_mpint(number)
        signature = pair.asbytes()
    else:
        signature = key.sign(data)
    message = Message()
    message.add_string(algorithm)
    message.add_string(signature)
    return bytes(message.asbytes())
