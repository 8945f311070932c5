"""Tests of clients before the start of a kernel: a waiting proxy, and real clients of jupyter_client."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from typing import Any

import pytest


def test_a_cell_says_what_it_waits_for_and_an_interrupt_gives_it_up(front: Any) -> None:
    (front.folder / "says").write_text("Waits for GPUs")
    first, second = front.client.execute("1"), front.client.execute("2")
    assert front.published(first, "stream")["text"] == "Waits for GPUs\n"
    (front.folder / "says").write_text("Starts on n1")
    assert front.published(first, "stream")["text"] == "Starts on n1\n"
    assert front.client.complete("prin", reply=True, timeout=60)["content"]["matches"] == []

    front.process.send_signal(signal.SIGINT)
    assert front.reply(first)["ename"] == "KeyboardInterrupt"
    assert front.reply(second)["status"] == "aborted"
    assert front.client.kernel_info(reply=True, timeout=60)["content"]["status"] == "ok", "it waits for the kernel on"


def test_a_cell_says_how_far_an_image_is_until_the_kernel_is_there(front: Any) -> None:
    waits = f"until [ -e {front.folder}/go-on ]; do sleep 0.1; done; exec {shlex.quote(sys.executable)} -m ipykernel_launcher -f $0"
    (front.folder / "argv").write_text(json.dumps(["/bin/sh", "-c", waits, "{connection_file}"]))
    front.begin()
    cell = front.client.execute("print(1)")
    for stage in ("image: 10 MB …", "image: 20 MB …"):
        (front.folder / "stage.new").write_text(stage)
        (front.folder / "stage.new").replace(front.folder / "stage")
        assert front.published(cell, "stream") == {"name": "stdout", "text": f"{stage}\n"}
    (front.folder / "go-on").touch()
    assert front.printed(cell) == "1\n"


def test_what_cannot_begin_says_why_in_every_cell(front: Any) -> None:
    waiting = front.client.execute("1")
    (front.folder / "cannot").write_text("sbatch: invalid partition")
    for cell in (waiting, front.client.execute("2")):
        assert "sbatch: invalid partition" in front.reply(cell)["evalue"]
    assert front.process.poll() is None, "a front that ends would be started again and again"


@pytest.mark.parametrize("restart", [False, True])
def test_a_shutdown_is_heard_before_there_is_a_kernel(front: Any, restart: bool) -> None:
    front.client.shutdown(restart=restart, reply=True, timeout=60)
    assert front.process.wait(60) == 0
    assert (front.folder / "given-back").read_text() == ("to be restarted" if restart else "all")


def test_who_is_told_to_end_leaves_the_kernel_alone(front: Any) -> None:
    front.process.terminate()
    assert front.process.wait(60) == 0
    assert (front.folder / "left").exists()
    assert not (front.folder / "given-back").exists()
