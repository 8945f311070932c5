"""Tests of a proxy, a keeper and an ipykernel, started by hand, as seen by a client of the kernel."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import zmq


def test_what_was_asked_before_there_was_a_kernel_runs_in_its_order(front: Any) -> None:
    cells = [front.client.execute(f"print({number})") for number in range(3)]
    front.begin()
    assert [front.printed(cell) for cell in cells] == ["0\n", "1\n", "2\n"]
    assert front.client.complete("prin", reply=True, timeout=60)["content"]["matches"]
    assert front.client.kernel_info(reply=True, timeout=60)["content"]["implementation"] == "ipython"


def test_input_reaches_the_cell_that_asks(front: Any) -> None:
    front.begin()
    cell = front.client.execute("print('Hello', input('Who? '))", allow_stdin=True)
    assert front.client.get_stdin_msg(timeout=60)["content"]["prompt"] == "Who? "
    front.client.input("Ada")
    assert front.printed(cell) == "Hello Ada\n"


def test_an_interrupt_reaches_the_cell_by_signal_and_by_message(front: Any) -> None:
    front.begin()
    for way in (lambda: front.process.send_signal(signal.SIGINT), lambda: interrupt(front.client)):
        cell = front.client.execute("import time; print('begun', flush=True); time.sleep(600)")
        front.wait_for_text(cell, "begun\n")
        way()
        assert front.reply(cell)["ename"] == "KeyboardInterrupt"


def interrupt(client: Any) -> None:
    client.control_channel.send(client.session.msg("interrupt_request", {}))


def test_a_kernel_that_dies_says_why_in_its_cell(front: Any) -> None:
    front.begin()
    cell, waits = front.client.execute("import os; os.kill(os.getpid(), 9)"), front.client.execute("1")
    told = front.reply(cell)
    assert told["ename"] == "KernelDied"
    assert "Signal 9 (SIGKILL) ended it" in told["evalue"]
    assert front.reply(waits)["status"] == "aborted"
    assert front.process.wait(60) == 1, "whoever started it starts another"
    assert (front.folder / "state").read_text() == "died"


def test_nothing_restarts_by_itself_where_the_allocation_is_over(front: Any) -> None:
    front.begin()
    assert front.run("print(1)") == "1\n"
    (front.folder / "gone").touch()
    cell = front.client.execute("import os; os._exit(3)")
    assert front.reply(cell)["ename"] == "KernelEnded"
    assert "KernelEnded" in front.reply(front.client.execute("1"))["ename"]
    assert front.process.poll() is None


def test_a_lease_that_ran_out_while_there_was_no_connection_is_told_and_the_allocation_given_back(
    front: Any, wait_for: Any
) -> None:
    """As on a laptop that slept: the keeper had nobody to tell it to."""
    (front.folder / "lease").write_text("1")
    front.begin()
    assert front.run("print(1)") == "1\n"
    (front.folder / "down").touch()
    (front.folder / "cut").touch()
    keeper = front.folder / "keeper.json"
    wait_for(lambda: "lease_over" in keeper.read_text(), "the lease is over")
    cell = front.client.execute("1")
    (front.folder / "down").unlink()
    told = front.reply(cell)
    assert told["ename"] == "KernelEnded"
    assert "for the time of lease=" in told["evalue"]
    assert front.process.poll() is None, "Jupyter does not start another one"
    assert (front.folder / "given-back").read_text() == "all"


def test_what_is_no_kernel_says_why(front: Any) -> None:
    (front.folder / "argv").write_text('["/bin/sh", "-c", "echo no such module >&2; exit 1"]')
    front.begin()
    told = front.reply(front.client.execute("1"))
    assert told["ename"] == "KernelNotStarted"
    assert "no such module" in told["evalue"]
    assert front.process.poll() is None


def test_a_front_that_was_killed_is_followed_by_another_and_nothing_printed_is_lost(front: Any) -> None:
    front.begin()
    cell = front.client.execute(
        "import time, pathlib\nprint('begun', flush=True)\n"
        f"while not pathlib.Path({str(front.folder / 'go-on')!r}).exists(): time.sleep(0.05)\n"
        "for number in range(20_000): print(number)\n"
        f"pathlib.Path({str(front.folder / 'printed')!r}).touch()"
    )
    front.wait_for_text(cell, "begun\n")
    os.kill(front.process.pid, signal.SIGKILL)
    front.process.wait()
    (front.folder / "go-on").touch()
    front.start()
    assert front.printed(cell) == "".join(f"{number}\n" for number in range(20_000))
    assert front.run("print(number)") == "19999\n"


def test_a_shutdown_ends_the_kernel_and_gives_back_what_it_had(front: Any, wait_for: Any) -> None:
    front.begin()
    pid = int(front.run("import os; print(os.getpid())"))
    front.client.shutdown(reply=True, timeout=60)
    assert front.process.wait(60) == 0
    assert (front.folder / "given-back").read_text() == "all"
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the kernel has ended")


def test_the_end_of_the_allocation_is_told_once_in_a_cell(front: Any) -> None:
    front.begin()
    # A kernel drops what arrives just after an error otherwise.
    begun = "import time; print('begun', flush=True); time.sleep(600)"
    cell = front.client.execute(begun, stop_on_error=False)
    front.wait_for_text(cell, "begun\n")
    (front.folder / "near").write_text("It ends in 5:00")
    assert front.published(cell, "stream")["text"] == "It ends in 5:00\n"
    front.process.send_signal(signal.SIGINT)
    assert front.reply(cell)["ename"] == "KeyboardInterrupt"
    assert front.run("print(1)") == "1\n"


def test_a_link_that_is_cut_now_and_then_loses_nothing(front: Any, wait_for: Any) -> None:
    front.begin()
    cell = front.client.execute("import time\nfor number in range(300): print(number, flush=True); time.sleep(0.01)")
    assert front.published(cell, "execute_input")
    printed = ""
    for _ in range(3):
        (front.folder / "cut").touch()
        wait_for(lambda: not (front.folder / "cut").exists(), "the link is cut")
        printed += front.published(cell, "stream")["text"]
    assert printed + front.printed(cell) == "".join(f"{number}\n" for number in range(300))
    assert front.run("print(number)") == "299\n"


def test_a_client_that_does_not_read_costs_no_more_memory_than_is_set(front: Any) -> None:
    """Another client reads on: it lacks the same output, and is notified."""
    front.process.kill()
    front.process.wait()
    (front.folder / "unread").write_text(str(40 << 20))
    front.start()
    front.listen()
    front.begin()
    where = json.loads((front.folder / "connection.json").read_text())
    with zmq.Context() as context, context.socket(zmq.SUB) as stuck:
        stuck.linger, stuck.rcvhwm = 0, 1
        stuck.subscribe(b"")
        stuck.connect(f"tcp://{where['ip']}:{where['iopub_port']}")
        assert front.run("print(1)") == "1\n"
        assert stuck.poll(60_000), "it is there"
        before = _resident(front.process.pid)
        lines = "for _ in range(300): print(_, 'x' * 1_000_000, flush=True)"
        heard = front.run(lines)
        assert _resident(front.process.pid) - before < 150 << 20
        lost = 300_000_000 - heard.count("x")
        assert 100_000_000 < lost < 270_000_000
        told = re.search(r"\[([\d.]+) MiB of this cell's output arrived while a connected client did not", heard)
        assert told
        assert abs(float(told[1]) - lost / (1 << 20)) < 1
    assert front.run(lines).count("x") == 300_000_000, "the other one is gone"
    assert front.run("print(2)") == "2\n"


def _resident(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
