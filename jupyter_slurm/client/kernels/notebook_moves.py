"""Notebooks open in a Jupyter server of this machine, and their moves to another kernel, which the server performs.

The server is found by its runtime file, which only its owner can read. The token in it appears in no command line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import httpx

from jupyter_slurm.errors import JobError, JobNotFound, SlurmError, TransportError, UsageError, from_problem

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import NotebookSession

__all__ = ["Move", "MoveRequest", "Notebook", "allocation_note", "find", "find_notebook", "parse_move_line"]

_MOVES_PATH: Final = "jupyter-slurm/api/server/moves"
_VARIABLES_PATH: Final = "jupyter-slurm/api/server/variables"
_ANSWER_TIMEOUT_S: Final = 30.0  # seconds
_CHECK_INTERVAL_S: Final = 1.0
_FINAL_STATES: Final = ("done", "failed", "cancelled")
_USAGE: Final = {
    "switch": "switch KERNEL [in=x,y] [release], with a name of `jupyter slurm kernel list`",
    "follow": "follow [in=x,y] [release]",
}


@dataclass(frozen=True)
class MoveRequest:
    """Request to move a notebook.

    Attributes
    ----------
    kernel : str or None
        Name or displayed name of a kernelspec; None: the same kernelspec in another allocation.
    names : tuple of str
        Variables to transfer.
    keep : bool
        Whether the allocations of the present kernel stay open for the next one.
    """

    kernel: str | None
    names: tuple[str, ...]
    keep: bool = True


def parse_move_line(act: str, arguments: Sequence[str]) -> MoveRequest:
    """Return the parsed request of ``switch`` or ``follow``.

    Raises
    ------
    UsageError
        The line has another form.
    """
    names = [name for word in arguments if word.startswith("in=") for name in word[3:].split(",") if name]
    keep = "release" not in arguments
    rest = [word for word in arguments if not word.startswith("in=") and word != "release"]
    if act == "switch" and len(rest) != 1 and any(word.startswith("-") or "=" in word for word in rest):
        raise UsageError(
            f"Options of Slurm belong to a kernel: {' '.join(rest)}.",
            hint="Add a kernel with `jupyter slurm kernel add …`, and use its name.",
        )
    if len(rest) != (act == "switch"):
        said = " ".join(rest) or "nothing"
        raise UsageError(
            f"{act} takes {'one kernel' if act == 'switch' else 'no kernel'}, not {said}.", hint=_USAGE[act]
        )
    return MoveRequest(rest[0] if rest else None, tuple(dict.fromkeys(names)), keep)


def allocation_note(allocations: Sequence[str], *, keep: bool) -> str:
    """Return what becomes of the allocations of a kernel with a move, in a sentence; empty for no allocations."""
    if not allocations:
        return ""
    which = f"{'allocation' if len(allocations) == 1 else 'allocations'} {', '.join(allocations)}"
    if keep:
        return f"The move keeps the {which} for the next kernel of the notebook. Add `release` to release instead."
    return f"The move ends the present kernel, and releases its {which}."


class _Server:
    """A Jupyter server of this user on this machine; ``info`` is the content of its runtime file."""

    def __init__(self, info: Mapping[str, object]) -> None:
        self.url, self.root, self.pid = str(info["url"]), str(info.get("root_dir") or ""), int(str(info["pid"]))
        # Under JupyterHub the server has no token of its own. It accepts the token given to it for its kernels.
        token = str(info.get("token") or os.environ.get("JUPYTERHUB_API_TOKEN") or "")
        socket = str(info.get("sock") or "")
        self._base = f"http://localhost{info['base_url']}" if socket else self.url
        self._transport = httpx.HTTPTransport(uds=socket) if socket else None
        self._headers = {"Authorization": f"token {token}"} if token else {}

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the server and return its answer.

        Raises
        ------
        SlurmError
            The server does not answer, or answers with an error.
        """
        with httpx.Client(transport=self._transport, headers=self._headers, timeout=_ANSWER_TIMEOUT_S) as client:
            try:
                answer = client.request(method, self._base + path, json=body)
            except httpx.HTTPError as error:
                raise TransportError(
                    f"The Jupyter server at {self.url} does not answer: {error}.",
                    hint="Check that it is running: `jupyter server list`.",
                ) from error
        if answer.status_code == httpx.codes.FORBIDDEN:
            raise SlurmError(
                f"The Jupyter server at {self.url} requires a login.",
                hint="Use its JupyterLab instead: “Move Notebook to a GPU Kernel…”.",
            )
        try:
            told = answer.json()
        except ValueError:
            told = {}
        if answer.is_success:
            return told
        if isinstance(told, dict) and "detail" in told:
            raise from_problem(told)
        raise SlurmError(
            f"The Jupyter server at {self.url} cannot move notebooks (status {answer.status_code}).",
            hint="Check that the extension jupyter_slurm is enabled: `jupyter server extension list`.",
        )


