"""A kernel is kept: what it says reaches its front, whatever becomes of the connection, the front or the kernel."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.runner.kernel import listener
from jupyter_slurm.runner.link import resumable_link
from jupyter_slurm.runner.link.handshake import PeerRejected, PeerReplaced, ProxyHandshake
from jupyter_slurm.runner.link.resumable_link import CONTROL, STDIN

Keep = Callable[..., Any]
LINES = 100_000


def is_there(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


def test_a_kernel_runs_asks_is_interrupted_and_ends(keep: Keep, wait_for: Callable[..., Any], tmp_path: Path) -> None:
    keeper = keep(cwd=str(tmp_path), env={"OF_THE_CELL": "yes"})
    front = keeper.front().connect()
    early = front.execute("6 * 7")  # before the kernel is there
    assert front.note("attached")["begun"] is False
    assert front.note("started")["kernel_info"]["language_info"]["name"] == "python"
    front.answer(early)
    assert ("execute_result", {"text/plain": "42"}) in [(kind, one.get("data")) for kind, one in front.of(early)]

    code = "import os, subprocess\nprint(os.getpid(), os.getcwd(), os.environ['OF_THE_CELL'])"
    pid, cwd, told = front.run(code).split()
    assert (cwd, told) == (str(tmp_path), "yes")

    asked = front.execute("print(input('who? '))")
    front.until(lambda one: one.of(asked, STDIN), "a question")
    assert front.of(asked, STDIN)[0] == ("input_request", {"prompt": "who? ", "password": False})
    front.ask("input_reply", {"status": "ok", "value": "it is me"}, STDIN)
    front.answer(asked)
    assert "it is me" in front.printed(asked)

    awaits = "print('on'); import asyncio; await asyncio.sleep(1000)"
    for way, code in (("note", ""), ("message", ""), ("note", awaits), ("message", awaits)):
        slow = front.execute(code or "print('on'); import time; time.sleep(1000)")
        front.until(lambda one, slow=slow: one.printed(slow), "its first words")
        if way == "note":
            front.tell(do="interrupt")
        else:
            number = front.ask("interrupt_request", {}, CONTROL)
            front.until(lambda one, number=number: one.of(number, CONTROL), "an answer to the interrupt")
            assert front.of(number, CONTROL)[0][0] == "interrupt_reply"
        assert front.answer(slow)["ename"] == ("CancelledError" if code else "KeyboardInterrupt")

    child = int(front.run("print(subprocess.Popen(['sleep', '1000']).pid)"))
    file = Path(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-2])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert keeper.secret.hex() not in Path(f"/proc/{pid}/environ").read_text()
    front.end()
    died = front.note("died")
    assert (died["begun"], died["asked"]) == (True, True)  # the signal is ipykernel's own: it ends its group
    assert keeper.wait() == 0, keeper.log()
    wait_for(lambda: not is_there(int(pid)) and not is_there(child), "the end of the kernel and of what it started")
    assert not file.parent.exists()
    assert stat.S_IMODE((keeper.folder / "keeper.json").stat().st_mode) == 0o600


def test_no_line_is_lost_while_connections_are_cut_and_nobody_is_there(
    keep: Keep, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    keeper, chance = keep(cwd=str(tmp_path)), random.Random(7)
    front = keeper.front().connect()
    front.note("started")
    assert not front.run(
        "import multiprocessing as m; m.Process(target=sum, args=(range(10**10),), daemon=True).start()"
    )
    code = f"for i in range({LINES}):\n    print(i, flush=not i % 8)\nopen('done', 'w').close()"
    number = front.execute(code)
    front.until(lambda one: one.printed(number), "its first lines")
    for _ in range(20):
        for _ in range(chance.randrange(12)):
            front.pump(chance.randrange(1, 200_000))
        front.connect()
    front.cut()  # the front dies
    wait_for((tmp_path / "done").exists, "the end of the cell")
    other = keeper.front().connect()  # and another one comes
    other.heard = front.heard
    other.answer(number)
    assert other.printed(number).split() == [str(i) for i in range(LINES)]
    assert not other.notes("dropped")
    other.end()
    assert keeper.wait() == 0, keeper.log()


def test_too_much_output_for_nobody_loses_its_oldest_part_and_says_so(
    keep: Keep, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    keeper = keep(cwd=str(tmp_path))
    front = keeper.front().connect()
    number = front.execute(
        "import os, time\nprint('0 first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
        "for i in range(1, 200): print(i, 'x' * 1_000_000, flush=True)\nopen('done', 'w').close()"
    )
    front.until(lambda one: one.printed(number), "its first line")
    front.cut()
    (tmp_path / "go").touch()
    wait_for((tmp_path / "done").exists, "the end of the cell")
    # The kernel sends what it printed in the background. The output of a later cell comes after it.
    later = keeper.give("later", "pass")
    wait_for((later / "end.json").exists, "the arrival of the output at the keeper")
    front.connect()
    assert front.answer(number)["status"] == "ok"
    lines = [line.split()[0] for line in front.printed(number).splitlines()]
    assert lines[-1] == "199"
    assert 40 < len(lines) < 200
    (dropped,) = front.notes("dropped")
    assert dropped["parent"]["msg_id"] == number
    assert dropped["bytes"] > (200 - len(lines)) * 1_000_000


def test_a_hundred_megabytes_reach_a_front_that_is_there(keep: Keep) -> None:
    front = keep().front().connect()
    number = front.execute("for i in range(100): print('x' * 1_000_000)")  # ipykernel makes one message of it, or two
    front.answer(number)
    assert front.printed(number) == ("x" * 1_000_000 + "\n") * 100
    largest = max(len(content["text"]) for kind, content in front.of(number) if kind == "stream")
    assert largest < 5_000_000, "the first lines are here while the last ones are under way"
    code = "from IPython.display import display\ndisplay({'text/plain': 'y' * 100_000_000}, raw=True)"
    number = front.execute(code)
    front.answer(number)
    (shown,) = [content for kind, content in front.of(number) if kind == "display_data"]
    assert len(shown["data"]["text/plain"]) == 100_000_000


def test_what_a_kernel_says_that_makes_no_sense_ends_no_keeper(keep: Keep) -> None:
    front = keep().front().connect()
    code = (
        "kernel = get_ipython().kernel\n"
        "for kind in (b'[]', b'\"status\"'):\n"
        "    said = [b'{\"msg_type\": %b}' % kind, b'{\"msg_id\": []}', b'{}', b'{\"execution_state\": \"idle\"}']\n"
        "    kernel.session.send_raw(kernel.iopub_socket, said, ident=b'stream')\n"
        "print('said')\n"
    )
    assert front.run(code) == "said\n"
    assert len(front.of("[]")) == 2


def test_strangers_hear_nothing_and_keep_nobody_out(keep: Keep) -> None:
    keeper = keep()
    crowd = [socket.create_connection(("127.0.0.1", keeper.state["port"]), 60) for _ in range(40)]
    for number, one in enumerate(crowd):
        with contextlib.suppress(OSError):
            one.sendall([b"GET / HTTP/1.1\r\n\r\n", os.urandom(300), b"jslk", b""][number % 4])
    wrong = keeper.front()
    wrong.secret = bytes(32)
    with pytest.raises(PeerRejected):
        wrong.connect()
    assert wrong.sock is not None
    wrong.sock.sendall(bytes(40))  # and yet it says something
    assert wrong.sock.recv(100) == b""
    wrong.cut()
    front = keeper.front().connect()
    assert front.run("print(1)") == "1\n"
    for one in crowd:
        one.close()
    assert front.run("print(2)") == "2\n"


@pytest.mark.root
def test_another_user_is_not_even_greeted(keep: Keep, alice: str) -> None:
    front = keep().front()
    code = (
        "import socket, sys\n"
        f"sock = socket.create_connection(('127.0.0.1', {front.port}), 60)\n"
        "try: sock.sendall(bytes.fromhex(sys.argv[1])); told = len(sock.recv(100))\n"
        "except ConnectionError: told = 0\n"
        "print(told)"
    )
    greeting = ProxyHandshake(front.secret, front.who, 0).first.hex()
    told = []
    for become in ([], ["runuser", "-u", alice, "--"]):
        argv = [*become, "/usr/bin/python3", "-c", code, greeting]
        told.append(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout.strip())
    assert int(told[0]) > 0
    assert told[1] == "0"


@pytest.mark.root
def test_another_user_does_not_fill_the_log(keep: Keep, alice: str) -> None:
    keeper = keep()
    front = keeper.front()
    code = (
        "import socket, struct\n"
        "for number in range(300):\n"
        f"    sock = socket.create_connection(('127.0.0.1', {front.port}), 60)\n"
        "    sock.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n' + bytes(number))\n"
        "    if number % 2: sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n"
        "    sock.close()\n"
    )
    subprocess.run(["runuser", "-u", alice, "--", "/usr/bin/python3", "-c", code], check=True, timeout=120)
    front.connect()
    assert front.run("print(1)") == "1\n"
    told = [line for line in keeper.log().splitlines() if "refused" in line]
    assert 1 <= len(told) <= 3, told
    assert "another user" in told[0]


@pytest.mark.root
@pytest.mark.parametrize("is_silent", [False, True])
def test_it_is_known_whose_a_connection_is(alice: str, is_silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def tells_nothing(*_: object) -> None:
        raise PermissionError

    if is_silent:  # netlink is denied in some containers; /proc tells it
        monkeypatch.setattr(listener, "_query_kernel", tells_nothing)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; sock = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 60); input()"
        told = []
        for become in ([], ["runuser", "-u", alice, "--"]):
            argv = [*become, "/usr/bin/python3", "-c", code]
            with subprocess.Popen(argv, stdin=subprocess.PIPE) as process, server.accept()[0] as accepted:
                told.append(listener.is_foreign(accepted))
                process.communicate(b"\n", 60)
                assert listener.is_foreign(accepted), "nobody has it open any more"
    assert told == [False, True]


def test_a_newer_front_replaces_the_older_one_for_good(keep: Keep) -> None:
    keeper = keep()
    older, newer = keeper.front().connect(), keeper.front()
    number = older.execute("x = 5; print('by the older')")
    older.answer(number)
    older.run("pass")  # with it, the keeper knows that the cell before it has arrived; a newer front gets the rest
    newer.connect()
    assert newer.note("attached")["begun"] is True
    with contextlib.suppress(PeerReplaced):  # as far as there is time to say so
        while older.pump():
            pass
    with pytest.raises(PeerReplaced):
        older.connect()
    assert newer.run("print(x)") == "5\n"
    assert not newer.of(number)


def test_how_a_kernel_died_is_known_to_a_front_that_comes_later(keep: Keep, wait_for: Callable[..., Any]) -> None:
    keeper = keep()
    front = keeper.front().connect()
    front.note("started")
    code = "import os, sys, subprocess\nprint(os.getpid(), subprocess.Popen(['sleep', '1000']).pid)"
    pid, child = map(int, front.run(code).split())
    front.run("os.write(2, b'a last word\\n')")
    number = front.execute("import time\nprint('still there', flush=True); time.sleep(1000)")
    front.until(lambda one: one.printed(number), "its first words")
    front.cut()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "over" in keeper.state, "word of its end")
    wait_for(lambda: not is_there(child), "the end of what it has started")
    assert keeper.process.poll() is None  # it waits for a client
    front.connect()
    died = front.note("died")
    assert (died["code"], died["signal"], died["begun"], died["asked"]) == (137, 9, True, False)
    assert keeper.wait() == 137


def test_a_kernel_that_ends_by_itself_leaves_its_code_and_its_last_words(keep: Keep) -> None:
    keeper = keep()
    front = keeper.front().connect()
    assert front.run("print('on')") == "on\n"
    front.execute("import os; os.write(2, b'a last word\\n'); os._exit(3)")
    died = front.note("died")
    assert (died["code"], died["signal"], died["asked"]) == (3, None, False)
    assert "a last word" in died["log"]
    assert keeper.wait() == 3


def test_a_kernel_that_nobody_uses_ends(keep: Keep) -> None:
    keeper = keep(idle=3.0)
    front = keeper.front().connect()
    number = front.execute("import time; time.sleep(4)")  # which is no idleness, nor was the start
    assert front.answer(number)["status"] == "ok"
    assert front.note("idle_over")["seconds"] == 3.0
    assert keeper.wait() == 0
    assert keeper.state["over"]["event"] == "idle_over"


def test_a_kernel_that_nobody_comes_back_to_ends(keep: Keep) -> None:
    keeper = keep(lease=8.0)
    front = keeper.front().connect()
    assert front.run("import time; time.sleep(9); print('here')") == "here\n"
    front.cut()
    assert keeper.wait() == 0
    assert keeper.state["over"]["event"] == "lease_over"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"name": "no-such-kernel"}, "has no kernel no-such-kernel"),
        ({"argv": ["/no/such/program", "{connection_file}"]}, "/no/such/program cannot be run"),
        ({"argv": [sys.executable, "-c", "raise SystemExit('a word of its own')"]}, "a word of its own"),
        (
            {"image": {"image": "/no/such.sif", "python": "python3"}},
            "The container did not start: This node has no image /no/such.sif",
        ),
    ],
)
def test_a_kernel_that_cannot_begin_says_why(keep: Keep, asked: dict[str, Any], words: str) -> None:
    keeper = keep(**asked)
    front = keeper.front().connect()
    died = front.note("died")
    assert died["begun"] is False
    assert words in f"{died.get('why')} {died.get('hint')} {died['log']}"
    assert keeper.wait() != 0


def test_a_kernelspec_of_a_kernel_that_runs_elsewhere_is_none_of_this_place(
    keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home may be one for all nodes, with what `jupyter slurm kernel add` writes: that would request another kernel."""
    for name, metadata in {
        "mine": {},
        "far": {"kernel_provisioner": {"provisioner_name": "jupyter-slurm"}},
        "near": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}},
    }.items():
        (tmp_path / "kernels" / name).mkdir(parents=True)
        told = {"argv": ["python", "-c", "raise SystemExit('it ran')"], "metadata": metadata}
        (tmp_path / "kernels" / name / "kernel.json").write_text(json.dumps(told))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    said = {name: keep(name=name).front().connect().note("died") for name in ("mine", "near", "far")}
    assert "it ran" in said["mine"]["log"]
    assert "it ran" in said["near"]["log"]
    listed = re.search(
        r"has no kernel far\. Available kernels: (.*)\.", f"{said['far'].get('why')} {said['far']['log']}"
    )
    assert listed, said["far"]
    assert {"mine", "near"} <= {*listed[1].split(", ")}
    assert "far" not in listed[1].split(", ")


