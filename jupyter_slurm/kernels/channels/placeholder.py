"""Answers in place of a kernel that has not started, so that clients keep waiting while its job is pending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_slurm.kernels.channels.messages import Message
from jupyter_slurm.kernels.channels.zmq_channels import ZmqChannels

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart

__all__ = ["KernelPlaceholder", "fail", "stop"]

_NOTICE_DELAY_S = 3.0  # seconds until a waiting cell shows the reason; most kernels start before

_EMPTY_REPLIES: dict[str, Callable[[MessagePart], MessagePart]] = {
    "complete_request": lambda asked: {
        "matches": [],
        "cursor_start": asked.get("cursor_pos", 0),
        "cursor_end": asked.get("cursor_pos", 0),
        "metadata": {},
    },
    "inspect_request": lambda asked: {"found": False, "data": {}, "metadata": {}},
    "history_request": lambda asked: {"history": []},
    "comm_info_request": lambda asked: {"comms": {}},
}
"""Replies without use at a later time: they are sent at once, and empty."""


class KernelPlaceholder:
    """Queues requests until the kernel has started, and shows the reason of the wait in the first cell.

    Parameters
    ----------
    channels : ZmqChannels
        Sockets of the clients.
    kernel_info : mapping
        Kernel info for replies, as of the last kernel of this kind.
    """

    def __init__(self, channels: ZmqChannels, kernel_info: MessagePart) -> None:
        self._channels, self._kernel_info = channels, kernel_info
        self._waiting: list[tuple[str, Message]] = []
        self._printed_lines: list[str] = []
        self._told_cells: dict[str, int] = {}  # by cell: number of lines shown
        self._notice_timer: asyncio.TimerHandle | None = None
        self.refusal: tuple[str, str] | None = None  # name and text of the error of every cell, if no kernel can start

    def answer(self, channel: str, message: Message) -> None:
        """Answer a message, or queue it."""
        if message.kind == "kernel_info_request":
            self._reply(channel, message, self._kernel_info)
        elif message.kind in _EMPTY_REPLIES:
            self._reply(channel, message, {"status": "ok", **_EMPTY_REPLIES[message.kind](message.content)})
        elif message.kind == "is_complete_request":
            self._reply(channel, message, {"status": "unknown"})
        elif self.refusal is not None:
            self._refuse(channel, message)
        else:
            self._waiting.append((channel, message))
            self._show()

    def print_status(self, text: str) -> None:
        """Show a line in the first waiting cell; a later cell gets only the last line."""
        if not self._printed_lines or self._printed_lines[-1] != text:
            self._printed_lines.append(text)
            self._show()

    def interrupt(self) -> None:
        """Cancel the queue: the first cell was interrupted, and the cells after it do not run."""
        waiting, self._waiting = self._waiting, []
        cells = [message for _, message in waiting if message.kind == "execute_request"]
        self._waiting = [(channel, message) for channel, message in waiting if message.kind != "execute_request"]
        for number, cell in enumerate(cells):
            if number:
                stop(self._channels, cell)
            else:
                fail(self._channels, cell, "KeyboardInterrupt", "Interrupted before the kernel started.")

    def refuse(self, name: str, text: str) -> None:
        """Fail every waiting and future cell with an error: no kernel will start."""
        self.refusal = name, text
        waiting, self._waiting = self._waiting, []
        for channel, message in waiting:
            self._refuse(channel, message)

    def leave(self) -> list[tuple[str, Message]]:
        """Return the queued requests in order: the kernel has started."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _refuse(self, channel: str, message: Message) -> None:
        assert self.refusal is not None
        name, text = self.refusal
        if message.kind == "execute_request":
            fail(self._channels, message, name, text)
        elif message.kind.endswith("_request"):
            self._reply(channel, message, {"status": "error", "ename": name, "evalue": text, "traceback": []})

    def _reply(self, channel: str, message: Message, content: MessagePart) -> None:
        self._channels.publish_message("status", {"execution_state": "busy"}, message.header)
        self._channels.answer(channel, message, content)
        self._channels.publish_message("status", {"execution_state": "idle"}, message.header)

    def _show(self) -> None:
        """Print the missing lines in the first cell."""
        first = next((message for _, message in self._waiting if message.kind == "execute_request"), None)
        if first is None or first.content.get("silent") or not self._printed_lines:
            return
        if first.id not in self._told_cells:
            self._channels.publish_message("status", {"execution_state": "busy"}, first.header)
            self._told_cells[first.id] = len(self._printed_lines) - 1
            self._notice_timer = asyncio.get_running_loop().call_later(_NOTICE_DELAY_S, self._show)
        if self._notice_timer is not None and self._notice_timer.when() > asyncio.get_running_loop().time():
            self._told_cells[first.id] = len(self._printed_lines) - 1  # the last line is enough
            return
        for text in self._printed_lines[self._told_cells[first.id] :]:
            self._channels.publish_message("stream", {"name": "stdout", "text": f"{text}\n"}, first.header)
        self._told_cells[first.id] = len(self._printed_lines)


def fail(channels: ZmqChannels, cell: Message, name: str, text: str) -> None:
    """End a cell with an error."""
    error = {"ename": name, "evalue": text, "traceback": [f"{name}: {text}"]}
    channels.publish_message("status", {"execution_state": "busy"}, cell.header)
    if not cell.content.get("silent"):
        channels.publish_message("error", error, cell.header)
    reply = {"status": "error", "execution_count": 0, "user_expressions": {}, "payload": [], **error}
    channels.answer("shell", cell, reply)
    channels.publish_message("status", {"execution_state": "idle"}, cell.header)


def stop(channels: ZmqChannels, cell: Message) -> None:
    """End a cell that does not run because of a failed cell before it."""
    channels.publish_message("status", {"execution_state": "busy"}, cell.header)
    channels.answer("shell", cell, {"status": "aborted", "execution_count": 0})
    channels.publish_message("status", {"execution_state": "idle"}, cell.header)