@dataclass(frozen=True)
class Notebook:
    """An open notebook.

    Attributes
    ----------
    path : str
        Path below the root folder of its server.
    """

    path: str
    _server: _Server

    @property
    def file(self) -> str:
        """Return the path of the notebook file."""
        return os.path.join(os.path.expanduser(self._server.root), self.path)

    def move(self, to: MoveRequest) -> Move:
        """Move the notebook to another kernel.

        Raises
        ------
        SlurmError
            The notebook cannot move.
        """
        asked: dict[str, str | bool | list[str]] = {"notebook": self.path, "in": list(to.names), "keep": to.keep}
        if to.kernel is not None:
            asked["kernel"] = to.kernel
        return Move(self._server, self._server.request("POST", _MOVES_PATH, asked))

    @property
    def ending_allocations(self) -> list[str]:
        """Return the names of the allocations that end with its kernel, as far as known: not while a cell runs."""
        told = self._server.request("POST", _VARIABLES_PATH, {"notebook": self.path})["survey"]
        return [] if told is None else [str(name) for name in told["allocations"]]

    @property
    def moves(self) -> list[Move]:
        """Return the moves of the notebook, the latest at the end."""
        told = self._server.request("GET", _MOVES_PATH)["moves"]
        return [Move(self._server, one) for one in told if one["notebook"] == self.path]


class Move:
    """A move of a notebook."""

    def __init__(self, server: _Server, text: Mapping[str, object]) -> None:
        self._server, self._data = server, text

    @property
    def is_over(self) -> bool:
        """Return whether the move has ended."""
        return self._data["state"] in _FINAL_STATES

    @property
    def state(self) -> str:
        """Return ``waiting``, ``moving``, ``done``, ``failed`` or ``cancelled``."""
        return str(self._data["state"])

    @property
    def text(self) -> str:
        """Return the description of the move."""
        return str(self._data["text"])

    def wait(self, notify: Callable[[str], None]) -> None:
        """Wait for the end of the move; print each new description.

        Raises
        ------
        JobError
            The notebook stays with its kernel.
        """
        said = ""
        while True:
            if self.state != "failed" and self.text != said:
                said = self.text
                notify(said)
            if self.is_over:
                break
            time.sleep(_CHECK_INTERVAL_S)
            self._data = self._server.request("GET", self._path)
        if self.state != "done":
            raise JobError(
                self.text if self.state == "failed" else "The move was cancelled by another process.",
                hint="Move the notebook again.",
            )

    def cancel(self) -> None:
        """Cancel the move: the notebook stays with its kernel."""
        self._data = self._server.request("DELETE", self._path)

    @property
    def _path(self) -> str:
        return f"{_MOVES_PATH}/{quote(str(self._data['id']), safe='')}"


def find(name: str) -> Notebook:
    """Return the intended notebook: a file, or the end of the path of an open notebook.

    Raises
    ------
    JobNotFound
        No such notebook is open.
    UsageError
        Several such notebooks are open.
    """
    known = [notebook for notebook, _ in _open()]
    found = [one for one in known if os.path.realpath(one.file) == os.path.realpath(name)]
    found = found or [one for one in known if _ends_with(one.path, name)]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(f"{one.path} at {one._server.url}" for one in found)
        raise UsageError(
            f"{name} is open more than once: {places}.", hint="Give a longer part of its path, or close the others."
        )
    names = ", ".join(sorted({one.path for one in known}))
    raise JobNotFound(
        f"None of your Jupyter servers on this computer has the notebook {name} open.",
        hint=f"Open notebooks: {names}." if names else "Open it in JupyterLab, and run a cell.",
    )


def find_notebook(kernel: str) -> Notebook:
    """Return the notebook of a kernel id.

    Raises
    ------
    JobNotFound
        No Jupyter server has started the kernel.
    """
    found = next((notebook for notebook, session in _open() if session["kernel"]["id"] == kernel), None)
    if found is None:
        raise JobNotFound(
            "No Jupyter server on this computer has this notebook open, so it cannot be moved to another kernel.",
            hint="In a console or in VS Code, choose the kernel in its menu. `jupyter slurm kernel list` lists names.",
        )
    return found


def _open() -> Iterator[tuple[Notebook, NotebookSession]]:
    """Return the open notebooks with their sessions. A server that refuses access belongs to another user."""
    from jupyter_server.serverapp import list_running_servers  # takes half a second

    servers = [_Server(info) for info in list_running_servers()]
    refused: SlurmError | None = None
    is_any = False
    for server in servers:
        try:
            sessions = server.request("GET", "api/sessions")
        except SlurmError as error:
            refused = refused or error
            continue
        is_any = True
        for session in sessions:
            if session.get("kernel"):
                yield Notebook(str(session["path"]), server), session
    if refused is not None and not is_any:
        raise refused


def _ends_with(path: str, name: str) -> bool:
    parts, end = PurePosixPath(path).parts, PurePosixPath(name).parts
    return bool(end) and parts[-len(end) :] == end
