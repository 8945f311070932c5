"""A keeper as a real process with a real kernel, and a small front: what stands between them is the link alone."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.runner.link import resumable_link
from jupyter_slurm.runner.link.handshake import PeerReplaced, ProxyHandshake
from jupyter_slurm.runner.link.resumable_link import IOPUB, NOTE, SHELL, Link, Message

RUNNER = Path(resumable_link.__file__).parents[1]
PATIENCE = 120.0  # seconds: other tests run beside these


class Front:
    """The other end of the link: what a notebook takes for the kernel."""

    def __init__(self, port: int, secret: bytes) -> None:
        self.port, self.secret, self.who = port, secret, os.urandom(8)
        self.link = Link()
        self.sock: socket.socket | None = None
        self.received_notes: list[dict[str, Any]] = []
        self.heard: dict[tuple[int, str], list[tuple[str, dict[str, Any]]]] = {}

    def connect(self, greeting: ProxyHandshake | None = None) -> Front:
        self.cut()
        self.sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        greeting = greeting or ProxyHandshake(self.secret, self.who, self.link.received)
        self.sock.sendall(greeting.first)
        while not greeting.is_done:
            data = self.sock.recv(512)
            if not data:
                raise ConnectionResetError("the keeper has closed the connection")
            self.sock.sendall(greeting.feed(data))
        self._take(self.link.attach(greeting.received, greeting.rest))
        return self

    def cut(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None
            self.link.detach()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            if message.channel == NOTE:
                self.received_notes.append(message.note())
            else:
                header, parent, _, content = map(json.loads, message.frames[:4])
                self.heard.setdefault((message.channel, str(parent.get("msg_id"))), []).append(
                    (header["msg_type"], content)
                )
        self.link.confirm()
        if self.link.is_replaced:
            raise PeerReplaced("by another front")

    def pump(self, most: int = 1 << 20) -> bool:
        """Carry on for a moment; False: the keeper has gone."""
        assert self.sock is not None
        self.link.tick()
        with contextlib.suppress(ConnectionError):  # what it said last is still to be read
            self._write()
        self.sock.settimeout(0.1)
        try:
            data = self.sock.recv(most)
        except TimeoutError:
            return True
        except ConnectionResetError:
            data = b""
        self._take(self.link.feed(data))
        with contextlib.suppress(ConnectionError):
            self._write()
        return bool(data)

    def _write(self) -> None:
        assert self.sock is not None
        self.sock.settimeout(PATIENCE)
        while pending := self.link.pending():
            self.link.written(self.sock.send(pending))

    def until(self, condition: Callable[[Front], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := condition(self)):
            if time.monotonic() > deadline:
                pytest.fail(f"not in time: {what}; notes: {self.received_notes}; requests: {list(self.heard)}")
            if not self.pump():
                found = condition(self)
                assert found, f"the keeper is gone before {what}"
        return found

    def note(self, event: str) -> dict[str, Any]:
        """Wait for a note and return it."""
        return dict(self.until(lambda one: one.notes(event), event)[-1])

    def notes(self, event: str) -> list[dict[str, Any]]:
        return [note for note in self.received_notes if note["event"] == event]

    def tell(self, **note: Any) -> None:
        self.link.send_note(**note)

    def ask(self, kind: str, content: dict[str, Any], channel: int = SHELL) -> str:
        number = uuid.uuid4().hex
        header = {
            "msg_id": number,
            "msg_type": kind,
            "session": "front",
            "username": "",
            "date": "2026-01-01T00:00:00Z",
        }
        frames = [json.dumps(part).encode() for part in ({**header, "version": "5.3"}, {}, {}, content)]
        self.link.send(channel, frames)
        return number

    def execute(self, code: str) -> str:
        asked = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True}
        return self.ask("execute_request", {**asked, "stop_on_error": True})

    def of(self, number: str, channel: int = IOPUB) -> list[tuple[str, dict[str, Any]]]:
        """Return what came for a request: types and contents."""
        return self.heard.get((channel, number), [])

    def answer(self, number: str, channel: int = SHELL) -> dict[str, Any]:
        """Wait for the reply to a request, and for the end of what it publishes."""
        idle = ("status", {"execution_state": "idle"})
        self.until(lambda one: one.of(number, channel) and idle in one.of(number)[-1:], f"an answer to {number}")
        return self.of(number, channel)[0][1]

    def printed(self, number: str) -> str:
        return "".join(content["text"] for kind, content in self.of(number) if kind == "stream")

    def run(self, code: str) -> str:
        """Run a cell; return what it prints."""
        number = self.execute(code)
        answer = self.answer(number)
        assert answer["status"] == "ok", answer
        return self.printed(number)

    def end(self, **note: Any) -> None:
        self.tell(do="end", **note)
        self.note("died")


class Keeper:
    """A keeper: its job directory and its process."""

    def __init__(self, folder: Path, **asked: Any) -> None:
        self.folder, self.secret = folder, secrets.token_bytes(32)
        self.fronts: list[Front] = []
        folder.mkdir()
        (folder / "job.json").write_text(json.dumps({"kind": "kernel", "key": "k", "environment": asked.get("image")}))
        told = {"secret": self.secret.hex(), "lease": 600, "idle": None, "image": None, **asked}
        (folder / "kernel.json").write_text(json.dumps(told))
        with (folder / "log").open("wb") as log:
            argv = [sys.executable, "-u", str(RUNNER / "kernel" / "keeper.py"), str(folder)]
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while not (folder / "keeper.json").exists():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "keeper.json").read_text()))

    def front(self) -> Front:
        self.fronts.append(Front(self.state["port"], self.secret))
        return self.fronts[-1]

    def give(self, key: str, source: str, *, sent: Path | None = None, back: Sequence[str] = ()) -> Path:
        """Hand it a cell of another notebook, as the holder of an allocation does; return the cell's folder."""
        folder = self.folder.parent / key
        folder.mkdir()
        values = {"in": ["sent"] if sent else [], "out": list(back), "limit": 1 << 20}
        cell = {"source": source, "filename": "In[77]"}
        (folder / "job.json").write_text(json.dumps({"kind": "python", "key": key, "cell": cell, "values": values}))
        if sent:
            sent.rename(folder / "in.values")
        self.tell(key)
        return folder

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Keeper]]:
    """``keep(**asked)``: a keeper, with these in its ``kernel.json``."""
    keepers: list[Keeper] = []

    def keep(**asked: Any) -> Keeper:
        keepers.append(Keeper(tmp_path / f"job-{len(keepers)}", **asked))
        return keepers[-1]

    yield keep
    for keeper in keepers:
        for front in keeper.fronts:
            front.cut()
        if keeper.process.poll() is None:
            keeper.process.terminate()  # it ends its kernel, and what that has started
            with contextlib.suppress(subprocess.TimeoutExpired):
                keeper.wait()
            keeper.process.kill()
            keeper.process.wait()
        keeper.process.stdin.close()
