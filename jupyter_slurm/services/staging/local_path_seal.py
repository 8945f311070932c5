"""Seal of the user's machine: the local paths in a record are trusted only with the seal.

The record of a job lies on its cluster. Every process with write access, such as the job itself, could name any folder
of this machine. Results would be copied into that folder, or the folder would be sent when the job is submitted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from typing import Any

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.local.files import make_private, new_file, write_all

__all__ = ["MachineSeal"]

_KEY_BYTES = 32


class MachineSeal:
    """Create and verify seals.

    Parameters
    ----------
    folder : str
        Folder of the secret key. Machines with a shared home share the staged folders and this folder.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(os.path.abspath(folder), "seal.key")

    def seal(self, content: Any) -> str:
        """Return the seal of data that can be written as JSON.

        Raises
        ------
        TransportError
            There is no key, and none can be created.
        """
        try:
            return _digest(self._key() or self._new_key(), content)
        except OSError as error:
            raise TransportError(
                f"{self._path} cannot be used: {error.strerror}.",
                hint=f"Check the free space and the permissions of {self._path}.",
            ) from error

    def is_on(self, seal: object, content: Any) -> bool:
        """Return whether this data was sealed on this machine."""
        with contextlib.suppress(OSError, TransportError):
            key = self._key()
            return (
                key is not None
                and isinstance(seal, str)
                and hmac.compare_digest(_digest(key, content).encode(), seal.encode("utf-8", "surrogateescape"))
            )
        return False

    def _key(self) -> bytes | None:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            found, key = os.fstat(file), os.read(file, _KEY_BYTES)
        finally:
            os.close(file)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != os.geteuid()
            or found.st_mode & 0o077
            or len(key) < _KEY_BYTES
        ):
            raise TransportError(
                f"{self._path} is not a file of yours that other users cannot open.",
                hint=f"Remove {self._path}, and try again.",
            )
        return key

    def _new_key(self) -> bytes:
        make_private(os.path.dirname(self._path))
        draft = f"{self._path}.{secrets.token_hex(4)}"
        file = new_file(draft)
        try:
            write_all(file, secrets.token_bytes(_KEY_BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(draft, self._path)  # complete and once: another agent may do the same
        finally:
            os.close(file)
            os.unlink(draft)
        key = self._key()
        assert key is not None
        return key


def _digest(key: bytes, content: Any) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode("ascii"), hashlib.sha256).hexdigest()
