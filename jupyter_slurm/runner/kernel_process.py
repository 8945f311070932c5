"""The kernel itself, for ``kernel.py``: which one is meant, its connection file, its process and what that prints.

Any kernel that takes a connection file will do. Its sockets lie in a folder of this user alone, on a disk of the node.
Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import runpy
import secrets
import shutil
import signal
import string
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

# The files of the runner are no package: each is read by its path.
beside = runpy.run_path(__file__[: -len("kernel_process.py")] + "beside.py")["beside"]
program: Any = beside("program")

CHANNELS = ("shell", "control", "stdin", "iopub", "hb")
_LONGEST = 90  # bytes of the path of a socket (unix(7) has room for 107)
_TAIL = 8000  # bytes of what it printed that are kept
_PIECE = 65_536
_KILLED_FIRST = "500"  # of /proc/PID/oom_score_adj: where memory runs out, the kernel goes and we can say so
_PYTHON = re.compile(r"python[0-9.]*")


class CannotStart(Exception):
    """There will be no kernel; the message and ``hint`` are for the person."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Spec(NamedTuple):
    """What starts a kernel."""

    argv: list[str]
    env: dict[str, str]
    is_asked_to_interrupt: bool = False  # by a message; else by a signal
    folder: str = ""


def places() -> list[str]:
    """Return the folders in which this node has kernelspecs, as Jupyter looks for them."""
    env = os.environ.get
    own = env("JUPYTER_DATA_DIR") or os.path.join(
        env("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "jupyter"
    )
    tops = [one for one in env("JUPYTER_PATH", "").split(os.pathsep) if one]
    mine = [os.path.join(sys.prefix, "share", "jupyter")]
    tops += [*mine, own] if sys.prefix != sys.base_prefix or env("CONDA_PREFIX") else [own, *mine]
    tops += ["/usr/local/share/jupyter", "/usr/share/jupyter"]
    return list(dict.fromkeys(os.path.join(top, "kernels") for top in tops))


def find(asked: dict[str, Any]) -> Spec:
    """Return the kernel that is meant: ``argv``, else the kernelspec called ``name``, else ipykernel of this Python."""
    if asked.get("argv"):
        return Spec(list(asked["argv"]), {}, is_asked_to_interrupt=asked.get("interrupt_mode") == "message")
    if asked.get("name"):
        return _named(str(asked["name"]))
    for module in ("ipykernel_launcher", "ipykernel"):
        with contextlib.suppress(ImportError, ValueError):
            if importlib.util.find_spec(module) is not None:
                options = ["-Xfrozen_modules=off"] if sys.version_info >= (3, 11) else []  # for its debugger
                return Spec([sys.executable, *options, "-m", module, "-f", "{connection_file}"], {})
    raise CannotStart(
        f"{sys.executable} on {program.node_name()} has no ipykernel.",
        f"Install it there ({sys.executable} -m pip install ipykernel), or name another Python, environment or image.",
    )


def _named(name: str) -> Spec:
    known: dict[str, str] = {}
    for place in places():
        with contextlib.suppress(OSError):
            for one in os.listdir(place):
                if os.path.exists(os.path.join(place, one, "kernel.json")):
                    known.setdefault(one.lower(), os.path.join(place, one))
    folder = known.get(name.lower())
    if folder is None:
        there = f"It has {', '.join(sorted(known))}." if known else "It has none."
        raise CannotStart(f"{program.node_name()} has no kernel {name}.", there)
    try:
        with open(os.path.join(folder, "kernel.json"), encoding="utf-8") as file:
            told = json.load(file)
        argv, env = [str(word) for word in told["argv"]], told.get("env") or {}
        if _PYTHON.fullmatch(argv[0]):
            argv[0] = sys.executable
        is_asked = told.get("interrupt_mode") == "message"
        return Spec(argv, {str(k): str(v) for k, v in env.items()}, is_asked, folder)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CannotStart(f"{folder}/kernel.json cannot be read: {error}.") from None


def make_folder() -> str:
    """Make a folder for sockets: of this user alone, on a disk of the node, with a short path."""
    for place in (os.environ.get("TMPDIR"), tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108 - mkdtemp is safe
        with contextlib.suppress(OSError):
            if place and len(os.fsencode(place)) < _LONGEST - 30:
                return tempfile.mkdtemp(prefix="kernel-", dir=place)
    raise CannotStart(f"{program.node_name()} has no folder for sockets.", "Neither /tmp nor /dev/shm can be written.")


class Kernel:
    """One kernel, from its start to its end.

    Parameters
    ----------
    asked : dict
        ``kernel.json`` of the job directory.
    """

    def __init__(self, asked: dict[str, Any]) -> None:
        self.spec = find(asked)
        self.key = secrets.token_hex(32).encode("ascii")
        self.folder = make_folder()
        self._asked, self._tail = asked, b""
        self.process: Any = None
        self.output = -1  # a file descriptor: what it prints past its channels

    def path(self, channel: str) -> str:
        """Return where a socket of the kernel lies; some kernels write it with a colon."""
        number = CHANNELS.index(channel) + 1
        names = [os.path.join(self.folder, f"k{mark}{number}") for mark in "-:"]
        return next((name for name in names if os.path.exists(name)), names[0])

    def start(self) -> None:
        """Start it; CannotStart."""
        path = os.path.join(self.folder, "connection.json")
        told: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        told.update(transport="ipc", ip=os.path.join(self.folder, "k"), key=self.key.decode("ascii"))
        told.update(signature_scheme="hmac-sha256", kernel_name=self._asked.get("name") or "python3")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(told, file)
        known = {"{connection_file}": path, "{resource_dir}": self.spec.folder, "{prefix}": sys.prefix}
        argv = [self._with(word, known) for word in self.spec.argv]
        self.output, write = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                cwd=self._cwd(),
                env=self._environment(),
                start_new_session=True,  # a group of its own, to be interrupted with all that it started
                preexec_fn=program.dying_with_us(signal.SIGKILL),
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise CannotStart(f"{argv[0]} cannot be run on {program.node_name()}: {why}.") from None
        finally:
            os.close(write)
        with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/oom_score_adj", "w") as file:
            file.write(_KILLED_FIRST)

    @staticmethod
    def _with(word: str, known: dict[str, str]) -> str:
        for name, value in known.items():
            word = word.replace(name, value)
        return word

    def _cwd(self) -> str | None:
        cwd = self._asked.get("cwd")
        if cwd and not os.path.isdir(os.path.expanduser(cwd)):
            sys.stderr.write(f"{program.node_name()} has no folder {cwd}: the kernel begins in {os.getcwd()}\n")
            return None
        return os.path.expanduser(cwd) if cwd else None

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, **(self._asked.get("env") or {})}
        env.update({name: string.Template(value).safe_substitute(env) for name, value in self.spec.env.items()})
        env["JPY_PARENT_PID"] = str(os.getpid())
        return env

    def hear(self) -> bool:
        """Pass on what it printed past its channels; False: it will print nothing more."""
        while True:
            try:
                data = os.read(self.output, _PIECE)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._tail = (self._tail + data)[-_TAIL:]
            with contextlib.suppress(OSError):  # a full disk is no reason to end
                os.write(2, data)

    @property
    def tail(self) -> str:
        """The last of what it printed past its channels."""
        return self._tail.decode("utf-8", "replace")

    def interrupt(self) -> None:
        """Interrupt it as a terminal does, with what it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGINT)

    def kill(self, number: int) -> None:
        """Send a signal to it and to what it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, number)

    def clear(self) -> None:
        """End what is left of it, and remove its folder."""
        if self.process is not None:
            left = program.family(self.process.pid) if self.process.poll() is None else {}
            self.kill(signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        shutil.rmtree(self.folder, ignore_errors=True)
