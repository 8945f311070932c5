"""Tests of the process for cells, as srun starts it: by its path, with commands on its standard input."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

RUNNER = str(resources.files("jupyter_slurm.runner.allocation").joinpath("step.py"))


class Process:
    """A process, and its cells by number."""

    def __init__(self, root: Path, *python: str) -> None:
        self.root, self._last = root, 0
        (root / "events").mkdir()
        self._make("process", kind="process")
        (root / "process" / "step.json").write_text(json.dumps({"has_output": False, "umask": None}))
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
        command = [*python, "-u", RUNNER, str(root / "process")]
        self.running = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=env, cwd=root)

    def _make(self, key: str, **record: Any) -> None:
        (self.root / key).mkdir()
        (self.root / key / "job.json").write_text(
            json.dumps({"key": key, "events": str(self.root / "events"), **record})
        )

    def begin(self, source: str, name: str | None = None, **more: Any) -> str:
        self._last += 1
        key = f"k{self._last}"
        cell = {"source": source, "filename": name or f"In[{self._last}]"}
        self._make(key, kind="python", cell=cell, **more)
        self.tell(key)
        return key

    def tell(self, line: str) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{line}\n")
        self.running.stdin.flush()

    def end(self, key: str) -> int:
        """Wait for the end of a cell; return its exit code."""
        path, deadline = self.root / key / "end.json", time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline and self.running.poll() is None:
            time.sleep(0.01)
        return int(json.loads(path.read_text())["exit_code"])

    def text(self, key: str, stream: str = "stdout") -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", (self.root / key / stream).read_text())

    def ran(self, source: str, **more: Any) -> str:
        """Run a cell that must succeed; return its output."""
        key = self.begin(source, **more)
        assert self.end(key) == 0, self.text(key, "stderr")
        return self.text(key)

    def failed(self, source: str, **more: Any) -> str:
        key = self.begin(source, **more)
        assert self.end(key) == 1
        return self.text(key, "stderr")

    def shown(self, key: str) -> list[dict[str, Any]]:
        lines = (self.root / key / "display.jsonl").read_text().splitlines()
        return [message for line in lines if "format" not in (message := json.loads(line))]


@pytest.fixture(params=["ipython", "plain"])
def process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    started = Process(tmp_path, sys.executable, "-I", *(["-S"] if request.param == "plain" else []))
    yield started
    started.running.kill()
    started.running.communicate()


def _until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_what_one_cell_leaves_the_next_one_finds(process: Process) -> None:
    process.ran("import asyncio\nx = [1]\nasync def later():\n    await asyncio.sleep(0.05)\n    x.append(2)")
    process.ran("async def start():\n    return asyncio.create_task(later())\ntask = await start()")
    _until(lambda: process.ran("x") == "[1, 2]\n")  # the loop also runs between cells
    assert process.ran("await task\ntask.done()") == "True\n"
    process.ran("x.clear()\ntask = asyncio.create_task(later())")  # the loop runs under a cell without an await
    _until(lambda: process.ran("x") == "[2]\n")
    process.ran("x.insert(0, 1)")
    assert "from a running event loop" in process.failed("asyncio.run(asyncio.sleep(0))"), "as in a kernel"
    assert "StopIteration" in process.failed("next(iter([]))")
    assert process.ran("await asyncio.sleep(0)\n_ = x\nx[-1]") == "2\n"
    process.ran(
        "handle = display('a', display_id=True)\nclass Html:\n    def _repr_html_(self): return '<b>1</b>'\ndisplay(Html())"
    )
    key = process.begin("handle.update('b')")
    assert process.end(key) == 0
    updated = process.shown(key)[0]
    assert (updated["type"], updated["data"]["text/plain"]) == ("update", "'b'")
    first, second = process.shown("k" + str(int(key[1:]) - 1))
    assert (first["id"], second["data"]["text/html"]) == (updated["id"], "<b>1</b>")
    over = process.root / "over"
    waits = f"\n    while not os.path.exists({str(over)!r}): time.sleep(0.01)\n    print('late')"
    late = process.begin(f"import os, threading, time\ndef late():{waits}\nthreading.Thread(target=late).start()")
    assert process.end(late) == 0
    over.touch()
    _until(lambda: "late" in (process.root / "process" / "stdout").read_text())
    assert process.ran("1") == "late\n1\n"
    assert process.text(late) == "", "who waited for that cell may not have seen it, or has: the next cell tells it"
    files = f"/proc/{process.running.pid}/fd"
    before = len(os.listdir(files))
    for _ in range(5):
        process.ran("display(Html())")
    _until(lambda: len(os.listdir(files)) <= before + 1)  # a file may be open for a moment
    key = process.begin(
        "import os, sys\nif os.fork() == 0:\n    print('child', flush=True)\n    sys.exit(5)\nos.wait()[1] >> 8"
    )
    assert process.end(key) == 0
    assert sorted(process.text(key).splitlines()) == ["5", "child"]
    assert process.ran("x") == "[1, 2]\n"


def test_a_cell_under_the_loop_may_do_what_it_may_in_a_kernel(process: Process) -> None:
    process.ran("import asyncio\nasync def fails(): raise ValueError('late')\ntask = asyncio.create_task(fails())")
    assert "late" in process.failed("await task")
    process.begin("asyncio.get_running_loop().stop()")
    assert process.ran("await asyncio.sleep(0, 7)") == "7\n"
    up = process.root / "up"
    waits = f"pathlib.Path({str(up)!r}).touch()\n    await go.wait()\n    seen.append('later')"
    key = process.begin(
        f"import pathlib\nseen, go = [], asyncio.Event()\ntry:\n    {waits}\nfinally:\n    seen.append('told')"
    )
    _until(up.exists)
    process.tell(f"{key} INT")
    assert process.end(key) == 130
    assert "KeyboardInterrupt" in process.text(key, "stderr")
    assert "CancelledError" not in process.text(key, "stderr")
    process.ran("go.set()\nfor _ in range(9): await asyncio.sleep(0)")
    assert process.ran("seen") == "['told']\n"  # nothing of the cell runs later
    key = process.begin("%%capture caught\nprint('x' * 2)")
    if process.end(key) == 0:  # with IPython
        assert process.ran("caught.stdout") == "'xx\\n'\n"
        process.ran("%autoawait off")
        assert process.ran("get_ipython().run_cell('1 + 1').result") == "2\n2\n"


def test_it_notes_how_much_memory_it_has_also_while_a_cell_runs(process: Process, wait_for: Any) -> None:
    noted = process.root / "process" / "memory.json"
    go, large = process.root / "go", 200 << 20
    wait = f"import pathlib, time\nmuch = bytearray({large})\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    key = process.begin(wait)
    wait_for(lambda: noted.exists() and json.loads(noted.read_text())["now"] > large, "it is noted")
    assert noted.stat().st_mode & 0o777 == 0o600
    go.touch()
    assert process.end(key) == 0


def test_errors_show_the_lines_of_their_own_cells(process: Process) -> None:
    process.ran("def f():\n    return 1 / 0", name="In[1]")
    assert "return 1 / 0" in process.failed("f()", name="In[2]")
    process.ran("def g():\n    return f()", name="In[1]")  # another notebook has the same number
    said = process.failed("g()", name="In[2]")
    assert "return 1 / 0" in said
    assert "return f()" in said
    said = process.failed("def ask():\n    return input('? ')\nask()")
    assert "input() is not possible" in said
    assert "return input('? ')" in said
    assert "allocation/process.py" not in said
    assert "input() is not possible" in process.failed("import getpass\ngetpass.getpass()")
    assert "SyntaxError" in process.failed("def broken(:\n    pass")
    key = process.begin("import sys\nsys.exit(3)")
    assert process.end(key) == 3


def test_an_interrupt_is_for_the_cell_that_is_meant(process: Process) -> None:
    wait = "import pathlib, time\npathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
    up, never = process.root / "up", process.root / "never"
    first = process.begin("kept = 1\n" + wait.format(str(up), str(never)))
    second, third = process.begin("kept += 1"), process.begin("kept += 10")
    _until(up.exists)
    process.tell(f"{second} INT")
    assert process.end(second) == 130
    assert json.loads((process.root / second / "end.json").read_text())["interrupted"]
    assert not (process.root / second / "started.json").exists()
    process.tell(f"{first} INT")
    assert process.end(first) == 130
    assert "KeyboardInterrupt" in process.text(first, "stderr")
    assert "allocation/process.py" not in process.text(first, "stderr")  # no frames of jupyter_slurm
    assert process.end(third) == 0
    process.tell(f"{first} INT")  # the cell has ended, and no other one is meant
    assert process.ran("kept") == "11\n"
    deaf = process.begin(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + wait.format(str(up) + "2", str(up) + "3")
    )
    _until((process.root / "up2").exists)
    process.tell(f"{deaf} INT")
    (process.root / "up3").touch()
    assert process.end(deaf) == 0
    up.unlink()
    again = process.begin(wait.format(str(up), str(never)))  # a signal handler of a cell does not affect the next cell
    _until(up.exists)
    process.tell(f"{again} INT")
    assert process.end(again) == 130


def test_it_ends_with_exit_and_with_who_holds_it(process: Process) -> None:
    assert process.ran("1") == "1\n"
    key = process.begin("print('bye')\nexit()")
    assert process.running.wait(60) == 0
    assert not (process.root / key / "end.json").exists()  # the parent records the end of the cell
    assert process.text(key) == "bye\n"
    assert (process.root / "events" / f"{key}.started").exists()


def test_it_ends_when_nobody_holds_it(process: Process) -> None:
    assert process.ran("1") == "1\n"
    assert process.running.stdin is not None
    process.running.stdin.close()
    assert process.running.wait(60) == 0


@pytest.mark.root
@pytest.mark.parametrize("options", [("-I",), ("-I", "-S")], ids=["ipython", "plain"])
def test_a_full_disk_ends_no_process_and_ends_are_recorded_when_there_is_room(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)], check=True)
    process = Process(tmp_path, sys.executable, *options)
    try:
        process.ran("x = [1]")
        for key, source in (("fails", "1 / 0"), ("prints", "print(x)"), ("waits", "x")):
            process._make(key, kind="python", cell={"source": source, "filename": key})
        with contextlib.suppress(OSError), open(tmp_path / "full", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        process.tell("fails")
        process.tell("prints")
        _until(lambda: (tmp_path / "prints" / "stdout").exists() or process.running.poll() is not None)
        assert process.running.poll() is None
        (tmp_path / "full").unlink()
        assert process.end("fails") == 1
        assert process.end("prints") in (0, 1)
        assert process.ran("x") == "[1]\n"
    finally:
        process.running.kill()
        process.running.communicate()
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
