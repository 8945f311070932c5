"""Transfer of variables between two kernels of this server, which never unpickles them.

Variables of a cluster without the user's trust have to be in the safe form, in which no part can run code.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import queue
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import IO, TYPE_CHECKING, Any, Final, TypedDict

from jupyter_slurm.client.trust import HOW_TO_TRUST
from jupyter_slurm.runner.variables import values_file as file_of
from jupyter_slurm.runner.variables.transit import TYPE

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart

__all__ = ["CannotTravel", "KernelGone", "KernelSurvey", "ReceivedVariables", "Variable", "VariableTransfer"]

_CHUNK_BYTES: Final = 4 << 20  # bytes of a message, before base64 adds a third
_MAX_MEMORY_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 1 << 20  # bytes for the table of contents of a snapshot
_CHECK_INTERVAL_S: Final = 2.0  # seconds between two checks whether a silent kernel is still the same
_PARTS: Final = ("safe_form", "values_file", "definitions", "packing", "transit")
_UNFOLD: Final = """
import sys, types
package = types.ModuleType(name)
package.__path__ = []
sys.modules[name] = package
for part, text in parts.items():
    module = types.ModuleType(name + "." + part)
    module.__package__ = name
    sys.modules[name + "." + part] = module
    setattr(package, part, module)
    if not (part == "packing" and sys.version_info < (3, 9)):
        exec(compile(text, "<" + name + "." + part + ">", "exec"), module.__dict__)
