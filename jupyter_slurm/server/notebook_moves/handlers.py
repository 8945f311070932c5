"""API of moves: an open notebook moves to another kernel, with variables."""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from tornado import web
from traitlets.config import Config

from jupyter_slurm.agent.api.schema import Operation
from jupyter_slurm.client.trust import is_trusted
from jupyter_slurm.config import Settings, load_settings
from jupyter_slurm.errors import JobError, JobNotFound, SlurmError, UsageError
from jupyter_slurm.server.notebook_moves.move import MoveTarget, NotebookMove
from jupyter_slurm.server.notebook_moves.variables import CannotTravel, KernelGone, KernelSurvey, VariableTransfer
from jupyter_slurm.server.problem_handler import ProblemHandler

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import Kernelspec, NotebookSession

__all__ = ["HANDLERS", "NotebookMoves"]

_TEXT_SCHEMA: Final = {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": "^[^\\x00-\\x1f\\x7f]*$"}
_MOVE_NOTEBOOK: Final = Operation(
    "moveNotebook",
    "POST",
    "/moves",
    parameters=(),
    body_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["notebook"],
        "properties": {
            "notebook": _TEXT_SCHEMA,
            "kernel": _TEXT_SCHEMA,
            "in": {"type": "array", "maxItems": 256, "items": _TEXT_SCHEMA},
            "keep": {"type": "boolean"},  # whether the allocations of the present kernel stay open; by default yes
            "check": {"type": "boolean"},  # whether to answer only when the variables were copied once
        },
    },
    needs_body=True,
    schemas={},
)
_SURVEY: Final = Operation(
    "surveyVariables",
    "POST",
    "/variables",
    parameters=(),
    body_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["notebook"],
        "properties": {"notebook": _TEXT_SCHEMA, "kernel": _TEXT_SCHEMA},
    },
    needs_body=True,
    schemas={},
)
_NO_VARIABLES: Final = "Variables can be sent only between Python kernels, and {} is another language."
_SURVEY_TIMEOUT_S: Final = 8.0  # seconds; the answer is due after 3 s, unless a cell runs
_MAX_FINISHED_MOVES: Final = 50  # finished moves
_NO_PYTHON: Final = ("r", "julia")  # other remote kernels may be Python under another name


