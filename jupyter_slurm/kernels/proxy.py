"""Proxy of a remote kernel: the local process that clients take for the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, cast

from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.kernels.channels.forwarding import KernelForwarding
from jupyter_slurm.kernels.channels.keeper_connection import (
    KeeperConnection,
    Parcel,
    PeerRejected,
    PeerReplaced,
)
from jupyter_slurm.kernels.channels.messages import Message
from jupyter_slurm.kernels.channels.placeholder import KernelPlaceholder
from jupyter_slurm.kernels.channels.zmq_channels import ZmqChannels
from jupyter_slurm.kernels.notices import OutageNotice
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.runner.link import resumable_link

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

    from jupyter_slurm.client.jupyter_types import MessagePart
    from jupyter_slurm.kernels.channels.keeper_connection import KeeperNote

__all__ = ["ConnectionInfo", "KernelProxy", "KernelStartError"]

log = logging.getLogger(__name__)

_PARENT_CHECK_INTERVAL_S = 1.0  # seconds between two checks of the parent process
_TIME_LIMIT_CHECK_INTERVAL_S = 2.0  # seconds between two checks of the remaining time
_RECONNECT_DELAYS_S = 0.1, 5.0  # seconds between two connections to the kernel: first, and longest
_STAGE_CHECK_INTERVAL_S = 2.0  # seconds between two checks of the image's progress
_KERNEL_END_TIMEOUT_S = 2.0  # seconds for a kernel to end by itself, within a client's wait for the proxy
_MAX_LOG_LINES = 20  # lines of the log to show
_DETACHED_EXIT_CODE, _DIED_EXIT_CODE = 0, 1
_UNUSED = {
    "idle_over": "The kernel was ended: it was not used for the time of idle=. Its allocation was released.",
    "lease_over": "The kernel was ended: no notebook was connected to it for the time of lease=.",
}


class KernelStartError(Exception):
    """The kernel cannot start; the message says why."""


class ConnectionInfo(Protocol):
    """Place of the kernel, and the connection to it."""

    secret: bytes
    is_resumed: bool
    """Return whether the kernel had started before this proxy."""
    received: int
    """Number of the last keeper message that the previous proxy passed on."""

    async def climb(self, standin: KernelPlaceholder) -> None:
        """Start or find the kernel; CannotBegin."""

    async def connect(self) -> Any:
        """Return a socket to the keeper; SlurmError, OSError."""

    async def ended(self, *, wait: bool = False) -> str | None:
        """Return why the kernel has ended, with ``wait`` once the reason is known; None if it has not."""

    async def unused_event(self) -> str:
        """Return the event of a keeper that ended the kernel because nobody used it; empty otherwise."""

    async def stage(self) -> str:
        """Return the progress of the kernel's preparation on its node; empty if unknown or not needed."""

    async def end_warning(self) -> str:
        """Return a warning that the allocation will end soon; empty otherwise."""

    async def trouble(self) -> str:
        """Return the cause of a connection outage; empty if it is unknown, or the user cannot remove it."""

    async def is_over(self) -> bool:
        """Return whether no kernel can be started in the allocation any more."""

    async def retention_text(self) -> str:
        """Return a note that the allocation is kept for another attempt, and for how long; empty otherwise."""

    def mark(self, state: str) -> None:
        """Write the state for the next proxy."""

    def record_progress(self, received: int) -> None:
        """Write the number of the last keeper message that was passed on."""

    async def release(self, *, restart: bool) -> None:
        """End the kernel; without ``restart``, also the allocation."""

    def leave(self) -> None:
        """Let the kernel continue."""