"""


class KernelGone(Exception):
    """A kernel does not answer any more, or was replaced."""


class CannotTravel(Exception):
    """A variable cannot be transferred."""


@dataclass(frozen=True)
class ReceivedVariables:
    """Result of a transfer to a kernel: the received names, and the reasons why others are missing."""

    names: Sequence[str]
    troubles: Sequence[str]


class Variable(TypedDict):
    """A variable of a kernel: its size as it would be sent, and why it cannot be sent."""

    name: str
    type: str
    size: int | None
    why: str


@dataclass(frozen=True)
class KernelSurvey:
    """Variables that can be sent from a kernel, and the allocations that end with it.

    Attributes
    ----------
    variables : sequence
        The variables of the user.
    left : int
        Number of variables that are not listed.
    trouble : str
        Why nothing can be sent; empty otherwise.
    allocations : sequence of str
        Names of the allocations that end with the kernel.
    """

    variables: Sequence[Variable]
    left: int = 0
    trouble: str = ""
    allocations: Sequence[str] = ()


class VariableTransfer:
    """Client of a kernel that leaves no trace in its history and its variables.

    Parameters
    ----------
    manager : AsyncKernelManager
        Manager of the kernel.
    """

    def __init__(self, manager: Any) -> None:
        # Uses the context of the server's own sockets: ending a separate context would block the server's loop.
        self._manager, self._client = manager, manager.client(context=manager.context)
        self._client.start_channels(stdin=False, hb=False, control=False, iopub=False)

    def leave(self) -> None:
        """Close the connections."""
        self._client.stop_channels()

    async def wait_started(self, notify: Callable[[str], None]) -> str:
        """Wait for the start of the kernel; return why it cannot start, else nothing.

        Parameters
        ----------
        notify : callable
            Receives the cause of the wait, as a cell would show it.
        """
        # iopub is read only at this point: otherwise the output of cells would pile up in this process.
        self._client.start_channels(shell=False, stdin=False, hb=False, control=False)
        await self._reply(self._client.kernel_info)
        request = ""

        def ask() -> str:
            nonlocal request
            # Not silent: a kernel proxy shows the cause of a wait only under a cell that would show it.
            request = str(self._client.execute("", store_history=False, allow_stdin=False))
            return request

        hearing = asyncio.create_task(self._receive(lambda: request, notify))
        try:
            reply = await self._reply(ask)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
        return "" if reply.get("status") == "ok" else str(reply.get("evalue") or "The kernel has not started.")

    async def idle(self, waits: Callable[[], None]) -> None:
        """Wait until the kernel is idle; see :meth:`copy_snapshot`."""
        await self._evaluated({}, waits)

    async def survey(self, limit: int, *, untrusted: bool) -> KernelSurvey:
        """Return what can be sent from the kernel, when it is idle; the parameters are those of a snapshot."""
        told = await self._call(f"survey(globals(), {limit}, {untrusted})")
        found = [one for one in told.get("variables", ()) if isinstance(one, dict)]
        return KernelSurvey(
            [
                {
                    "name": str(one.get("name")),
                    "type": str(one.get("type")),
                    "size": size if isinstance(size := one.get("size"), int) else None,
                    "why": str(one.get("why") or ""),
                }
                for one in found
                if str(one.get("name")).isidentifier()
            ],
            int(told.get("left") or 0),
            str(told.get("trouble") or ""),
            [str(one) for one in told.get("allocations", ())],
        )

    async def keep_allocations(self, notebook: str) -> Sequence[str]:
        """Keep the allocations of the kernel for the next kernel of a notebook; return their names.

        Raises
        ------
        CannotTravel
            An allocation is not kept; the message says why.
        KernelGone
            The kernel has ended, or was restarted.
        """
        told = await self._call(f"keep_allocations({notebook!r})")
        if told.get("trouble"):
            raise CannotTravel(str(told["trouble"]))
        return [str(one) for one in told.get("kept", ())]

    async def name_notebook(self, notebook: str) -> None:
        """Tell the kernel its notebook, if it does not know it."""
        await self._call(f"name_notebook({notebook!r})")

    async def copy_snapshot(
        self, names: Sequence[str], limit: int, *, untrusted: str = "", waits: Callable[[], None] = lambda: None
    ) -> IO[bytes]:
        """Return a snapshot of variables.

        Parameters
        ----------
        names : sequence of str
            Variables to transfer.
        limit : int
            Maximum bytes.
        untrusted : str
            Cluster of the kernel, if code from it must not run in the other kernel.
        waits : callable
            Called while the kernel is busy.

        Raises
        ------
        CannotTravel
            Some variables cannot be transferred; the message names each.
        KernelGone
            The kernel has ended, or was restarted.
        """
        told = await self._call(f"take({list(names)!r}, globals(), {limit}, {bool(untrusted)})", waits)
        if "trouble" in told:
            raise CannotTravel(str(told["trouble"]))
        size = int(told["size"])
        if not 0 <= size <= 2 * limit + _HEADER_BYTES:
            raise CannotTravel(f"The variables have {size} bytes; at most {limit} are allowed.")
        with contextlib.ExitStack() as opened:
            opened.callback(self._release_snapshot)
            snapshot = opened.enter_context(tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES))
            while (done := snapshot.tell()) < size:
                end = min(done + _CHUNK_BYTES, size)
                data = base64.b64decode((await self._call(f"piece({done}, {end})", waits))["data"])
                if not 0 < len(data) <= end - done:
                    raise KernelGone("The kernel no longer has the variables.")
                snapshot.write(data)
            await self._call("drop()", waits)
            if untrusted:
                _check_without_code(snapshot, names, untrusted)
            opened.pop_all()  # the receiver releases it
        return snapshot

    def _release_snapshot(self) -> None:
        """Request the release of the kernel's snapshot, without a wait for the answer."""
        self._execute(_expressions("drop()"))

    async def restore(self, names: Sequence[str], snapshot: IO[bytes]) -> ReceivedVariables:
        """Load a snapshot into the variables of the kernel."""
        snapshot.seek(0)
        start = 0
        while part := snapshot.read(_CHUNK_BYTES):
            await self._call(f'store_part({start}, "{base64.b64encode(part).decode("ascii")}")')
            start += len(part)
        told = await self._call(f"unpack({list(names)!r}, globals())")
        return ReceivedVariables(tuple(told["came"]), tuple(told["troubles"]))

    async def _call(self, call: str, waits: Callable[[], None] = lambda: None) -> MessagePart:
        """Call a function of ``runner/variables/transit.py``."""
        found = await self._evaluated(_expressions(call), waits)
        failed = [one for one in found.values() if one.get("status") != "ok"]
        if failed or TYPE not in found.get("2", {}).get("data", {}):
            why = (
                f"{failed[0].get('ename')}: {failed[0].get('evalue')}"
                if failed
                else "it does not support user_expressions"
            )
            raise CannotTravel(f"The kernel cannot be asked for variables: {why}")
        told: MessagePart = json.loads(found["2"]["data"][TYPE])
        return told

    async def _evaluated(self, expressions: Mapping[str, str], waits: Callable[[], None]) -> MessagePart:
        while True:
            reply = await self._reply(lambda: self._execute(expressions), waits)
            if reply.get("status") == "ok":
                found: MessagePart = reply.get("user_expressions") or {}
                return found
            if reply.get("status") != "aborted":  # a failed cell before it has aborted all waiting requests
                raise KernelGone(str(reply.get("evalue") or "The kernel does not answer."))

    def _execute(self, expressions: Mapping[str, str]) -> str:
        options: dict[str, bool] = {"silent": True, "store_history": False, "allow_stdin": False}
        return str(self._client.execute("", user_expressions=dict(expressions), stop_on_error=False, **options))

    async def _reply(self, check_kernel: Callable[[], str], waits: Callable[[], None] = lambda: None) -> MessagePart:
        """Send a request, and return the answer; repeat the request after a restart of the kernel."""
        request, process = check_kernel(), self._process
        while True:
            with contextlib.suppress(queue.Empty, TimeoutError):
                message = await self._client.get_shell_msg(timeout=_CHECK_INTERVAL_S)
                if message["parent_header"].get("msg_id") == request:
                    content: MessagePart = message["content"]
                    return content
                continue
            if not await self._manager.is_alive():
                raise KernelGone("The kernel has ended.")
            if self._process != process:
                request, process = check_kernel(), self._process
            waits()

    @property
    def _process(self) -> Any:
        return getattr(self._manager.provisioner, "pid", None)

    async def _receive(self, request: Callable[[], str], notify: Callable[[str], None]) -> None:
        while True:
            with contextlib.suppress(queue.Empty, TimeoutError):
                message = await self._client.get_iopub_msg(timeout=_CHECK_INTERVAL_S)
                if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == request():
                    notify(str(message["content"]["text"]))


