"""Where the agent is found: a private folder, names that tell the API's major version, and a record beside the socket.

Imports the standard library only and does nothing at import, because every front door needs it first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.errors import AgentRefused, AgentUnreachable

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = [
    "API_MAJOR",
    "API_MINOR",
    "AgentLocation",
    "check_folder",
    "is_stale",
    "log_path",
    "make_folder",
    "open_private",
    "place_to_start",
    "places_to_look",
    "read_private",
    "read_record",
    "this_machine",
    "write_private",
]

API_MAJOR = 1
API_MINOR = 0

# sun_path holds 108 bytes on Linux and 104 on the BSDs and macOS, the final NUL included.
_SUN_PATH_LIMIT = 100

# File systems that another machine can see too (names as in /proc/self/mountinfo): a socket or a lock there misleads.
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
    """The files of one agent: ``folder`` is private, ``stem`` carries API version, user and machine."""

    folder: str
    stem: str

    def _path(self, suffix: str) -> str:
        return os.path.join(self.folder, self.stem + suffix)

    @property
    def socket(self) -> str:
        """The Unix socket."""
        return self._path(".sock")

    @property
    def record(self) -> str:
        """Who listens there (JSON)."""
        return self._path(".json")

    @property
    def lock(self) -> str:
        """Locked by the leader for as long as it leads. Never removed: a lock on a removed file protects nothing."""
        return self._path(".lock")

    @property
    def start_lock(self) -> str:
        """Locked by the one client that starts an agent, so that the others wait instead of starting more."""
        return self._path(".start")

    @property
    def secret(self) -> str:
        """The secret of an agent on 127.0.0.1."""
        return self._path(".secret")


def this_machine() -> dict[str, str]:
    """Return host name and boot id (empty where the system has none)."""
    boot_id = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    return {"host": socket.gethostname(), "boot_id": boot_id}


def _stem(api_major: int) -> str:
    digest = hashlib.sha256(f"{os.geteuid()}@{socket.gethostname()}".encode()).hexdigest()
    return f"v{api_major}-{digest[:8]}"


def _place(folder: str) -> AgentLocation:
    return AgentLocation(folder, _stem(API_MAJOR))


def _candidates(settings: Settings) -> list[str]:
    """Folders in order of preference.

    The names do not depend on TMPDIR: a kernel in a job, a cron job and a terminal of one user must find one agent.
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
    """Return the type of the network file system that has this device number, or None."""
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
    """Check that nobody else can put anything into this folder.

    Raises
    ------
    FileNotFoundError
        It is not there.
    AgentRefused
        It is a link, belongs to somebody else, is open to others, lies on a network file system or makes too long
        a name.
    """
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise AgentRefused(
            f"{folder} is not a directory but a link or a file.", hint="Remove it, or set Settings.runtime_dir."
        )
    if info.st_uid != os.geteuid():
        raise AgentRefused(
            f"{folder} belongs to user {info.st_uid}, not to you.",
            hint="Somebody made it before you. Tell the administrator; set Settings.runtime_dir to a folder of yours.",
        )
    if info.st_mode & 0o077:
        raise AgentRefused(f"{folder} is open to others (mode {info.st_mode & 0o7777:o}).", hint=f"chmod 700 {folder}")
    kind = _network_file_system(info.st_dev, _mountinfo())
    if kind:
        raise AgentRefused(
            f"{folder} lies on a network file system ({kind}), which other machines see too.",
            hint="Set Settings.runtime_dir to a folder on a local disk.",
        )
    if len(os.fsencode(_place(folder).socket)) > _SUN_PATH_LIMIT:
        raise AgentRefused(
            f"{folder} makes too long a name for a socket (over {_SUN_PATH_LIMIT} bytes).",
            hint="Set Settings.runtime_dir to a shorter path.",
        )


def make_folder(folder: str) -> None:
    """Make the folder 0700 (and its parents) unless it is there, and check it either way; see :func:`check_folder`."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    check_folder(folder)


def places_to_look(settings: Settings) -> list[AgentLocation]:
    """Return the places that exist and can be trusted; a folder that the settings name must be one or be missing."""
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
        found.append(_place(folder))
    return found


def place_to_start(settings: Settings) -> AgentLocation:
    """Return the place for a new agent, its folder made.

    Raises
    ------
    AgentUnreachable
        No folder can be used; the message says why for each.
    AgentRefused
        The folder that the settings name cannot be trusted.
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
            return _place(folder)
    raise AgentUnreachable(
        "There is no folder for the agent's socket. " + " ".join(reasons),
        hint="Set Settings.runtime_dir to a folder of yours on a local disk.",
    )


def open_private(path: str, flags: int) -> int:
    """Open a regular file of ours, 0600 when new; never through a link, never somebody else's (OSError)."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
        os.close(fd)
        raise PermissionError(1, "not a file of ours", path)
    if info.st_mode & 0o077:
        os.fchmod(fd, 0o600)
    return fd


def write_private(path: str, data: bytes) -> None:
    """Write a 0600 file in one step."""
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    with open(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def read_private(path: str, limit: int = 65536) -> bytes:
    """Read a small file of ours (OSError when it is not there or not ours)."""
    with open(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read(limit)


def read_record(place: AgentLocation) -> dict[str, object] | None:
    """Return what the agent wrote about itself: pid, started, host, boot_id, version, api, hosting, port or null."""
    try:
        record = json.loads(read_private(place.record))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def is_stale(record: Mapping[str, object]) -> bool:
    """Tell whether the process of this record cannot be there any more: other machine, other boot, or a dead pid."""
    machine = this_machine()
    if record.get("host") != machine["host"] or record.get("boot_id") != machine["boot_id"]:
        return True
    pid = record.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # the pid went to somebody else
        return True
    return False


def log_path(settings: Settings) -> str:
    """Return the path of the log of a daemon on this machine; a home shared by several machines has several."""
    return settings.on_this_machine("agent", ".log")
