"""Accounts for tests, with typical login shells and start-up files."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ssh_hosts.machine import run

__all__ = ["People"]


class People:
    """Accounts of this machine, removed at the end together with their homes."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(
        self,
        shell: str = "bash",
        files: Mapping[str, str] | None = None,
        password: str | None = None,
        home: str | None = None,
    ) -> str:
        """Create an account and return its login name.

        Parameters
        ----------
        shell : str
            Its login shell: bash, zsh, fish, tcsh …
        files : mapping, optional
            Files in its home, by relative path: start-up files that print noise, sleep or read standard input.
        password : str, optional
            None: no password is valid, but keys are (the account is not locked).
        home : str, optional
            A path that hosts have and this machine may lack: no directory is created. ``{name}`` is the login name.
        """
        program = shutil.which(shell)
        if program is None:
            raise FileNotFoundError(f"{shell} is not installed")
        name = f"jsl{os.getpid()}p{len(self._names)}"
        self._names.append(name)
        place = ["--create-home"] if home is None else ["--no-create-home", "--home-dir", home.format(name=name)]
        run("useradd", *place, "--shell", program, name)
        if password is None:
            # An account without a password is locked for sshd; an account with an impossible password is not.
            run("usermod", "--password", "*", name)
        else:
            run("chpasswd", input=f"{name}:{password}")
        for path, text in (files or {}).items():
            self.write(name, path, text)
        return name

    @staticmethod
    def write(name: str, path: str, text: str) -> Path:
        """Write a file of that user; missing folders are created. Return its path."""
        account = pwd.getpwnam(name)
        target = Path(account.pw_dir) / path
        for folder in reversed(target.relative_to(account.pw_dir).parents):
            place = Path(account.pw_dir) / folder
            if not place.exists():
                place.mkdir(mode=0o700)
                os.chown(place, account.pw_uid, account.pw_gid)
        target.write_text(text)
        os.chown(target, account.pw_uid, account.pw_gid)
        return target

    def remove(self) -> None:
        """Remove all created accounts. Their processes must have ended."""
        for name in self._names:
            subprocess.run(["userdel", "--force", "--remove", name], check=False, capture_output=True)
        self._names.clear()
