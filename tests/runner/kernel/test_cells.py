"""Cells of other notebooks run in a kernel: between those of its own, with its variables, and nowhere else to be seen."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.render.terminal import plain
from jupyter_slurm.runner.variables import values_file

Keep = Callable[..., Any]


@pytest.fixture
def ended(wait_for: Callable[..., Any]) -> Callable[[Any, Path], dict[str, Any]]:
    """``ended(front, folder)``: how a cell ended; its kernel's front goes on meanwhile."""

    def wait(front: Any, folder: Path) -> dict[str, Any]:
        wait_for(lambda: front.pump() and (folder / "end.json").exists(), f"the end of {folder.name}")
        return dict(json.loads((folder / "end.json").read_text()))

    return wait


def shown(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "display.jsonl").read_text().splitlines()]


def test_a_cell_of_another_notebook_has_the_variables_and_leaves_no_trace(
    keep: Keep, ended: Callable[..., Any], tmp_path: Path
) -> None:
    keeper = keep(cwd=str(tmp_path))
    early = keeper.give("early", "y = 1")  # before the kernel is there
    front = keeper.front().connect()
    assert ended(front, early)["exit_code"] == 0
    front.run("x = [1]\n'a result'")
    counts = front.run("print(len(In), Out, _)")

    sent = tmp_path / "sent"
    source = {"kind": "source", "name": "sent", "source": "def sent(n): return n + y", "filename": "In[1]"}
    values_file.write(str(sent), [(source, [])])
    folder = keeper.give(
        "first", "x.append(sent(1)); z = x\nprint('printed')\nimport asyncio; await asyncio.sleep(0)\n{1: 2}",
        sent=sent, back=["z", "nothing"],
    )  # fmt: skip
    assert ended(front, folder) | {"time": 0} == {
        "format": 1, "exit_code": 0, "time": 0, "restarts": 0, "interrupted": False,
    }  # fmt: skip
    assert (folder / "stdout").read_text() == "printed\n{1: 2}\n"
    assert "nothing is not returned to the notebook" in (folder / "stderr").read_text()
    assert (folder / "started.json").exists()
    with (folder / "out.values").open("rb") as file:
        header, items = values_file.read(file)
    assert values_file.unpack(*items[-1], header) == {"z": [1, 2]}
    assert front.run("print(x, sent(2))") == "[1, 2] 3\n"
    assert front.run("print(len(In) - 2, {number: Out[number] for number in Out}, _)") == counts
    assert front.run("print([name for name in dir() if 'slurm' in name])") == "[]\n"

    folder = keeper.give(
        "second",
        "import io, base64\nfrom IPython.display import HTML, clear_output, display\n"
        "print('gone'); clear_output(); display(HTML('<b>1</b>'))\nhandle = display(1, display_id=True)\n"
        "handle.update(2)\nprint('end')\n'quiet';",
    )
    assert ended(front, folder)["exit_code"] == 0
    header, html, first, update = shown(folder)
    assert html["data"]["text/html"] == "<b>1</b>"
    printed = (folder / "stdout").read_bytes()
    assert printed.startswith(b"gone\n\x1b")
    assert printed.endswith(b"Hend\n")
    assert html["at"] == {"stdout": len(printed) - 4, "stderr": 7}
    assert (first["id"], first["type"], update["type"]) == (update["id"], "display", "update")

    # What it does with widgets and displays of the notebook itself is seen there, and that the kernel is at work.
    front.run("from IPython.display import display\nhandle = display('own', display_id=True)")
    folder = keeper.give("other", "import ipywidgets\nhandle.update('changed')\nipywidgets.IntSlider(value=3)")
    assert ended(front, folder)["exit_code"] == 0
    assert (folder / "stdout").read_text() == "IntSlider(value=3)\n"
    for kind in ("comm_open", "update_display_data"):
        front.until(lambda one, kind=kind: any(kind == it for told in one.heard.values() for it, _ in told), kind)

    folder = keeper.give("third", "def f(): 1 / 0\nf()")
    assert ended(front, folder)["exit_code"] == 1
    error = plain((folder / "stderr").read_text())
    assert "ZeroDivisionError: division by zero" in error
    assert "[77], line 2" in error
    assert "kernel_inside" not in error

    folder = keeper.give("fourth", "input('who?')")
    assert ended(front, folder)["exit_code"] == 1
    assert not [kind for number in front.heard.values() for kind, _ in number if kind == "input_request"]
    said = [content.get("text", "") for number in front.heard.values() for _, content in number]
    assert not any("printed" in text for text in said), "the notebook hears nothing of it"


