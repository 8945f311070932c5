"""Forwarding of messages between clients and a running kernel."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.kernels.channels.keeper_connection import KeeperConnection, Parcel
from jupyter_slurm.kernels.channels.messages import Message
from jupyter_slurm.kernels.channels.placeholder import fail, stop
from jupyter_slurm.kernels.channels.zmq_channels import ZmqChannels
from jupyter_slurm.runner.link import resumable_link

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart
    from jupyter_slurm.kernels.channels.keeper_connection import KeeperNote

__all__ = ["KernelForwarding"]

_NAMES = {resumable_link.SHELL: "shell", resumable_link.CONTROL: "control", resumable_link.STDIN: "stdin"}
_NUMBERS = {name: number for number, name in _NAMES.items()}
_MAX_PENDING_REQUESTS = 100_000  # requests without an answer whose senders are stored


class KernelForwarding:
    """Forwards messages, and tracks the requests without an answer.

    Parameters
    ----------
    channels : ZmqChannels
        Sockets of the clients.
    carrier : KeeperConnection
        Connection to the kernel's keeper.
    """

    def __init__(self, channels: ZmqChannels, carrier: KeeperConnection) -> None:
        self._channels, self._carrier = channels, carrier
        self._open: OrderedDict[str, tuple[str, Message]] = OrderedDict()
        self._warning = ""
        self._unread: dict[str, int] = {}  # bytes that were not published, by cell

    @property
    def cells(self) -> list[Message]:
        """Return the cells without an answer; the first one is running."""
        return [message for _, message in self._open.values() if message.kind == "execute_request"]

    def pass_on(self, channel: str, message: Message) -> None:
        """Send a client's message to the kernel."""
        if message.kind.endswith("_request"):
            self._open[message.id] = channel, message
            while len(self._open) > _MAX_PENDING_REQUESTS:
                self._open.popitem(last=False)
        if message.kind == "execute_request" and self._warning:
            self._send_text(self._warning, message.header)
            self._warning = ""
        self._carrier.send(_NUMBERS[channel], message.frames)

    def arrived(self, parcel: Parcel) -> None:
        """Send a message of the kernel to its recipients."""
        message = Message(parcel.frames)
        if parcel.channel == resumable_link.IOPUB:
            self._publish(message)
            return
        channel = _NAMES[parcel.channel]
        asked = self._open.get(message.parent_id)
        if channel != "stdin":
            self._open.pop(message.parent_id, None)
        # A client that sent its request to a killed earlier proxy is addressed by the identity of its session.
        idents = asked[1].idents if asked else [str(message.parent.get("session", "")).encode()]
        self._channels.send(channel, parcel.frames, idents)

    def _publish(self, message: Message) -> None:
        """Publish a message of the kernel. At the end of a cell, also report output that was too much for a client."""
        if message.kind == "status" and (lost := self._unread.pop(message.parent_id, 0)):
            text = "arrived while a connected client did not read, and exceeded the buffer"
            self._send_text(f"\n[{format_size(lost)} of this cell's output {text}.]\n", message.parent)
        if not self._channels.publish(message.frames, message.kind) and len(self._unread) < _MAX_PENDING_REQUESTS:
            self._unread[message.parent_id] = self._unread.get(message.parent_id, 0) + sum(map(len, message.frames))

    def dropped(self, note: KeeperNote) -> None:
        """Report in a cell that some of its output was dropped."""
        size = format_size(int(note.get("bytes") or 0))
        text = f"\n[{size} of this cell's output arrived while no client was connected, and exceeded the buffer.]\n"
        self._send_text(text, note.get("parent"))

    def print_in_cell(self, text: str) -> bool:
        """Print a line in the running cell; return whether a cell is running."""
        if cells := self.cells:
            self._send_text(text, cells[0].header)
        return bool(cells)

    def warn_in_cell(self, text: str) -> None:
        """Print a line in the running cell or, if none is running, in the next one."""
        if not self.print_in_cell(text):
            self._warning = text

    def _send_text(self, text: str, parent: MessagePart | None) -> None:
        self._channels.publish_message("stream", {"name": "stderr", "text": printable(text)}, parent)

    def fail(self, name: str, text: str) -> None:
        """Answer all open requests: the running cell has failed, and the cells after it do not run."""
        cells = self.cells
        for channel, message in self._open.values():
            if message in cells[:1]:
                fail(self._channels, message, name, text)
            elif message in cells:
                stop(self._channels, message)
            else:
                reply = {"status": "error", "ename": name, "evalue": text, "traceback": []}
                self._channels.answer(channel, message, reply)
        self._open.clear()