class NotebookMoves:
    """The active and finished moves of a Jupyter server's notebooks.

    Parameters
    ----------
    sessions, kernels, specs
        The managers of the server.
    config : traitlets Config
        Configuration of the server.
    """

    def __init__(self, sessions: Any, kernels: Any, specs: Any, config: Config) -> None:
        self._sessions, self._kernels, self._specs, self._config = sessions, kernels, specs, config
        self._moves: dict[str, NotebookMove] = {}

    async def start_move(
        self, notebook: str, kernel: str | None, names: Sequence[str], *, keep: bool = True
    ) -> NotebookMove:
        """Start the move of a notebook.

        Parameters
        ----------
        notebook : str
            Path of the notebook, below the root folder of the server.
        kernel : str or None
            Name or displayed name of a kernelspec; None: the same kernelspec in another allocation.
        names : sequence of str
            Variables to transfer.
        keep : bool
            Whether the allocations of the present kernel stay open for the next one.

        Raises
        ------
        JobNotFound
            No such notebook is open, or no such kernelspec exists.
        JobError
            The notebook is moving already.
        UsageError
            The move is not possible.
        """
        session = await self._session(notebook.strip("/"))
        specs = {name: told["spec"] for name, told in (await ensure_async(self._specs.get_all_specs())).items()}
        now = specs.get(session["kernel"]["name"], {})
        chosen = _followed(session["kernel"]["name"], now) if kernel is None else _find_kernelspec(kernel, specs)
        _check(names, now, specs[chosen])
        settings = await asyncio.to_thread(load_settings, self._config)
        untrusted = await asyncio.to_thread(self._untrusted, session["kernel"]["id"], now, specs[chosen], settings)
        if any(one.session == session["id"] and not one.is_over for one in self._moves.values()):
            raise JobError(
                f"{notebook} is already moving to another kernel.",
                hint="Cancel that move first: `%slurm kernel cancel`.",
            )
        shown = str(specs[chosen].get("display_name") or chosen)
        untrusted = untrusted if names else ""
        target = MoveTarget(chosen, shown, names, settings.values_limit, untrusted, keeps_allocations=keep)
        move = NotebookMove(self._sessions, self._kernels, session, target)
        self._moves[move.id] = move
        for old in [one.id for one in self._moves.values() if one.is_over][:-_MAX_FINISHED_MOVES]:
            del self._moves[old]
        return move

    async def survey(self, notebook: str, kernel: str | None) -> KernelSurvey | None:
        """Return what a move of a notebook can send, and what ends with its kernel; None: a cell runs.

        Raises
        ------
        JobNotFound
            No such notebook is open, or no such kernelspec exists.
        UsageError
            The kernel cannot be asked.
        """
        session = await self._session(notebook.strip("/"))
        specs = {name: told["spec"] for name, told in (await ensure_async(self._specs.get_all_specs())).items()}
        now = specs.get(session["kernel"]["name"], {})
        target = now if kernel is None else specs[_find_kernelspec(kernel, specs)]
        if other := next((spec for spec in (now, target) if spec and not _is_python(spec)), None):
            return KernelSurvey([], trouble=_NO_VARIABLES.format(other["display_name"]))
        settings = await asyncio.to_thread(load_settings, self._config)
        untrusted = await asyncio.to_thread(self._untrusted, session["kernel"]["id"], now, target, settings)
        if session["kernel"]["id"] not in self._kernels:
            raise JobNotFound("The kernel of the notebook has ended.", hint="Restart it, and run a cell.")
        visitor = VariableTransfer(self._kernels.get_kernel(session["kernel"]["id"]))
        try:
            async with asyncio.timeout(_SURVEY_TIMEOUT_S):
                return await visitor.survey(settings.values_limit, untrusted=bool(untrusted))
        except TimeoutError:
            return None
        except (CannotTravel, KernelGone) as error:
            return KernelSurvey([], trouble=str(error))
        finally:
            visitor.leave()

    def _untrusted(self, kernel: str, spec: Kernelspec, chosen: Kernelspec, settings: Settings) -> str:
        """Return the cluster of a kernel if code from it must not run in the chosen kernel."""
        manager = self._kernels.get_kernel(kernel) if kernel in self._kernels else None
        # The kernel can be older than its kernelspec, which may name another cluster now.
        place = getattr(getattr(manager, "provisioner", None), "slurm_place", None)
        if place is None and not _is_own_kernel(spec):
            return ""
        source = str(place["cluster"]) if place else _cluster_of(spec, settings)
        is_same = _is_own_kernel(chosen) and source == _cluster_of(chosen, settings)
        return "" if is_same or is_trusted(source, settings) else source

    def find(self, key: str) -> NotebookMove:
        """Return a move; JobNotFound."""
        if key not in self._moves:
            raise JobNotFound(f"There is no move {key!r}.", hint="Move the notebook again.")
        return self._moves[key]

    def listed(self) -> list[NotebookMove]:
        """Return all known moves."""
        return list(self._moves.values())

    async def close(self) -> None:
        """Cancel the active moves: after the end of the server, nothing would connect a notebook to its kernel."""
        await asyncio.gather(*(move.cancel() for move in self._moves.values()))

    async def _session(self, notebook: str) -> NotebookSession:
        for session in await ensure_async(self._sessions.list_sessions()):
            if session["path"].strip("/") == notebook and session.get("kernel"):
                found: NotebookSession = session
                return found
        raise JobNotFound(
            f"This Jupyter server has no open notebook {notebook!r} with a kernel.", hint="Open it, and run a cell."
        )


def _find_kernelspec(kernel: str, specs: Mapping[str, Kernelspec]) -> str:
    """Return the name of a kernelspec from its name or displayed name."""
    names = [name for name, spec in specs.items() if kernel in (name, spec.get("display_name"))]
    if not names:
        raise JobNotFound(
            f"There is no kernel {kernel!r}.",
            hint=f"Use one of {', '.join(sorted(specs))}, or add one with `jupyter slurm kernel add`.",
        )
    return kernel if kernel in names else names[0]


def _followed(name: str, spec: Kernelspec) -> str:
    """Return the kernelspec for a new allocation."""
    if not _is_own_kernel(spec):
        raise UsageError(
            "The kernel of this notebook does not run on a node, so it has no allocation that another one can follow.",
            hint="Move the notebook to a remote kernel: `jupyter slurm kernel list`.",
        )
    if word := next((word for word in spec["argv"] if word.startswith("on=")), ""):
        raise UsageError(
            f"This kernel runs in an allocation that it did not request ({word}), so no other allocation can follow.",
            hint="Request another allocation with %salloc, or move to another kernel.",
        )
    return name


