"""Keeper of a kernel on a node: ``python -u keeper.py JOBDIR``, or a step of kind ``kernel``.

The keeper starts the kernel, talks to its sockets, and listens on the node's loopback for the proxy. The proxy
represents the kernel on the user's computer. The two have one connection, which may break (``link/resumable_link.py``).
The kernel then continues, and its messages are kept. ``kernel.json`` has the kernel and the secret of the proxy. The
keeper writes its address into ``keeper.json``, and in the end how the kernel ended.

Notes of the proxy, ``{"do": …}``: ``interrupt``; ``end`` (``restart``: the flag for the kernel). Notes of the keeper,
``{"event": …}``: ``attached`` (to each new proxy: whether the kernel has ``begun``, its ``state``), ``started``
(``kernel_info``), ``dropped`` (see ``link/resumable_link.py``), ``idle_over`` or ``lease_over`` (``seconds``) as the
reason of the end, and finally ``died``. Its fields are ``code``, ``signal``, ``log`` (the last lines), ``begun``,
``asked`` (the proxy requested the end), and if known ``why`` and ``hint``. When the proxy has received everything, the
keeper exits.

Cells of other notebooks arrive on standard input (``cells.py``).

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/keeper.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import KernelOver, KernelSettings, MessageContent
    from jupyter_slurm.runner.kernel import cells, listener, messages, process, zmq_sockets
    from jupyter_slurm.runner.kernel.sockets import KernelStartError
    from jupyter_slurm.runner.link import resumable_link as link
else:
    cells = load("kernel.cells")
    listener = load("kernel.listener")
    link = listener.link
    messages = load("kernel.messages")
    process = load("kernel.process")
    proc, KernelStartError = process.proc, process.KernelStartError
    zmq_sockets = load("kernel.zmq_sockets")

FORMAT = 1
_DEFAULT_LEASE_S, _DEFAULT_IDLE_S = 3600.0, float("inf")  # seconds
_CONNECT_INTERVAL_S = 0.05  # seconds between two attempts to connect to the kernel's sockets
_CHECK_INTERVAL_S = 1.0
_PROBE_INTERVAL_S = 1.0  # seconds between two requests to a starting kernel
_SOCKETS_HINT_DELAY_S = 20.0  # seconds for a kernel to open its sockets, before a hint is shown
_MAX_STARTS = 3  # attempts, if another process takes the kernel's ports
_END_TIMEOUT_S = 5.0  # seconds to end, at each of three degrees: request, SIGTERM, SIGKILL
_FLUSH_TIMEOUT_S = 10.0  # seconds for the proxy to receive the last messages of a kernel that was ended
_CONFIRM_TIMEOUT_S = 60.0  # seconds for the proxy to confirm them, or to connect again
_DRAIN_TIMEOUT_S = 2.0  # seconds to receive messages that a kernel sent before it died
_CHANNELS = {link.SHELL: "shell", link.CONTROL: "control", link.STDIN: "stdin"}
_NUMBERS = {name: number for number, name in _CHANNELS.items()}
# Messages that the proxy always needs. All other published messages may be dropped if there are too many.
_NEEDED = {"status", "execute_input", "execute_result", "error", "shutdown_reply"}


class Keeper:
    """Kernel with its proxy.

    Parameters
    ----------
    place : cell.JobDirectory
        The job directory.
    """

    def __init__(self, place: JobDirectory) -> None:
        self.place = place
        with open(os.path.join(place.folder, "kernel.json"), encoding="utf-8", errors="surrogateescape") as file:
            self.settings: KernelSettings = json.load(file)
        self.lease = float(self.settings.get("lease") or _DEFAULT_LEASE_S)
        self.idle = float(self.settings.get("idle") or _DEFAULT_IDLE_S)
        self.activity = messages.Activity()
        self.ready = selectors.DefaultSelector()
        self._bell = messages.WakeSignal()
        self.ready.register(self._bell.file, selectors.EVENT_READ, self._bell.listen)
        self.door = listener.ProxyListener(
            bytes.fromhex(self.settings["secret"]), self.ready, self._take, self._greet_front
        )
        self.kernel: Any = None
        self.wires: Any = None
        self.info: MessageContent | None = None  # the kernel's description of itself, once it has started
        self._probe, self._probed, self._has_published = "", 0.0, False
        self._own: set[str] = set()  # ids of the keeper's own requests
        self.cells = cells.RunningCells(place.folder, self._request_cell, self._interrupt)
        self._early: list[tuple[str, list[bytes]]] = []
        self._starts, self._is_hinted = 0, False
        self._killed, self._degree = 0.0, 0  # deadline and degree of ending the kernel
        self._is_end_requested = self._is_terminated = self._is_restarting = False
        self._over: KernelOver = {}  # note that the idle time or the lease is over
        self._unnoted: dict[str, object] | None = None  # note that could not be written because the disk was full

    # -- the loop

    def run(self) -> int:
        """Keep the kernel until the end; return the exit code of the step."""
        signal.set_wakeup_fd(self._bell.signals, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, lambda *_: self._interrupt())
        with contextlib.suppress(OSError):  # a file or /dev/null cannot be waited for
            self.ready.register(0, selectors.EVENT_READ, self._receive_cell_requests)
        self._note(port=self.door.port)
        try:
            self._start()
            while self.kernel.process.poll() is None or self._restart_on_taken_port():
                self._turn()
            return self._finish()
        except KernelStartError as error:
            sys.stderr.write(f"{error} {error.hint}\n")
            if self.kernel is not None and self.kernel.process is not None:
                self.kernel.kill(signal.SIGKILL)
            return self._last_words(127, why=str(error), hint=error.hint)
        finally:
            if self.wires is not None:
                self.wires.close()
            if self.kernel is not None:
                self.kernel.clear()
            self.door.close()

    def _turn(self) -> None:
        """Perform one iteration of the main loop."""
        if self.info is None:
            self._begin()
        self._check_end()
        self._pump()

    def _pump(self) -> None:
        """Forward messages, and wait for more."""
        has_more = self.wires is not None and self.wires.reader is not None and self.wires.reader.has_more
        pause = 0.0 if has_more else _CONNECT_INTERVAL_S if self.info is None else _CHECK_INTERVAL_S
        self._wait(pause)
        if self.wires is not None:
            for frames in self.wires.published():
                self._publish(frames)
            self.wires.flush()
        self.door.flush()

    def _wait(self, pause: float) -> None:
        for key, mask in self.ready.select(pause):
            if self.ready.get_map().get(key.fd) is key:  # an earlier handler in this iteration may have unregistered it
                key.data(mask)

    def _receive_output(self, _: int) -> None:
        if not self.kernel.receive_output():
            self.ready.unregister(self.kernel.output)

    def _receive_cell_requests(self, _: int) -> None:
        if not self.cells.receive():
            self.ready.unregister(0)

    def _note(self, **told: Any) -> None:
        """Record the address of the keeper, and how the kernel ended."""
        node = proc.node_name()
        note = {"format": FORMAT, "time": time.time(), "pid": os.getpid(), "node": node, "port": self.door.port, **told}
        try:
            self.place.put(os.path.join(self.place.folder, "keeper.json"), json.dumps(note))
            self._unnoted = None
        except OSError as error:
            if self._unnoted is None:
                sys.stderr.write(f"keeper.json cannot be written yet: {error}\n")
            self._unnoted = told

    # -- the kernel

    def _start(self) -> None:
        """Start the kernel; may raise KernelStartError."""
        self._starts += 1
        self.kernel = process.Kernel(self.place.folder, self.settings)
        self.kernel.start()
        self.ready.register(self.kernel.output, selectors.EVENT_READ, self._receive_output)
        reach, key = self.kernel.sockets.connect, self.kernel.key
        self.wires = zmq_sockets.ChannelSockets(reach, key, self.ready, self._reply, self._bell.ring)

    def _restart_on_taken_port(self) -> bool:
        """Replace a kernel that has ended because another process had one of its ports."""
        is_over = self._is_end_requested or self._is_terminated or self._starts >= _MAX_STARTS
        if is_over or self.wires.reader is not None or not self.kernel.sockets.are_taken():
            return False
        sys.stderr.write("Another user has a port of this kernel. The kernel is restarted with other ports.\n")
        with contextlib.suppress(KeyError):
            self.ready.unregister(self.kernel.output)
        self.wires.close()
        self.kernel.kill(signal.SIGKILL)
        self.kernel.clear()
        self._start()
        return True

    def _begin(self) -> None:
        """Continue the start. The kernel has started when it replies and its published messages arrive."""
        now = time.monotonic()
        if self.wires.reader is None and not self.wires.connect():
            self._hint()
            return
        if not self._probe and now - self._probed > _PROBE_INTERVAL_S:
            self._probed = now
            self._probe = self._request("shell", "kernel_info_request", {})

    def _hint(self) -> None:
        """Show a hint for a kernel that runs and has not opened its sockets."""
        if not self._is_hinted and self.kernel.hint and self.kernel.opens_for > _SOCKETS_HINT_DELAY_S:
            self._is_hinted = True
            self.place.stage(
                f"The kernel has not opened its sockets for {_SOCKETS_HINT_DELAY_S:g} s. {self.kernel.hint}"
            )

    def _request(self, channel: str, kind: str, content: MessageContent, *, is_own: bool = True) -> str:
        number, frames = messages.message(kind, content)
        if is_own:
            self._own.add(number)
        self.wires.send(channel, frames)
        return number

    def _request_cell(self, content: MessageContent) -> str:
        return self._request("shell", "execute_request", content, is_own=False)

    def _accept_info(self, content: bytes) -> None:
        """Accept the kernel's description of itself. From now on, requests are forwarded to the kernel."""
        self._probe = ""
        if self._has_published:
            self.info = messages.read(content)
            self.activity.note_request()
            self.door.link.send_note(event="started", kernel_info=self.info)
            early, self._early = self._early, []
            for channel, frames in early:
                self._pass_to_kernel(channel, frames)
            self.cells.start(self.info)

    def _reply(self, name: str, frames: list[bytes]) -> None:
        parent = messages.word(messages.read(frames[1]), "msg_id")
        if parent in self.cells:
            self.cells.reply(parent, messages.read(frames[3]))
        elif parent not in self._own:
            self.door.link.send(_NUMBERS[name], frames)
        elif self.info is None and messages.read(frames[0]).get("msg_type") == "kernel_info_reply":
            self._accept_info(frames[3])

    def _publish(self, frames: list[bytes]) -> None:
        header, parent = messages.read(frames[0]), messages.word(messages.read(frames[1]), "msg_id")
        kind = messages.word(header, "msg_type")
        if kind == "iopub_welcome" or parent in self._own:
            self._has_published = True
            return
        self.activity.note_message(kind, parent, messages.read(frames[3]) if kind == "status" else {})
        if parent in self.cells and not self.cells.publish(parent, kind, messages.read(frames[3])):
            return
        for piece in messages.pieces(header, frames):
            self.door.link.send(link.IOPUB, piece, None if kind in _NEEDED else piece[1])
            if piece is not frames:
                self.door.flush()  # sent while the next piece is made

    def _interrupt(self) -> None:
        if self.info is None or self.kernel.process.returncode is not None:
            return  # a signal would end a starting kernel
        if self.kernel.is_interrupted_by_message:
            self._request("control", "interrupt_request", {})
        else:
            self.kernel.interrupt()
        self._wake_kernel()

    def _wake_kernel(self) -> None:
        """Wake the kernel by a request: an ipykernel 7 whose cell awaits notices an interrupt only then."""
        self._request("shell", "kernel_info_request", {})

    # -- the proxy

    def _greet_front(self) -> None:
        state = "starting" if self.info is None else "busy" if self.activity.is_at_work else "idle"
        self.door.link.send_note(event="attached", begun=self.info is not None, state=state)
        if self.info is not None:
            self.door.link.send_note(event="started", kernel_info=self.info)

    def _take(self, taken: list[Any]) -> None:
        """Carry out the messages of the proxy."""
        for one in taken:
            if one.channel == link.NOTE:
                note = one.note()
                if note.get("do") == "interrupt":
                    self._interrupt()
                elif note.get("do") == "end":
                    self._is_end_requested, self._is_restarting = True, bool(note.get("restart"))
            elif one.channel in _CHANNELS and len(one.frames) >= 4:
                self.activity.note_request()
                if self.info is None:
                    self._early.append((_CHANNELS[one.channel], one.frames))
                else:
                    self._pass_to_kernel(_CHANNELS[one.channel], one.frames)

    def _pass_to_kernel(self, channel: str, frames: list[bytes]) -> None:
        kind = messages.read(frames[0]).get("msg_type") if channel == "control" else None
        if kind == "interrupt_request" and not self.kernel.is_interrupted_by_message:
            self.kernel.interrupt()
            self._wake_kernel()
            self.door.link.send(link.CONTROL, messages.message("interrupt_reply", {"status": "ok"}, frames[0])[1])
            return
        if kind == "shutdown_request":
            self._is_end_requested = True
            self._degree, self._killed = 1, time.monotonic() + _END_TIMEOUT_S
        self.wires.send(channel, frames)

    # -- the end

    def _terminate(self, *_: Any) -> None:
        self._is_terminated = True

    def _check_end(self) -> None:
        """Check whether the kernel is to end, and end it."""
        self.door.tick()
        if self._unnoted is not None:
            self._note(**self._unnoted)
        self.cells.record_ends()
        if not self._over and self.door.alone > self.lease:
            self._over = {"event": "lease_over", "seconds": self.lease}
            sys.stderr.write(f"No notebook was connected to this kernel for {self.lease:g} s: it ends.\n")
        elif not self._over and self.info is not None and self.activity.unused > self.idle:
            self._over = {"event": "idle_over", "seconds": self.idle}
            sys.stderr.write(f"This kernel was not used for {self.idle:g} s: it ends.\n")
        if self._is_terminated:
            self.kernel.hide()  # the sender of SIGTERM may not wait for long
        if (self._over or self._is_end_requested or self._is_terminated) and time.monotonic() > self._killed:
            self._end_by_degrees()

    def _end_by_degrees(self) -> None:
        """End the kernel by increasing force: by a request, then by signals."""
        self._degree, self._killed = self._degree + 1, time.monotonic() + _END_TIMEOUT_S
        if self._degree == 1 and self.info is not None:
            self._request("control", "shutdown_request", {"restart": self._is_restarting})
        elif self._degree <= 2 and self.info is not None:
            self.kernel.kill(signal.SIGTERM)
        else:
            self.kernel.kill(signal.SIGKILL)

    def _finish(self) -> int:
        """Forward the kernel's last messages; return the exit code."""
        code = self.kernel.process.returncode
        self.kernel.kill(signal.SIGKILL)  # its child processes, which may hold its sockets
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        reader = self.wires.reader
        while reader is not None and not (reader.is_over and not reader.has_more) and time.monotonic() < deadline:
            self._pump()
        self.wires.read_rest()
        self.kernel.receive_output()
        why = {} if self.info is not None else self.kernel.why_not()
        return self._last_words(128 - code if code < 0 else code, signal=-code if code < 0 else None, **why)

    def _last_words(self, code: int, **told: Any) -> int:
        """Tell the proxy how the kernel ended, and wait for the confirmation; return the exit code of the step."""
        if self._over:
            self.door.link.send_note(**self._over)
        tail = self.kernel.tail if self.kernel is not None else ""
        said = {"code": code, "log": tail, "begun": self.info is not None, "asked": self._is_end_requested, **told}
        self.door.link.send_note(event="died", **said)
        self._note(over=dict(said, **self._over))
        if not self._is_terminated:  # otherwise the sender of SIGTERM reports the end
            is_unused, is_requested = bool(self._over), self._is_end_requested
            self.cells.lose(cells.why_lost(code, told, is_unused=is_unused, is_end_requested=is_requested))
        is_ours = bool(self._over or self._is_end_requested or self._is_terminated)
        deadline = time.monotonic() + (_FLUSH_TIMEOUT_S if is_ours else self.lease)
        is_sent = False
        while not self.door.link.is_clear and time.monotonic() < deadline:
            if not self.door.has_front and (is_ours or self._is_terminated):
                break
            if self.door.link.is_sent and not is_sent:  # a proxy may leave on this message without a confirmation
                is_sent, deadline = True, min(deadline, time.monotonic() + _CONFIRM_TIMEOUT_S)
            self.door.tick()
            self.door.flush()
            self._wait(_CONNECT_INTERVAL_S)
        return 143 if self._is_terminated else 0 if is_ours else code


def serve(cell: Any, place: JobDirectory) -> int:
    """Run the keeper of a step; ``cell`` is ``cell/run.py``."""
    cell.take_any_text()
    cell.heedless()
    return Keeper(place).run()


def main() -> int:
    """Keep the kernel of a job directory."""
    cell = load("cell.run")
    return serve(cell, cell.JobDirectory(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
