"""What clients see while there is no kernel yet: a front that waits, and real clients of jupyter_client."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

_BY_HAND = Path(__file__).with_name("by_hand.py")


class Front:
    """A front, a client of it, and the folder by which it is told what happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file, _ = write_connection_file(str(folder / "kernel.json"), key=b"key")
        self.process = subprocess.Popen([sys.executable, "-P", str(_BY_HAND), file, str(folder)])
        self.client = BlockingKernelClient(connection_file=file)
        self.client.load_connection_file()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def reply(self, message: str) -> dict[str, Any]:
        while True:
            reply: dict[str, Any] = self.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == message:
                return reply

    def published(self, message: str, kind: str) -> dict[str, Any]:
        while True:
            told: dict[str, Any] = self.client.get_iopub_msg(timeout=60)
            if told["parent_header"].get("msg_id") == message and told["msg_type"] == kind:
                return told


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    """A front that waits, and a client to which it has said what kernel it is."""
    front = Front(tmp_path)
    yield front
    front.client.stop_channels()
    front.process.kill()
    front.process.wait()


def test_a_cell_says_what_it_waits_for_and_an_interrupt_gives_it_up(front: Front) -> None:
    (front.folder / "says").write_text("Waits for GPUs")
    first, second = front.client.execute("1"), front.client.execute("2")
    assert front.published(first, "stream")["content"]["text"] == "Waits for GPUs\n"
    (front.folder / "says").write_text("Starts on n1")
    assert front.published(first, "stream")["content"]["text"] == "Starts on n1\n"
    assert front.client.complete("prin", reply=True, timeout=60)["content"]["matches"] == []

    front.process.send_signal(signal.SIGINT)
    assert front.reply(first)["content"]["ename"] == "KeyboardInterrupt"
    assert front.reply(second)["content"]["status"] == "aborted"
    assert front.client.kernel_info(reply=True, timeout=60)["content"]["status"] == "ok", "it waits for the kernel on"


def test_what_cannot_begin_says_why_in_every_cell(front: Front) -> None:
    waiting = front.client.execute("1")
    (front.folder / "cannot").write_text("sbatch: invalid partition")
    for cell in (waiting, front.client.execute("2")):
        assert "sbatch: invalid partition" in front.reply(cell)["content"]["evalue"]
    assert front.process.poll() is None, "a front that ends would be started again and again"


@pytest.mark.parametrize("restart", [False, True])
def test_a_shutdown_is_heard_before_there_is_a_kernel(
    front: Front, restart: bool, wait_for: Callable[..., Any]
) -> None:
    front.client.shutdown(restart=restart, reply=True, timeout=60)
    assert front.process.wait(60) == 0
    assert (front.folder / "given-back").read_text() == ("to be restarted" if restart else "all")


def test_who_is_told_to_end_leaves_the_kernel_alone(front: Front) -> None:
    front.process.terminate()
    assert front.process.wait(60) == 0
    assert (front.folder / "left").exists()
    assert not (front.folder / "given-back").exists()