def test_a_cell_waits_is_interrupted_and_withdrawn(
    keep: Keep, ended: Callable[..., Any], wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    keeper, gate = keep(cwd=str(tmp_path)), tmp_path / "gate"
    front = keeper.front().connect()
    front.run("import time, pathlib, asyncio")
    busy = front.execute("print('on')\nwhile not pathlib.Path('gate').exists(): time.sleep(0.05)\n1 / 0")
    front.until(lambda one: one.printed(busy), "its first words")
    behind = front.execute("print('behind')")
    waits = keeper.give("waits", "print('its turn')")
    never = keeper.give("never", "never = True")
    keeper.tell("never INT")
    assert ended(front, never)["interrupted"]
    assert not (never / "started.json").exists()
    assert not (waits / "started.json").exists()
    gate.touch()
    assert front.answer(busy)["ename"] == "ZeroDivisionError"
    assert front.answer(behind)["status"] == "aborted", "what fails stops those behind it in its notebook"
    assert ended(front, waits)["exit_code"] == 0
    assert (waits / "stdout").read_text() == "its turn\n", "and no other one's"
    assert front.run("print('never' in globals())") == "False\n"

    for key, source in (("sync", "time.sleep(1000)"), ("async", "await asyncio.sleep(1000)")):
        folder = keeper.give(key, f"print('on')\n{source}")
        wait_for(lambda folder=folder: front.pump() and (folder / "stdout").exists(), "its first words")
        keeper.tell(f"{key} INT")
        assert ended(front, folder) | {"time": 0, "format": 1} == {
            "format": 1, "exit_code": 130, "time": 0, "restarts": 0, "interrupted": True,
        }, plain((folder / "stderr").read_text())  # fmt: skip
    assert front.run("print('goes on')") == "goes on\n"

    running = keeper.give("running", "print('on')\nawait asyncio.sleep(1000)")
    wait_for(lambda: front.pump() and (running / "stdout").exists(), "its first words")
    waits = keeper.give("last", "1")
    keeper.tell("nonsense INT")
    front.end()
    ended_with = [json.loads((folder / "end.json").read_text()) for folder in (running, waits)]
    assert [end["interrupted"] for end in ended_with] == [False, True]
    assert ended_with[0]["lost"] == "its notebook ended or restarted it"
    assert keeper.wait() == 0, keeper.log()


def test_the_end_of_a_cell_is_recorded_once_that_is_possible(
    keep: Keep, ended: Callable[..., Any], wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    keeper, gate = keep(cwd=str(tmp_path)), tmp_path / "gate"
    front = keeper.front().connect()
    folder = keeper.give(
        "first", "import pathlib, time\nprint('on')\nwhile not pathlib.Path('gate').exists(): time.sleep(0.05)"
    )
    wait_for(lambda: front.pump() and (folder / "stdout").exists(), "its first words")
    draft = folder / "end.json.tmp"
    draft.mkdir()  # no file can be written there, as on a full disk
    gate.touch()
    wait_for(lambda: front.pump() and "could not be recorded yet" in keeper.log(), "the failure")
    assert front.run("print('goes on')") == "goes on\n"
    assert keeper.log().count("could not be recorded yet") == 1
    draft.rmdir()
    assert ended(front, folder)["exit_code"] == 0


def test_a_kernel_of_another_language_takes_no_such_cell(keep: Keep, ended: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import runpy\nfrom ipykernel.ipkernel import IPythonKernel\nIPythonKernel.implementation = 'echo'\n"
        "IPythonKernel.language_info = {'name': 'echo'}\nrunpy.run_module('ipykernel_launcher', run_name='__main__')\n"
    )

    keeper = keep(argv=[sys.executable, str(script), "-f", "{connection_file}"])
    front = keeper.front().connect()
    folder = keeper.give("cell", "1")
    assert ended(front, folder)["exit_code"] == 1
    assert "this kernel is for echo" in (folder / "stderr").read_text()
