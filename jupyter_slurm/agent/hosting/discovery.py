"""Discovery of the agent: a private directory, file names with the API's major version, and a record beside the socket.

Imports only the standard library and runs nothing at import, because every front end imports this module first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm import _version
from jupyter_slurm.errors import AgentRefused, AgentUnreachable

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = [
    "API_MAJOR",
    "API_MINOR",
    "AgentLocation",
    "check_folder",
    "check_version",
    "is_older",
    "is_stale",
    "machine_identity",
    "make_folder",
    "open_private",
    "place_to_start",
    "read_private",
    "read_record",
    "search_locations",
    "write_private",
]

API_MAJOR = 1
API_MINOR = 0

# sun_path has 108 bytes on Linux and 104 on the BSDs and macOS, including the final NUL.
_MAX_SOCKET_PATH_BYTES = 100

# File systems that other hosts can see too (names as in /proc/self/mountinfo). On these, a socket or a lock misleads.
_NETWORK_FILE_SYSTEMS = frozenset(
    [
        "afs",
        "autofs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    ]
)

_LOCAL_TEMP = "/tmp"  # noqa: S108 - every use of it is checked: check_folder


@dataclass(frozen=True)
class AgentLocation:
    """The files of an agent: ``folder`` is private, ``stem`` contains API version, user and machine."""

    folder: str
    stem: str

    def _path(self, suffix: str) -> str:
        return os.path.join(self.folder, self.stem + suffix)

    @property
    def socket(self) -> str:
        """Return the path of the Unix socket."""
        return self._path(".sock")

    @property
    def record(self) -> str:
        """Return the path of the record of the listening agent (JSON)."""
        return self._path(".json")

    @property
    def lock(self) -> str:
        """Return the path of the leader's lock, which is never removed: a removed lock protects nothing."""
        return self._path(".lock")

    @property
    def start_lock(self) -> str:
        """Return the path of the lock of the one client that starts an agent, so that other clients wait."""
        return self._path(".start")

    @property
    def secret(self) -> str:
        """Return the path of the secret of an agent on 127.0.0.1."""
        return self._path(".secret")


def machine_identity() -> dict[str, str]:
    """Return host name and boot ID (empty if the system has none)."""
    boot_id = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    return {"host": socket.gethostname(), "boot_id": boot_id}


def _stem(api_major: int, home: str) -> str:
    digest = hashlib.sha256(f"{os.geteuid()}@{socket.gethostname()}{home}".encode()).hexdigest()
    return f"v{api_major}-{digest[:8]}"


def _place(folder: str, home: str = "") -> AgentLocation:
    return AgentLocation(folder, _stem(API_MAJOR, home))


def _other_home(settings: Settings) -> str:
    """Return HOME if it is not the user's own home; empty if it is, or if the settings name the agent's directory.

    A process with another HOME has other settings and other job directories, so it gets another agent.
    """
    home = os.environ.get("HOME", "")
    try:
        own = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a container without this user
        return ""
    is_same = not home or os.path.realpath(home) == os.path.realpath(own)
    return "" if settings.runtime_dir or is_same else os.path.realpath(home)


