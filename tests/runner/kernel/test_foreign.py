"""Kernels that are not this Python's ipykernel: IRkernel, one that knows ports alone, and the oldest ipykernel."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import kept_wheels

from jupyter_slurm.runner.kernel import sockets
from jupyter_slurm.runner.link.resumable_link import CONTROL, STDIN

Keep = Callable[..., Any]
_slow = pytest.mark.slow  # it waits, or needs what only those that run all tests have: R, other wheels
# Of the time before ipykernel had a thread for control, by their names on PyPI; what else they need is newer ones'.
OLDEST = ("ipykernel==4.10.1", "ipython==7.34.0", "ipython_genutils", "backcall", "pickleshare", "decorator<5.2")


def kernel_of(keeper: Any) -> tuple[int, dict[str, Any]]:
    """Return the process of a keeper's kernel, which has one child, and its connection file."""
    (pid,) = Path(f"/proc/{keeper.process.pid}/task/{keeper.process.pid}/children").read_text().split()
    told = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    file = Path(next(word for word in told if word.endswith("connection.json")))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    return int(pid), json.loads(file.read_text())


def printed(front: Any, number: str) -> Callable[[Any], bool]:
    return lambda one: bool(one.printed(number))


@_slow
def test_r_runs_plots_asks_completes_is_interrupted_and_ends(keep: Keep) -> None:
    keeper = keep(name="ir")
    front = keeper.front().connect()
    assert front.note("started")["kernel_info"]["language_info"]["name"] == "R"
    assert front.run("x <- 6; cat(x * 7)") == "42"
    plot = front.execute("plot(1:3)")
    assert front.answer(plot)["status"] == "ok"
    shown = [content["data"] for kind, content in front.of(plot) if kind == "display_data"]
    assert shown[0]["image/png"].startswith("iVBOR")
    assert "read.csv" in front.answer(front.ask("complete_request", {"code": "read.cs", "cursor_pos": 7}))["matches"]

    wrong = front.execute("stop('it is wrong')")
    assert "it is wrong" in front.answer(wrong)["evalue"]
    asked = front.execute("cat(readline('who? '))")
    front.until(lambda one: one.of(asked, STDIN), "a question")
    front.ask("input_reply", {"status": "ok", "value": "it is me"}, STDIN)
    front.answer(asked)
    assert "it is me" in front.printed(asked)

    for code in ("Sys.sleep(1000)", "while (TRUE) {}"):
        slow = front.execute(f"cat('on'); flush.console(); {code}")
        front.until(printed(front, slow), "its first words")
        front.ask("interrupt_request", {}, CONTROL)
        assert front.answer(slow)["status"] != "ok"
    assert front.run("cat(x)") == "6"
    front.end()
    assert keeper.wait() == 0, keeper.log()


@pytest.fixture(scope="module")
def deno() -> str:
    """A kernel that knows no Unix sockets."""
    folder = kept_wheels("deno", "--no-deps", "deno")
    program = folder / "bin" / "deno"
    if not program.exists():
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith("/deno"))
            draft = Path(wheel.extract(member, folder / f"of-{os.getpid()}"))
        draft.chmod(0o755)
        program.parent.mkdir(exist_ok=True)
        draft.rename(program)
    return str(program)


@_slow
def test_a_kernel_that_knows_no_unix_sockets_has_ports(keep: Keep, deno: str) -> None:
    argv = [deno, "jupyter", "--kernel", "--conn", "{connection_file}"]
    keeper = keep(argv=argv)
    died = keeper.front().connect().note("died")
    assert (died["begun"], "transport=tcp" in died["hint"]) == (False, True)
    keeper.wait()

    keeper = keep(argv=argv, transport="tcp")
    front = keeper.front().connect()
    assert front.note("started")["kernel_info"]["language_info"]["name"] == "typescript"
    _, told = kernel_of(keeper)
    assert (told["transport"], told["ip"]) == ("tcp", "127.0.0.1")
    number = front.execute("console.log(6 * 7)")
    front.until(printed(front, number), "what it prints")  # it may say so after it has said that it is done
    assert front.printed(number) == "42\n"
    wrong = front.execute("throw new Error('it is wrong')")
    front.until(lambda one: one.of(wrong, 0), "the reply")
    assert front.of(wrong, 0)[0][1]["status"] == "error"
    front.end()
    assert keeper.wait() == 0, keeper.log()


