"""Files of ``~/.ssh`` that commands write: the file of jupyter_slurm, and its Include in ``config``."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pwd
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.terminal import yes
from jupyter_slurm.errors import ConfigError

if TYPE_CHECKING:
    from jupyter_slurm.services.tunnels.ssh_config import SshConfigEntry

__all__ = ["change_entries", "include", "locked", "open_files", "remove_files", "replace", "report", "ssh_folder"]


def report(text: str) -> None:
    """Print a line for the user, on standard error."""
    from jupyter_slurm.client.render.terminal import printable

    print(printable(text), file=sys.stderr)


def ssh_folder() -> str:
    """Return the directory of the user's SSH files."""
    # OpenSSH uses the user database, not HOME.
    return os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")


def change_entries(change: Callable[[list[SshConfigEntry]], list[SshConfigEntry]]) -> None:
    """Write what a function makes of the entries of jupyter_slurm's file, if it differs."""
    from jupyter_slurm.services.tunnels.ssh_config import FILE, config_text, parse_entries
    from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route

    def check(draft: str) -> None:
        # A single word that OpenSSH refuses would make every host of the user unreachable.
        asyncio.run(resolve_route("jupyter-slurm-check", config_file=draft))

    folder = ssh_folder()
    path = os.path.join(folder, FILE)
    with open_files(folder), locked(folder):
        known = parse_entries(_read(path))
        entries = change(list(known))
        if entries != known:
            replace(path, config_text(entries), 0o600, check)


def remove_files() -> bool:
    """Remove jupyter_slurm's file and its Include; return whether there was one."""
    from jupyter_slurm.services.tunnels.ssh_config import FILE, without_include

    folder = ssh_folder()
    path, config = os.path.join(folder, FILE), os.path.realpath(os.path.join(folder, "config"))
    if not os.path.lexists(path):
        return False
    with open_files(folder), locked(folder):
        before = _read(config)
        text = without_include(before)
        if text != before:
            replace(config, text, os.stat(config).st_mode & 0o777)
        os.unlink(path)
    return True


def include(name: str, *, sure: bool) -> None:
    """Make sure that ssh reads jupyter_slurm's file."""
    from jupyter_slurm.services.tunnels.ssh_config import FILE, with_include

    folder = ssh_folder()
    shown = os.path.join(folder, "config")
    path = os.path.realpath(shown)  # the file is often a link to another place
    with open_files(folder):
        text = with_include(_read(path))
        if text is None:
            return
        question = f"Add `Include {FILE}` at the top of {shown}?"
        if not sure and not (sys.stdin.isatty() and yes(question, default=True)):
            report(f"Add this line at the top of {shown}, so that ssh finds {name}:\n    Include {FILE}")
            return
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
        replace(path, text, mode)
    report(f"Added at the top of {shown}: Include {FILE}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:  # keeps every line end
            return file.read()
    except FileNotFoundError:
        return ""


def replace(path: str, text: str, mode: int, check: Any = None) -> None:
    """Write a file atomically, after a check of the new text in the target directory."""
    descriptor, draft = tempfile.mkstemp(prefix=".jupyter_slurm.", dir=os.path.dirname(path))
    try:
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
        if check is not None:
            check(draft)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


@contextlib.contextmanager
def open_files(folder: str) -> Iterator[None]:
    """Create a private folder if it is missing, and say what cannot be written in it."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be written: {error.strerror}", hint="Check its owner and permissions."
        ) from None


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keep other commands from changing a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
