"""Move of a notebook to another kernel: the old kernel is used until the new one has started and has the variables."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from jupyter_core.utils import ensure_async
from tornado import web

from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError
from jupyter_slurm.server.notebook_moves.variables import CannotTravel, KernelGone, VariableTransfer

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import NotebookSession

__all__ = ["MoveTarget", "NotebookMove"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_CHECK_INTERVAL_S: Final = 2.0  # seconds between two checks whether the notebook is still open
_FIRST_COPY_TIMEOUT_S: Final = 10.0  # seconds in which a dialog learns that the variables cannot be sent
_OLD_KERNEL_TIMEOUT_S: Final = (
    600.0  # seconds for a cell of the old kernel, during which the GPUs of the new one are idle
)
_KEEP_TIMEOUT_S: Final = 30.0  # seconds for an idle kernel to keep its allocations
_RESTART_HINT: Final = "\nRestart the kernel to try again."  # appended to errors in cells of the notebook's kernel


class _Failed(Exception):
    """The notebook stays with its kernel; the message says why."""


@dataclass(frozen=True)
class MoveTarget:
    """The new kernel of a notebook, and the variables to transfer.

    Attributes
    ----------
    kernel, shown : str
        Name and displayed name of the kernelspec.
    names : sequence of str
        Variables to transfer.
    limit : int
        Maximum bytes of the variables.
    untrusted : str
        Cluster of the present kernel, if code from it must not run in the new kernel.
    keeps_allocations : bool
        Whether the allocations of the present kernel stay open for the next one.
    """

    kernel: str
    shown: str
    names: Sequence[str]
    limit: int
    untrusted: str = ""
    keeps_allocations: bool = True


class NotebookMove:
    """A move of one notebook.

    Parameters
    ----------
    sessions, kernels
        The managers of the Jupyter server.
    session : mapping
        Session of the notebook, as Jupyter's API describes it.
    target : MoveTarget
        The new kernel.

    Attributes
    ----------
    id, session : str
        Id of the move, and of the notebook's session.
    """

    def __init__(self, sessions: Any, kernels: Any, session: NotebookSession, target: MoveTarget) -> None:
        self.id, self.session = secrets.token_hex(8), str(session["id"])
        self._sessions, self._kernels = sessions, kernels
        self._path, self._old, self._new = str(session["path"]), str(session["kernel"]["id"]), ""
        self._kernel, self._display_name = target.kernel, target.shown
        self._names, self._limit, self._untrusted = list(target.names), target.limit, target.untrusted
        self._keeps_allocations = target.keeps_allocations
        self._state, self._text = "waiting", f"Requesting {target.shown} …"
        self._is_cancellable, self._is_copied = True, asyncio.Event()
        self._snapshots: list[IO[bytes]] = []
        self._work = asyncio.create_task(self._run(), name=f"move {self.id}")

    @property
    def is_over(self) -> bool:
        """Return whether the move has ended."""
        return self._state in ("done", "failed", "cancelled")

    def as_dict(self) -> dict[str, str | list[str]]:
        """Return the API object of the move."""
        told: dict[str, str | list[str]] = {
            "id": self.id,
            "notebook": self._path,
            "kernel": self._kernel,
            "in": list(self._names),
        }
        return {**told, "state": self._state, "text": printable(self._text)}

    async def check_copied(self) -> None:
        """Wait a moment for the first copy of the variables.

        Raises
        ------
        UsageError
            They cannot be sent: the notebook stays with its kernel, and nothing was requested from Slurm.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_COPY_TIMEOUT_S):
                await self._is_copied.wait()
        if self._state == "failed":
            raise UsageError(self._text, hint="Choose other variables.")

    async def cancel(self) -> None:
        """Cancel the move: keep the old kernel, and release the new one. A completed move stays."""
        if self._is_cancellable:
            self._is_cancellable = False
            self._work.cancel()
        await asyncio.wait((self._work,))

    # On the way -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            first = await self._run_while_open(self._copy_first()) if self._names else None
            self._is_copied.set()
            taken_at = time.strftime("%H:%M")
            await self._start()
            await self._run_while_open(self._start_kernel())
            snapshot, said, goes_on = await self._run_while_open(self._refresh_variables(first, taken_at))
            self._notify_cells("moving", f"{self._display_name} is ready.")
            came = await self._run_while_open(self._restore_variables(snapshot))
            self._is_cancellable = False
            kept = "" if goes_on or not self._keeps_allocations else await self._keep_allocations()
            await self._switch(keep_old=goes_on)
            self._notify_cells("done", sentences(f"The notebook now uses {self._display_name}", came, said, kept))
        except asyncio.CancelledError:
            await self._end("cancelled", "Cancelled: the notebook keeps its kernel.")
        except (_Failed, CannotTravel, KernelGone) as error:
            await self._end("failed", str(error).removesuffix(_RESTART_HINT))
        except Exception as error:  # noqa: BLE001  nobody sees a task's error, and the new kernel is to end
            _log.exception("jupyter_slurm: a notebook could not be moved")
            await self._end("failed", f"{type(error).__name__}: {error}")
        finally:
            self._is_copied.set()
            for snapshot in self._snapshots:
                snapshot.close()

    async def _run_while_open(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine while the notebook is open with its kernel."""
        doing = asyncio.ensure_future(work)
        try:
            while True:
                await asyncio.wait((doing,), timeout=_CHECK_INTERVAL_S)
                await self._check_open()
                if doing.done():
                    return doing.result()
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)

    async def _check_open(self) -> None:
        try:
            session = await self._sessions.get_session(session_id=self.session)
        except web.HTTPError:
            raise _Failed("The kernel of the notebook was shut down meanwhile.") from None
        if session["kernel"]["id"] != self._old:
            raise _Failed("The notebook was given another kernel meanwhile.")
        self._path = str(session["path"])

    async def _start(self) -> None:
        """Start the new kernel in the notebook's folder, with the path by which the kernel is found again."""
        session = await self._sessions.get_session(session_id=self.session)
        about = {name: session[name] for name in ("path", "name", "type")}
        starting = asyncio.ensure_future(
            ensure_async(self._sessions.start_kernel_for_session(self.session, kernel_name=self._kernel, **about))
        )
        try:
            self._new = str(await asyncio.shield(starting))
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):  # the move was cancelled already
                self._new = str(await starting)
            raise

    async def _start_kernel(self) -> None:
        """Wait for the start of the new kernel."""

        def told(text: str) -> None:
            self._notify_cells("waiting", text.strip().rpartition("\n")[2] or self._text)

        with self._visiting(self._new) as visitor:
            why = await visitor.wait_started(told)
        if why:
            raise _Failed(f"{self._display_name} has not started: {why.removesuffix(_RESTART_HINT)}")

    async def _keep_allocations(self) -> str:
        """Keep the allocations of the old kernel; return a message about them."""
        path = await self._session_name()
        try:
            with self._visiting(self._old) as visitor:
                async with asyncio.timeout(_KEEP_TIMEOUT_S):
                    kept = await visitor.keep_allocations(path)
        except KernelGone:
            return ""  # nothing can be kept, and the agent decides about what a killed kernel has left
        except TimeoutError:
            raise _Failed("Not moved: a cell runs again, so the allocations of the kernel cannot be kept.") from None
        except CannotTravel as error:
            raise _Failed(f"Not moved: the allocations of the kernel cannot be kept: {error}") from error
        if not kept:
            return ""
        with contextlib.suppress(KernelGone, CannotTravel, TimeoutError), self._visiting(self._new) as visitor:
            async with asyncio.timeout(_KEEP_TIMEOUT_S):
                await visitor.name_notebook(path)
        return f"Kept the {'allocation' if len(kept) == 1 else 'allocations'} {', '.join(kept)}"

    async def _session_name(self) -> str:
        """Return the path of the notebook as the server tells it to kernels."""
        session = await self._sessions.get_session(session_id=self.session)
        env = await ensure_async(self._sessions.get_kernel_env(session["path"], session["name"]))
        return str(env["JPY_SESSION_NAME"])

    async def _switch(self, *, keep_old: bool) -> None:
        """Connect the notebook to the new kernel; end the old one, unless a cell is running in it."""
        await self._sessions.update_session(self.session, kernel_id=self._new)
        if not keep_old:
            await self._shut_down(self._old)

    async def _end(self, state: str, text: str) -> None:
        """Cancel the move, and release the new kernel."""
        self._is_cancellable = False
        await self._shut_down(self._new)
        self._notify_cells(state, text)

    async def _shut_down(self, kernel: str) -> None:
        try:
            if kernel and kernel in self._kernels:
                await ensure_async(self._kernels.shutdown_kernel(kernel))
        except Exception:  # noqa: BLE001  what Jupyter cannot end ends by its lease
            _log.exception("jupyter_slurm: a kernel could not be shut down")

    # Variables --------------------------------------------------------------------------------------------------

    async def _copy_variables(self) -> IO[bytes]:
        """Take a snapshot of the variables when the old kernel is idle."""
        busy = f"{self._display_name} is ready" if self._new else ""
        names = ", ".join(self._names)

        def waits() -> None:
            self._notify_cells("waiting", sentences(busy, f"Waiting for the running cell, then sending {names}"))

        with self._visiting(self._old) as visitor:
            self._snapshots.append(
                await visitor.copy_snapshot(self._names, self._limit, untrusted=self._untrusted, waits=waits)
            )
        return self._snapshots[-1]

    async def _copy_first(self) -> IO[bytes]:
        try:
            return await self._copy_variables()
        except (CannotTravel, KernelGone) as error:
            raise _Failed(f"Not moved: {error}") from error

    async def _refresh_variables(self, first: IO[bytes] | None, copied_at: str) -> tuple[IO[bytes] | None, str, bool]:
        """Return the variables as of now, or a message about older ones, and whether a cell is still running."""
        try:
            async with asyncio.timeout(_OLD_KERNEL_TIMEOUT_S):
                if first is not None:
                    return await self._copy_variables(), "", False
                await self._wait_until_idle()
                return None, "", False
        except TimeoutError:
            said = "A cell still runs in the previous kernel, which keeps running without a notebook"
            return first, sentences(said, first and f"The variables are those of {copied_at}"), True
        except (CannotTravel, KernelGone) as error:
            return first, sentences(first and f"The variables are those of {copied_at}: {error}"), False

    async def _wait_until_idle(self) -> None:
        def waits() -> None:
            self._notify_cells("waiting", f"{self._display_name} is ready. Waiting for the running cell.")

        with self._visiting(self._old) as visitor:
            await visitor.idle(waits)

    async def _restore_variables(self, snapshot: IO[bytes] | None) -> str:
        """Send the variables to the new kernel; return a message about them."""
        if snapshot is None:
            return ""
        with self._visiting(self._new) as visitor:
            came = await visitor.restore(self._names, snapshot)
        if not came.names:
            raise _Failed(sentences("The new kernel can use none of the variables", *came.troubles))
        return sentences(f"Sent {', '.join(came.names)}", *came.troubles)

    @contextlib.contextmanager
    def _visiting(self, kernel: str) -> Iterator[VariableTransfer]:
        if kernel not in self._kernels:
            raise KernelGone("The kernel has ended.")
        visitor = VariableTransfer(self._kernels.get_kernel(kernel))
        try:
            yield visitor
        finally:
            visitor.leave()

    def _notify_cells(self, state: str, text: str) -> None:
        self._state, self._text = state, text