def _check(names: Sequence[str], *specs: Kernelspec) -> None:
    if wrong := next((name for name in names if not name.isidentifier()), None):
        raise UsageError(f"{wrong!r} is not a variable name.", hint="Use for example in=x,model.")
    if other := next((spec for spec in specs if names and spec and not _is_python(spec)), None):
        raise UsageError(
            _NO_VARIABLES.format(other["display_name"]),
            hint="Move without variables.",
        )


def _is_own_kernel(spec: Kernelspec) -> bool:
    from jupyter_slurm.client.kernels.kernelspecs import PROVISIONER  # not at the start of the server

    provisioner = (spec.get("metadata") or {}).get("kernel_provisioner") or {}
    return bool(provisioner.get("provisioner_name") == PROVISIONER)


def _cluster_of(spec: Kernelspec, settings: Settings) -> str:
    """Return the cluster of a remote kernel."""
    from jupyter_slurm.client.sessions.launch import named_in

    words = spec["argv"][spec["argv"].index("{connection_file}") + 1 :]
    return named_in(shlex.join(words))[0] or settings.cluster or "local"


def _is_python(spec: Kernelspec) -> bool:
    language = str(spec.get("language")).lower()
    return language == "python" or (_is_own_kernel(spec) and language not in _NO_PYTHON)


class _MoveHandler(ProblemHandler):
    """Base of these handlers."""

    def initialize(self, moves: NotebookMoves) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._moves = moves
        self._track_activity = self.request.method not in ("GET", "HEAD")  # a polling tab is not user activity


class MovesHandler(_MoveHandler):
    """The moves of notebooks."""

    @web.authenticated
    @authorized("read")
    async def get(self) -> None:
        """List the active and finished moves."""
        self.finish(json.dumps({"moves": [move.as_dict() for move in self._moves.listed()]}))

    @web.authenticated
    @authorized("write")
    @authorized("write", resource="sessions")
    @authorized("execute", resource="kernels")
    async def post(self) -> None:
        """Start a move."""
        try:
            asked = _MOVE_NOTEBOOK.read_body(self.request.body)
            names = list(dict.fromkeys(asked.get("in", ())))
            move = await self._moves.start_move(
                asked["notebook"], asked.get("kernel"), names, keep=asked.get("keep", True)
            )
            if asked.get("check"):
                await move.check_copied()
        except SlurmError as error:
            self.send_problem(error)
            return
        self.set_status(201)
        self.finish(json.dumps(move.as_dict()))


class VariablesHandler(_MoveHandler):
    """The variables that a move of a notebook can send."""

    @web.authenticated
    @authorized("write", resource="sessions")
    @authorized("execute", resource="kernels")
    async def post(self) -> None:
        """List the variables, for which the kernel is asked; null while a cell runs."""
        try:
            asked = _SURVEY.read_body(self.request.body)
            found = await self._moves.survey(asked["notebook"], asked.get("kernel"))
        except SlurmError as error:
            self.send_problem(error)
            return
        self.finish(json.dumps({"survey": None if found is None else asdict(found)}))


class MoveHandler(_MoveHandler):
    """A move of a notebook."""

    @web.authenticated
    @authorized("read")
    async def get(self, key: str) -> None:
        """Return the state of the move."""
        self._send_move(key)

    @web.authenticated
    @authorized("write")
    @authorized("write", resource="sessions")
    async def delete(self, key: str) -> None:
        """Cancel the move; return its state."""
        if key in {move.id for move in self._moves.listed()}:
            await self._moves.find(key).cancel()
        self._send_move(key)

    def _send_move(self, key: str) -> None:
        try:
            self.finish(json.dumps(self._moves.find(key).as_dict()))
        except SlurmError as error:
            self.send_problem(error)


HANDLERS: Final = [
    (r"jupyter-slurm/api/server/moves", MovesHandler),
    (r"jupyter-slurm/api/server/variables", VariablesHandler),
    (r"jupyter-slurm/api/server/moves/([0-9a-f]{16})", MoveHandler),
]
"""The addresses of the handlers, below that of the server."""
