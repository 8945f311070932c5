"""Fixtures: a proxy started by hand, and a real client of it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

_BY_HAND = Path(__file__).with_name("by_hand.py")


class Front:
    """A proxy, its client, and the folder by which it is controlled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file, _ = write_connection_file(str(folder / "connection.json"), key=b"key")
        self.start()
        self.client = BlockingKernelClient(connection_file=self.file)
        self.client.load_connection_file()
        self.client.start_channels(hb=False)  # a missed heartbeat is not a failure, on a busy machine
        self.listen()

    def listen(self) -> None:
        """Wait until published messages arrive."""
        try:
            while True:
                self.client.kernel_info(reply=True, timeout=60)
                with contextlib.suppress(queue.Empty):
                    self.client.get_iopub_msg(timeout=0.5)
                    return
        except TimeoutError:
            self.end()
            raise

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-P", str(_BY_HAND), self.file, str(self.folder)])

    def begin(self) -> None:
        (self.folder / "begin").touch()

    def reply(self, message: str) -> dict[str, Any]:
        while True:
            reply: dict[str, Any] = self.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == message:
                content: dict[str, Any] = reply["content"]
                return content

    def hear(self) -> dict[str, Any]:
        """Return the next published message. A killed proxy may have sent it before, recognized by its signature."""
        while True:
            with contextlib.suppress(ValueError):
                told: dict[str, Any] = self.client.get_iopub_msg(timeout=60)
                return told

    def published(self, message: str, kind: str) -> dict[str, Any]:
        while True:
            told = self.hear()
            if told["parent_header"].get("msg_id") == message and told["msg_type"] == kind:
                content: dict[str, Any] = told["content"]
                return content

    def wait_for_text(self, message: str, text: str) -> None:
        """Wait until a cell has printed a text, which may arrive in parts."""
        heard = ""
        while len(heard) < len(text):
            heard += self.published(message, "stream")["text"]
        assert heard == text

    def printed(self, message: str) -> str:
        """Return the output of a cell until its end."""
        parts = []
        while True:
            told = self.hear()
            if told["parent_header"].get("msg_id") != message:
                continue
            if told["msg_type"] == "stream":
                parts.append(told["content"]["text"])
            elif told["content"].get("execution_state") == "idle":
                return "".join(parts)

    def run(self, code: str) -> str:
        return self.printed(self.client.execute(code))

    def end(self) -> None:
        self.client.stop_channels()
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.folder / "keeper.pid").read_text()), signal.SIGTERM)


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    """Provide a waiting proxy, and a client with its kernel info."""
    front = Front(tmp_path)
    yield front
    front.end()