def test_a_kernel_with_other_names_for_its_sockets_is_found(keep: Keep, tmp_path: Path) -> None:
    """IRkernel writes them with a colon; an ipykernel whose sockets are also found under such names stands in."""
    script = tmp_path / "kernel.py"
    script.write_text(
        "import json, os, sys\n"
        "told = json.load(open(sys.argv[1]))\n"
        "for n in range(1, 6): os.symlink(told['ip'] + f'-other-{n}', told['ip'] + f':{n}')\n"
        "json.dump({**told, 'ip': told['ip'] + '-other'}, open(sys.argv[1], 'w'))\n"
        "from ipykernel.kernelapp import launch_new_instance\n"
        "sys.argv[1:] = ['-f', sys.argv[1]]\n"
        "launch_new_instance()\n"
    )
    front = keep(argv=[sys.executable, str(script), "{connection_file}"]).front().connect()
    assert front.run("print(3)") == "3\n"


@pytest.mark.root
def test_a_keeper_listens_where_the_system_has_no_port_to_hand_out() -> None:
    code = (
        "import runpy, selectors, socket, sys\n"
        "taken = [socket.create_server(('127.0.0.1', port)) for port in (40000, 40001)]\n"
        "door = runpy.run_path(sys.argv[1])['ProxyListener'](b'', selectors.DefaultSelector(), print, print)\n"
        "print(door.port)\n"
    )
    few = "ip link set lo up && echo 40000 40001 > /proc/sys/net/ipv4/ip_local_port_range"
    words = ["unshare", "-n", "sh", "-c", f'{few} && exec "$@"', "sh", sys.executable, "-c", code]
    door = str(Path(resumable_link.__file__).parents[1] / "kernel" / "listener.py")
    told = subprocess.run([*words, door], capture_output=True, text=True, check=True, timeout=60)
    assert 20_000 <= int(told.stdout) < 32_000


@pytest.mark.root
def test_sockets_lie_where_there_is_room_and_what_a_killed_keeper_has_left_is_removed(
    keep: Keep, wait_for: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Path(tempfile.mkdtemp(prefix="jsl", dir="/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(disk)], check=True)
    try:
        monkeypatch.setenv("TMPDIR", str(disk))
        first = keep(cwd=str(tmp_path))
        front = first.front().connect()
        folder = Path(front.run("import sys; print(sys.argv[-1])").strip()).parent
        assert folder.parent == disk
        first.process.kill()
        first.wait()
        assert folder.exists()
        with contextlib.suppress(OSError):
            (disk / "full").write_bytes(bytes(1 << 20))
        other = keep(cwd=str(tmp_path))
        front = other.front().connect()
        assert Path(front.run("import sys; print(sys.argv[-1])").strip()).parent.parent != disk
        assert not folder.exists()
        front.end()
        assert other.wait() == 0, other.log()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
        disk.rmdir()
