"""Wait for a job in the foreground, and the effect of an interrupt on the job."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.failure import is_in_vain, refuse_in_vain
from jupyter_slurm.client.render.job_card import is_finished, title
from jupyter_slurm.client.render.terminal import IncrementalFilter, printable
from jupyter_slurm.client.settings import settings
from jupyter_slurm.errors import SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.client.output.follower import Follower
    from jupyter_slurm.domain import api_types as api

__all__ = ["interrupted", "wait_and_print", "wait_async"]

_WAIT_STEP_S = 0.5  # interval of the deadline check; an interrupt takes effect at once


class WaitMixin(Protocol):
    """Interface of an awaited object: :class:`jupyter_slurm.client.jobs.job.Job`."""

    _data: api.Job

    @property
    def title(self) -> str: ...
    def cancel(self) -> Any: ...


def wait_and_print(
    job: WaitMixin,
    follower: Follower,
    timeout: float | None,
    *,
    echo: bool,
    on_interrupt: Callable[[WaitMixin], WaitInterrupted] | None = None,
) -> None:
    """Wait for the end of a job.

    Parameters
    ----------
    job : Job
        The awaited job.
    follower : Follower
        Follower of the job.
    timeout : float or None
        Seconds; None for no limit.
    echo : bool
        Whether to print the output as it comes (a terminal; a notebook shows it in place).
    on_interrupt : callable, optional
        Function that decides about the job at an interrupt; by default the user decides.

    Raises
    ------
    TimeoutError
        The timeout is over; the job continues.
    JobFailed
        The job can never start.
    WaitInterrupted
        The wait was interrupted; the message says whether the job continues.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        with _echo(follower) if echo else contextlib.nullcontext() as printer:
            while not follower.ended.is_set():
                refuse_in_vain(follower.data)
                left = _WAIT_STEP_S if deadline is None else min(_WAIT_STEP_S, deadline - time.monotonic())
                if left <= 0:
                    raise TimeoutError(
                        f"{job.title} has not ended after {timeout:g} s: {follower.data['state']}. It keeps running."
                    )
                if printer is None:
                    follower.ended.wait(left)
                else:
                    printer.print_for(left)
    except KeyboardInterrupt:
        job._data = follower.data  # a request could fail now
        raise (on_interrupt or interrupted)(job) from None


async def wait_async(job: WaitMixin, follower: Follower) -> None:
    """Wait without blocking the loop. A cancelled wait reports that the job continues."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def changed(stream: str, data: bytes) -> None:
        if follower.ended.is_set() or is_in_vain(follower.data):
            with contextlib.suppress(RuntimeError):  # that loop may be closed by now
                loop.call_soon_threadsafe(ended.set)

    follower.listen(changed)
    try:
        if not (follower.ended.is_set() or is_in_vain(follower.data)):
            await ended.wait()
        refuse_in_vain(follower.data)
    except asyncio.CancelledError:
        sys.stderr.write(f"{job.title} is no longer awaited and keeps running.\n")
        raise
    finally:
        follower.unlisten(changed)


class _echo:  # noqa: N801  used like contextlib's own
    """Queue of output from the background for the thread that may print."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._news: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._filters = {stream: IncrementalFilter() for stream in ("stdout", "stderr", "display")}
        self._printed_state = ""
        self._shown = ""  # text in place of a display: it precedes the text printed before the display

    def __enter__(self) -> _echo:
        with self._follower.lock:
            for stream, text in self._follower.timeline.texts():  # printed before the listener was added
                self._write(stream, text)
            self._follower.listen(self._receive, is_for_all=True)
        self._print_state()
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.unlisten(self._receive)
        with contextlib.suppress(queue.Empty):
            while True:
                self._print(*self._news.get_nowait())
        self._write_shown()

    def _receive(self, stream: str, data: bytes) -> None:
        self._news.put((stream, data))

    def print_for(self, seconds: float) -> None:
        """Print new output, for at most the given seconds."""
        try:
            self._print(*self._news.get(timeout=seconds))
        except queue.Empty:
            self._write_shown()

    def _print(self, stream: str, data: bytes) -> None:
        if stream == "display":
            self._shown += self._filters[stream].feed(data)
            return
        if stream:
            self._write(stream, self._filters[stream].feed(data))
        self._write_shown()
        if not stream:
            self._print_state()

    def _write_shown(self) -> None:
        self._write("stdout", self._shown)
        self._shown = ""

    def _print_state(self) -> None:
        """Print why the job waits, or that it runs, if that has changed."""
        data = self._follower.data
        state = ": ".join(str(data[name]) for name in ("state", "reason_text") if data.get(name))
        if state != self._printed_state and not is_finished(data):
            self._printed_state = state
            self._write("stderr", printable(f"{title(data)}: {state}\n"))

    @staticmethod
    def _write(stream: str, text: str) -> None:
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.write(text)
        target.flush()


def interrupted(job: WaitMixin) -> WaitInterrupted:
    """Decide about the job after an interrupt, and report the decision."""
    if is_finished(job._data):
        return WaitInterrupted(f"Stopped waiting. {job.title} has ended. Its results are still being copied back.")
    choice, why = settings().on_interrupt, "setting on_interrupt"
    if choice == "ask":
        choice, why = _confirm_cancel(job)
    if choice == "keep":
        return WaitInterrupted(
            f"Stopped waiting. {job.title} keeps running ({why}). job.wait() waits again, job.cancel() cancels it. "
            f"Its job ID is {job if job._data.get('id') else 'not known yet'}."
        )
    try:
        job.cancel()
    except KeyboardInterrupt:
        return WaitInterrupted(
            f"Stopped waiting. It is unknown whether {job.title} was cancelled. Check with job.refresh(), or repeat "
            f"job.cancel()."
        )
    except SlurmError as error:
        return WaitInterrupted(
            f"Stopped waiting. {job.title} could NOT be cancelled and may keep running: {error}\n"
            f"Try again: job.cancel()."
        )
    return WaitInterrupted(f"Stopped waiting. {job.title} was cancelled ({why}).")


def _confirm_cancel(job: WaitMixin) -> tuple[str, str]:
    """Ask the user once; without an answer the job continues."""
    question = f"Cancel {job.title} or keep it running? [c/k] "
    try:
        for _ in range(3):
            answer = input(question).strip().lower()
            if re.fullmatch("c(ancel)?", answer):
                return "cancel", "your answer"
            if re.fullmatch("k(eep)?", answer):
                return "keep", "your answer"
    except KeyboardInterrupt:
        return "keep", "interrupted again, without an answer"
    except (EOFError, OSError, RuntimeError, NotImplementedError):
        return "keep", "no prompt is possible"
    return "keep", "the answer was not clear"
