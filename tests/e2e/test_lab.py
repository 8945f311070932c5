"""Tests of `make demo` and `make lab`: the notebook's jobs, or JupyterLab on it; nothing remains after any end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

DEMO = Path(__file__).resolve().parents[2] / "examples/run_demo.py"


class Demo:
    """Program of both, started by a shell as `make` does, with its output in a file."""

    def __init__(self, log: Path, env: dict[str, str], *arguments: str) -> None:
        self.log = log
        command = [sys.executable, str(DEMO), *arguments]
        with log.open("wb") as out:
            self.shell = subprocess.Popen(
                ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def find(self, pattern: str) -> str | None:
        found = re.search(pattern, self.log.read_text(errors="replace"))
        return found[1] if found else None

    @property
    def program(self) -> int:
        """Return the process id of the program."""
        (pid,) = Path(f"/proc/{self.shell.pid}/task/{self.shell.pid}/children").read_text().split()
        return int(pid)

    @property
    def directory(self) -> Path:
        directory = self.find(r"SLURM_CONF=(\S+)/etc/slurm\.conf")
        assert directory
        return Path(directory)


def processes_of(directory: Path) -> list[bytes]:
    """Return the processes with the directory in their arguments or environment."""
    wanted, found = os.fsencode(directory) + b"/", []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            except OSError:
                continue
            if wanted in text:
                found.append(entry.name.encode() + b" " + text[:100])
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Return ``start(*arguments)``, which runs the program for a user with a separate home."""
    foreign = ("JUPYTER", "XDG_", "SLURM")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    (tmp_path / "home").mkdir()
    started: list[Demo] = []

    def run(*arguments: str) -> Demo:
        env = {**inherited, "HOME": str(tmp_path / "home"), "TMPDIR": "/tmp"}
        started.append(Demo(tmp_path / "log", env, *arguments))
        return started[-1]

    yield run
    for demo in started:
        if demo.shell.poll() is None:
            os.killpg(demo.shell.pid, signal.SIGINT)
        demo.shell.wait(60)


@pytest.fixture
def lab(start: Callable[..., Demo], wait_for: Callable[..., Any]) -> Demo:
    """Provide JupyterLab, ready."""
    lab = start("--lab", "--no-browser", "--ServerApp.port=0")
    wait_for(lambda: lab.find(r"(http://127\.0\.0\.1:\d+/lab\S+token=\w+)"), "JupyterLab's address")
    return lab


def nothing_left(demo: Demo, wait_for: Callable[..., Any]) -> None:
    wait_for(lambda: not processes_of(demo.directory) and not demo.directory.exists(), "all to be gone")
    runtime = demo.log.parent / "home/.local/share/jupyter/runtime"
    assert not runtime.exists() or list(runtime.iterdir()) == []


def test_the_demo_runs_every_cell_and_takes_all_away(start: Callable[..., Demo], wait_for: Callable[..., Any]) -> None:
    demo = start()
    code = demo.shell.wait(240)
    said = demo.log.read_text()
    assert code == 0, said
    for pattern in (
        r"In │ %sinfo\n +│ PARTITION .*\n +│ arandu ",
        r"│ node: dgx01\n +│ GPUs: \d\n",
        r"│ \('\d+', 'COMPLETED', 0\)\n",
        r"│ step    1   loss    99\.5000\n(.*\n)+ +│ sin\(x\) is about 0\.000 \+ 0\.793 x",
        r"In │ long\.state\n +│ 'CANCELLED'\n",
        r"│ JobFailed: Job \d+ \(cell\.sh\): FAILED, on c4aiscw\d, partition devwork",
        r"In │ jupyter_slurm\.jobs\(\)\n +│ JOBID .*\n( +│ \d+ .*\n){4}",
        r"│ http://127\.0\.0\.1:8\d\d\d/jupyter-slurm/\S+\n +│ jupyterlab 4\.",
        r"as by a browser, and a cell runs .*\n(\n|  In │ .*\n)+ +│ dgx01 GPUs: \d\n",
        r"In │ training\.stop\(\)\n +│ Session \d+ \(training\): CANCELLED",
    ):
        assert re.search(pattern, said), f"{pattern}\n{said}"
    assert "Traceback" not in said
    assert said.endswith("Next, the same notebooks in JupyterLab: make lab\n")
    assert not demo.directory.exists()  # as announced
    nothing_left(demo, wait_for)
    assert {path.name for path in (demo.log.parent / "home").iterdir()} <= {".ipython", ".cache"}


@pytest.mark.browser
def test_a_person_runs_a_cell_and_presses_ctrl_c(lab: Demo, browser: Browser, wait_for: Callable[..., Any]) -> None:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(str(lab.find(r"(http://127\.0\.0\.1:\d+/lab\S+token=\w+)")))
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    expect(page.locator(".jp-Notebook h1")).to_have_text(re.compile("A cell becomes a job"), timeout=60_000)
    # Cells run before the start of a kernel are ignored.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=60_000)
    cells.first.click()
    for _ in range(2):  # %load_ext and %sinfo
        page.keyboard.press("Shift+Enter")
    expect(cells.nth(1).locator(".jp-OutputArea")).to_contain_text("c4aiscw[1-4]", timeout=60_000)
    page.close()
    os.killpg(lab.shell.pid, signal.SIGINT)
    lab.shell.wait(120)
    assert "Traceback" not in lab.log.read_text(errors="replace")
    nothing_left(lab, wait_for)


def test_it_ends_with_its_terminal(lab: Demo, wait_for: Callable[..., Any]) -> None:
    os.killpg(lab.shell.pid, signal.SIGHUP)
    nothing_left(lab, wait_for)


def test_it_ends_when_it_is_killed(lab: Demo, wait_for: Callable[..., Any]) -> None:
    os.kill(lab.program, signal.SIGKILL)
    nothing_left(lab, wait_for)


def test_it_ends_when_make_is_killed(lab: Demo, wait_for: Callable[..., Any]) -> None:
    lab.shell.kill()
    nothing_left(lab, wait_for)