def test_a_kernel_whose_port_somebody_else_has_gets_others(keep: Keep, tmp_path: Path) -> None:
    """Another process listens on its port before it does, once."""
    script = tmp_path / "kernel.py"
    script.write_text(
        "import json, os, subprocess, sys, time\n"
        "told = json.load(open(sys.argv[1]))\n"
        "if not os.path.exists('taken'):\n"
        "    code = 'import socket, time; s = socket.create_server((\"127.0.0.1\", %d)); print(1, flush=True); time.sleep(120)'\n"
        "    other = subprocess.Popen([sys.executable, '-c', code % told['shell_port']], stdout=-1, start_new_session=True)\n"
        "    other.stdout.readline()\n"
        "    open('taken', 'w').write(f\"{told['shell_port']} {told['key']} {other.pid}\")\n"
        "from ipykernel.kernelapp import launch_new_instance\n"
        "sys.argv[1:] = ['-f', sys.argv[1]]\n"
        "launch_new_instance()\n"
    )
    keeper = keep(argv=[sys.executable, str(script), "{connection_file}"], transport="tcp", cwd=str(tmp_path))
    front = keeper.front().connect()
    assert front.run("print(3)") == "3\n"
    port, key, other = (tmp_path / "taken").read_text().split()
    os.kill(int(other), 9)
    _, told = kernel_of(keeper)
    assert int(port) not in told.values()
    assert told["key"] != key
    assert "is restarted" in keeper.log()
    front.end()
    assert keeper.wait() == 0, keeper.log()


def test_nothing_is_said_on_a_port_that_is_not_the_kernels() -> None:
    ours = sockets.Ports(lambda: [os.getpid()])
    numbers = [number for name, number in ours.connection_info().items() if name.endswith("_port")]
    assert len(set(numbers)) == 5
    with pytest.raises(ConnectionRefusedError):
        ours.connect("shell")  # nobody listens
    for channel, address in (("shell", "127.0.0.1"), ("iopub", "0.0.0.0")):
        port = ours.connection_info()[f"{channel}_port"]
        with socket.create_server((address, port)) as listener:
            others = sockets.Ports(lambda: [os.getppid()])
            others._numbers = ours._numbers
            with pytest.raises(ConnectionRefusedError):
                others.connect(channel)
            assert ours.are_taken()
            if address == "127.0.0.1":
                with ours.connect(channel), listener.accept()[0]:
                    continue
            with pytest.raises(sockets.KernelStartError, match=r"listens on 0\.0\.0\.0"):
                ours.connect(channel)
    assert not ours.are_taken()


def test_a_port_that_changes_hands_while_it_is_connected_to_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sockets.Ports(lambda: [os.getpid()])
    port = ours.connection_info()["shell_port"]
    code = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print(flush=True)"
    code += "; print(s.accept()[0].recv(100), flush=True)"
    listener = socket.create_server(("127.0.0.1", port))
    connect = socket.create_connection
    taken: list[subprocess.Popen[str]] = []

    def change_hands(*arguments: Any) -> socket.socket:
        listener.close()
        taken.append(subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE, text=True))
        assert taken[0].stdout is not None
        taken[0].stdout.readline()
        return connect(*arguments)

    monkeypatch.setattr(socket, "create_connection", change_hands)
    with pytest.raises(ConnectionRefusedError, match="no longer listens"):
        ours.connect("shell")
    assert taken[0].communicate(timeout=60)[0] == "b''\n"


@_slow
def test_a_kernel_that_opens_no_sockets_is_given_a_hint(keep: Keep, wait_for: Callable[..., Any]) -> None:
    keeper = keep(argv=[sys.executable, "-c", "import time; time.sleep(1000)"])
    stage = keeper.folder / "served.json"
    wait_for(stage.exists, "a hint")
    assert "transport=tcp" in json.loads(stage.read_text())["stage"]


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with an ipykernel of 2018."""
    for wheel in kept_wheels("ipykernel-4", "--no-deps", *OLDEST).glob("*.whl"):
        with zipfile.ZipFile(wheel) as content:
            content.extractall(tmp_path / "oldest")
    return tmp_path / "oldest"


@_slow
def test_the_oldest_ipykernel_loses_no_line_asks_is_interrupted_and_ends(keep: Keep, oldest: Path) -> None:
    keeper = keep(env={"PYTHONPATH": str(oldest)})
    front = keeper.front().connect()
    assert front.run("import ipykernel; print(ipykernel.__version__)") == "4.10.1\n"
    code = "for i in range(5_000): print(i, flush=not i % 8)"
    assert front.run(code).split() == [str(i) for i in range(5_000)]
    asked = front.execute("print(input('who? '))")
    front.until(lambda one: one.of(asked, STDIN), "a question")
    front.ask("input_reply", {"status": "ok", "value": "it is me"}, STDIN)
    front.answer(asked)
    assert "it is me" in front.printed(asked)
    slow = front.execute("print('on', flush=True); import time; time.sleep(1000)")
    front.until(printed(front, slow), "its first words")
    front.ask("interrupt_request", {}, CONTROL)
    assert front.answer(slow)["ename"] == "KeyboardInterrupt"
    front.end()
    assert keeper.wait() == 0, keeper.log()