class KernelProxy:
    """Answers clients: alone until the kernel has started, then with its messages.

    Parameters
    ----------
    connection : mapping
        The content of the connection file.
    place : ConnectionInfo
        Place of the kernel.
    kernel_info : mapping
        Kernel info for replies before the start.
    introduced : callable
        Called with the kernel info of the kernel.
    """

    def __init__(
        self, connection: KernelConnectionInfo, place: ConnectionInfo, kernel_info: MessagePart, introduced: Any
    ):
        self._place = place
        self._channels = ZmqChannels(connection, self._receive)
        self._standin = KernelPlaceholder(self._channels, kernel_info)
        self._introduced = introduced
        self._carrier: KeeperConnection | None = None
        self._running: KernelForwarding | None = None
        self._is_running = False
        self._outage = OutageNotice(
            lambda: self._carrier.note_count if self._carrier else 0, self._print_in_cell, place.trouble
        )
        self._note: KeeperNote = {}  # how the kernel ended, by its keeper
        self._unused = ""  # why the keeper has ended it
        self._has_ended = asyncio.Event()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ending: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Serve until the kernel ends, or is detached; return the exit code."""
        loop, parent = asyncio.get_running_loop(), os.getppid()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._detach)
        self._channels.start()
        self._work = asyncio.create_task(self._serve(), name="kernel")
        while not self._over.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PARENT_CHECK_INTERVAL_S):
                    await asyncio.shield(self._over)
            if os.getppid() != parent:  # the parent was killed, and no other process ends this one
                self._detach()
        for task in (self._work, self._ending):
            if task is not None:
                task.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        await self._channels.close()
        return self._over.result()

    # Requests of clients ----------------------------------------------------------------------------------------

    def _receive(self, channel: str, message: Message) -> None:
        if message.kind == "shutdown_request":
            self._shut_down(channel, message)
        elif message.kind == "interrupt_request":
            self._answer(channel, message, {"status": "ok"})
            self._interrupt()
        elif self._is_running and self._running is not None:
            self._running.pass_on(channel, message)
        else:
            self._standin.answer(channel, message)

    def _answer(self, channel: str, message: Message, content: MessagePart) -> None:
        self._channels.publish_message("status", {"execution_state": "busy"}, message.header)
        self._channels.answer(channel, message, content)
        self._channels.publish_message("status", {"execution_state": "idle"}, message.header)

    def _interrupt(self) -> None:
        if self._is_running and self._carrier is not None:
            self._carrier.send_note(do="interrupt")
            if self._outage.is_down:
                self._print_in_cell("The cell is interrupted when the connection is back.")
        else:
            self._standin.interrupt()

    def _shut_down(self, channel: str, message: Message) -> None:
        restart = bool(message.content.get("restart"))
        if self._over.done():  # a detached kernel is not ended
            return
        content = {"status": "ok", "restart": restart}
        self._answer(channel, message, content)
        self._channels.publish_message("shutdown_reply", content, message.header)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(restart), name="end")

    async def _end(self, restart: bool) -> None:
        """End the kernel, and release its allocation."""
        try:
            self._place.mark("restarting" if restart else "ending")
            if self._outage.is_down:
                log.warning("the link is down: what the kernel had is given back as soon as it is back")
            if self._carrier is not None and self._carrier.is_attached:
                self._carrier.send_note(do="end", restart=restart)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_KERNEL_END_TIMEOUT_S):
                        await self._has_ended.wait()
            elif self._work is not None:
                self._work.cancel()
                await asyncio.gather(self._work, return_exceptions=True)
            await self._place.release(restart=restart)
        except (SlurmError, OSError) as error:
            log.warning("what the kernel had could not be given back: %s", error)
        finally:
            self._leave(0)

    def _detach(self) -> None:
        """Let the kernel continue for the next proxy."""
        if self._ending is None and not self._over.done():
            self._place.leave()
            self._leave(_DETACHED_EXIT_CODE)

    def _leave(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    # The kernel -------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Start the kernel, keep the link to it, and report why it has ended."""
        try:
            await self._place.climb(self._standin)
            async with (
                _running_task(self._show_stage()),
                _running_task(self._warn()),
                _running_task(self._outage.watch()),
                _running_task(self._connect_loop()) as linked,
            ):
                ended = asyncio.ensure_future(self._has_ended.wait())
                await asyncio.wait((linked, ended), return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
                if linked.done():
                    linked.result()
                await self._died()
        except KernelStartError as error:
            self._refuse("KernelNotStarted", str(error), await self._place.retention_text())
        except Exception as error:
            log.exception("the front has failed")
            self._refuse("KernelNotStarted", f"{type(error).__name__}: {error}")

    def _refuse(self, name: str, text: str, kept_text: str = "") -> None:
        """Report the error in every cell; Slurm is not asked again until the user restarts the kernel."""
        self._is_running = False
        self._place.mark("over")
        self._fail(name, text)  # requests that were passed on already
        log.warning("%s", text)
        again = sentences("Restart the kernel to try again", kept_text)
        self._standin.refuse(name, f"{printable(text)}\n{again}")

    async def _connect_loop(self) -> None:
        """Connect, again if necessary, until the kernel ends."""
        self._carrier = carrier = KeeperConnection(
            self._place.secret, self._arrived, self._place.received, self._place.record_progress
        )
        self._running = KernelForwarding(self._channels, carrier)
        if self._place.is_resumed:
            await self._channels.wait_for_subscriber()  # for the kernel's messages of the meantime
            self._start_forwarding()
        delays = RetryDelays(*_RECONNECT_DELAYS_S)
        while not self._has_ended.is_set():
            carrier.held = 0.0
            try:
                await carrier.over(await self._place.connect())
            except PeerRejected as error:
                raise KernelStartError(f"The program that answers on the node is not this kernel: {error}.") from error
            except PeerReplaced:
                log.warning("another front has taken the kernel over")
                self._detach()
                return
            except (SlurmError, OSError) as error:
                log.info("the link: %s", error)
            if await self._place.ended() is not None:
                return
            await asyncio.sleep(delays.next(lasted=carrier.held))

    async def _show_stage(self) -> None:
        """Show the progress on the node in the waiting cell: the keeper listens before the kernel starts."""
        while not self._is_running:
            if text := await self._place.stage():
                self._standin.print_status(text)
            await asyncio.sleep(_STAGE_CHECK_INTERVAL_S)

    async def _warn(self) -> None:
        """Warn once, in the running or the next cell, that the allocation will end soon."""
        while True:
            await asyncio.sleep(_TIME_LIMIT_CHECK_INTERVAL_S)
            if self._running is not None and self._is_running and (text := await self._place.end_warning()):
                self._running.warn_in_cell(f"{text}\n")
                return

    def _print_in_cell(self, text: str) -> bool:
        """Print a line in the running cell; return whether a cell is running."""
        return self._is_running and self._running is not None and self._running.print_in_cell(f"{text}\n")

    def _start_forwarding(self) -> None:
        """Start forwarding: the kernel has started."""
        if self._is_running or self._running is None:
            return
        self._is_running = True
        self._place.mark("running")
        for channel, message in self._standin.leave():
            self._running.pass_on(channel, message)

    def _arrived(self, parcel: Parcel) -> None:
        try:
            if parcel.channel == resumable_link.NOTE:
                self._noted(cast("KeeperNote", parcel.note()))
            elif self._running is not None:
                self._running.arrived(parcel)
        except (ValueError, KeyError, IndexError) as error:
            log.warning("what came from the node makes no sense: %s", error)

    def _noted(self, note: KeeperNote) -> None:
        event = note.get("event")
        if event == "started":
            if isinstance(info := note.get("kernel_info"), dict):
                self._introduced(info)
            self._start_forwarding()
        elif event == "dropped" and self._running is not None:
            self._running.dropped(note)
        elif event in _UNUSED:
            self._unused = _UNUSED[event]
        elif event == "died":
            self._note = note
            self._has_ended.set()

    async def _died(self) -> None:
        """Report why the kernel has ended; the parent starts another one, if that can help."""
        if self._ending is not None or self._over.done():
            return
        had_begun, self._is_running = self._is_running or bool(self._note.get("begun")), False
        if not (self._unused or self._note):  # the note was not received, as on a laptop that slept
            self._unused = _UNUSED.get(await self._place.unused_event(), "")
        text = self._unused or await self._why()
        if self._unused:
            await self._release_quietly()
        if self._unused or await self._place.is_over():
            self._refuse("KernelEnded", text)
        elif not had_begun:
            self._refuse("KernelNotStarted", text, await self._place.retention_text())
        else:
            self._fail("KernelDied", text)
            self._place.mark("died")
            self._leave(_DIED_EXIT_CODE)

    def _fail(self, name: str, text: str) -> None:
        if self._running is not None:
            self._running.fail(name, printable(text))

    async def _release_quietly(self) -> None:
        with contextlib.suppress(SlurmError, OSError):
            await self._place.release(restart=False)

    async def _why(self) -> str:
        """Return why the kernel has ended, by its keeper, by Slurm and by its log."""
        note = self._note
        if note.get("why"):
            return sentences(note["why"], note.get("hint"))
        said = [await self._place.ended(wait=True) or "The kernel has ended"]
        with contextlib.suppress(ValueError, TypeError):
            number = note.get("signal")
            said.append(f"Signal {number} ({signal.Signals(int(number)).name}) ended it" if number else "")
        said.append(str(note.get("hint") or ""))
        text = sentences(*said)
        tail = "\n".join(str(note.get("log") or "").strip().split("\n")[-_MAX_LOG_LINES:])
        return f"{text}\nThe last lines of its log:\n{tail}" if tail else text


@contextlib.asynccontextmanager
async def _running_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a task during a block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