def _check_without_code(snapshot: IO[bytes], names: Sequence[str], cluster: str) -> None:
    """Raise CannotTravel if a snapshot has more than the safe forms of these variables: a node can send anything."""
    snapshot.seek(0)
    damaged = CannotTravel(f"The kernel on {cluster} sent data that are not variables in the expected form.")
    start = snapshot.read(len(file_of.MAGIC) + 8)
    size = int.from_bytes(start[len(file_of.MAGIC) :])
    if not start.startswith(file_of.MAGIC) or size > _HEADER_BYTES:
        raise damaged
    try:
        header = json.loads(snapshot.read(size))
    except (ValueError, RecursionError):
        raise damaged from None
    if not file_of.is_header(header):
        raise damaged
    code: list[str] = []
    for item in header["items"]:
        found = [item["source"]] if item["kind"] == "import" else file_of.names_of(item)
        if item["kind"] not in ("import", "source") and not set(found) <= set(names):
            raise damaged
        if not file_of.is_safe(item):
            code += found
    if code:
        raise CannotTravel(
            f"{', '.join(dict.fromkeys(code))} could run code in the other kernel, and the cluster {cluster} is not "
            "trusted. Numbers, texts, lists, dicts, arrays and tables need no trust, if they share no objects. "
            f"{HOW_TO_TRUST}"
        )


def _expressions(call: str) -> dict[str, str]:
    """Return the expressions that call a function of ``runner/variables/transit.py`` in a kernel."""
    name, boot = _luggage()
    has_it = f'"{name}.transit" in __import__("sys").modules'
    return {"1": f"None if {has_it} else {boot}", "2": f'__import__("sys").modules["{name}.transit"].{call}'}


@functools.cache
def _luggage() -> tuple[str, str]:
    """Return the name of the package in a kernel, and the expression that imports it."""
    parts = {
        part: resources.files("jupyter_slurm.runner.variables").joinpath(f"{part}.py").read_text("utf-8")
        for part in _PARTS
    }
    name = "_jupyter_slurm_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
    space = {"name": name, "parts": parts}
    return name, f'__import__("builtins").exec({_UNFOLD!r}, {space!r})'