def _candidates(settings: Settings) -> list[str]:
    """Return directories in order of preference.

    Their names do not depend on TMPDIR: a kernel in a job, a cron job and a terminal of one user must find the same
    agent.
    """
    if settings.runtime_dir:
        return [os.path.abspath(os.path.expanduser(settings.runtime_dir))]
    uid = os.geteuid()
    bases = [base for base in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{uid}") if _is_private_dir(base)]
    folders = [os.path.join(base, "jupyter-slurm") for base in bases]
    folders += [f"{_LOCAL_TEMP}/jupyter-slurm-{uid}", os.path.join(os.path.abspath(settings.state_dir), "run")]
    return list(dict.fromkeys(folders))


def _is_private_dir(path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077


def _network_file_system(device: int, mountinfo: str) -> str | None:
    """Return the type of the network file system with this device number, or None."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        # proc(5): ID parent major:minor root mount-point options … - type source options
        fields = line.split(" ")
        if len(fields) > 2 and fields[2] == number and "-" in fields:
            kind = fields[fields.index("-") + 1]
            return kind if kind in _NETWORK_FILE_SYSTEMS else None
    return None


def _mountinfo() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def check_folder(folder: str) -> None:
    """Check that no other user can write to this directory.

    Raises
    ------
    FileNotFoundError
        The directory does not exist.
    AgentRefused
        The directory is a link, belongs to another user, is open to others, is on a network file system or makes a path
        too long.
    """
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise AgentRefused(
            f"{folder} is not a directory but a link or a file.",
            hint=f"Remove {folder}, or set c.JupyterSlurm.runtime_dir to another directory.",
        )
    if info.st_uid != os.geteuid():
        raise AgentRefused(
            f"{folder} belongs to user {info.st_uid}, not to you.",
            hint="Tell the administrators, because another user created it before you. Set "
            "c.JupyterSlurm.runtime_dir to a directory of yours.",
        )
    if info.st_mode & 0o077:
        raise AgentRefused(
            f"{folder} is open to other users (mode {info.st_mode & 4095:o}).", hint=f"Run `chmod 700 {folder}`."
        )
    kind = _network_file_system(info.st_dev, _mountinfo())
    if kind:
        raise AgentRefused(
            f"{folder} lies on a network file system ({kind}), which other computers also see.",
            hint="Set c.JupyterSlurm.runtime_dir to a directory on a local disk.",
        )
    if len(os.fsencode(_place(folder).socket)) > _MAX_SOCKET_PATH_BYTES:
        raise AgentRefused(
            f"The path {folder} is too long for a socket (more than {_MAX_SOCKET_PATH_BYTES} bytes).",
            hint="Set c.JupyterSlurm.runtime_dir to a shorter path.",
        )


def make_folder(folder: str) -> None:
    """Create the directory with mode 0700 (and its parents) if missing, and check it; see :func:`check_folder`."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    check_folder(folder)


def search_locations(settings: Settings) -> list[AgentLocation]:
    """Return the existing, trusted locations. A directory in the settings must be trustworthy or missing."""
    found = []
    for folder in _candidates(settings):
        try:
            check_folder(folder)
        except OSError:
            continue
        except AgentRefused:
            if settings.runtime_dir:
                raise
            continue
        found.append(_place(folder, _other_home(settings)))
    return found


def place_to_start(settings: Settings) -> AgentLocation:
    """Return the location for a new agent, and create its directory.

    Raises
    ------
    AgentUnreachable
        No directory can be used; the message has the reason for each.
    AgentRefused
        The directory in the settings cannot be trusted.
    """
    reasons = []
    for folder in _candidates(settings):
        try:
            make_folder(folder)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
        except AgentRefused as error:
            if settings.runtime_dir:
                raise
            reasons.append(error.message)
        else:
            return _place(folder, _other_home(settings))
    raise AgentUnreachable(
        "No directory is suitable for the socket of the agent. " + " ".join(reasons),
        hint="Set c.JupyterSlurm.runtime_dir to a directory of yours on a local disk.",
    )


def open_private(path: str, flags: int) -> int:
    """Open a regular file of this user, with mode 0600 if new; links and other users' files raise OSError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
        os.close(fd)
        raise PermissionError(1, "not a file of the agent", path)
    if info.st_mode & 0o077:
        os.fchmod(fd, 0o600)
    return fd


def write_private(path: str, data: bytes) -> None:
    """Write a file with mode 0600 atomically."""
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    with open(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def read_private(path: str, limit: int = 65536) -> bytes:
    """Read a small file of this user (OSError if it is missing or belongs to another user)."""
    with open(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read(limit)


def read_record(place: AgentLocation) -> dict[str, object] | None:
    """Return the agent's record: pid, started, host, boot_id, version, api, hosting, port or null."""
    try:
        record = json.loads(read_private(place.record))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def is_stale(record: Mapping[str, object]) -> bool:
    """Return whether the process of this record cannot exist any more: other host, other boot, or a dead pid."""
    machine = machine_identity()
    if record.get("host") != machine["host"] or record.get("boot_id") != machine["boot_id"]:
        return True
    pid = record.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # the pid belongs to another user's process now
        return True
    return False


def check_version(info: Mapping[str, object]) -> None:
    """Raise AgentRefused unless the agent has this package's major version of the API."""
    api = info.get("api")
    if not isinstance(api, dict) or api.get("major") != API_MAJOR:
        raise AgentRefused(
            f"The agent has another version of the API ({api}).",
            hint="Stop the agent with the version of jupyter_slurm that started it: `jupyter slurm agent stop`.",
        )


def is_older(version: str) -> bool:
    """Return whether an agent of this version is older than this package."""
    from packaging.version import InvalidVersion, Version  # an agent has no use for it

    try:
        return Version(version) < Version(_version.__version__)
    except InvalidVersion:
        return False
