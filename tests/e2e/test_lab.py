"""`make lab`: JupyterLab on the notebook, and nothing of it is left however it ends."""

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


class Lab:
    """The program of `make lab`, started by a shell as `make` does, with what it prints in a file."""

    def __init__(self, log: Path, env: dict[str, str]) -> None:
        self.log = log
        command = [sys.executable, str(DEMO), "--lab", "--no-browser", "--ServerApp.port=0"]
        with log.open("wb") as out:
            self.shell = subprocess.Popen(
                ["/bin/sh", "-c", '"$@"; true', "sh", *command],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def find(self, pattern: str) -> str | None:
        found = re.search(pattern, self.log.read_text(errors="replace"))
        return found[1] if found else None

    @property
    def program(self) -> int:
        """The process id of the program."""
        (pid,) = Path(f"/proc/{self.shell.pid}/task/{self.shell.pid}/children").read_text().split()
        return int(pid)

    @property
    def directory(self) -> Path:
        directory = self.find(r"SLURM_CONF=(\S+)/etc/slurm\.conf")
        assert directory
        return Path(directory)


def processes_of(directory: Path) -> list[bytes]:
    """What runs and has to do with the directory, by its arguments or its environment."""
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
def lab(tmp_path: Path, wait_for: Callable[..., Any]) -> Iterator[Lab]:
    """A running one, whose person has a home folder of its own."""
    foreign = ("JUPYTER", "XDG_", "SLURM")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    (tmp_path / "home").mkdir()
    lab = Lab(tmp_path / "log", {**inherited, "HOME": str(tmp_path / "home"), "TMPDIR": "/tmp"})
    try:
        wait_for(lambda: lab.find(r"(http://127\.0\.0\.1:\d+/lab\S+token=\w+)"), "JupyterLab's address")
        yield lab
    finally:
        if lab.shell.poll() is None:
            os.killpg(lab.shell.pid, signal.SIGINT)
        lab.shell.wait(60)


def nothing_left(lab: Lab, wait_for: Callable[..., Any]) -> None:
    wait_for(lambda: not processes_of(lab.directory) and not lab.directory.exists(), "all to be gone")
    runtime = lab.log.parent / "home/.local/share/jupyter/runtime"
    assert not runtime.exists() or list(runtime.iterdir()) == []


@pytest.mark.browser
def test_a_person_runs_a_cell_and_presses_ctrl_c(lab: Lab, browser: Browser, wait_for: Callable[..., Any]) -> None:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(str(lab.find(r"(http://127\.0\.0\.1:\d+/lab\S+token=\w+)")))
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    expect(page.locator(".jp-Notebook h1")).to_have_text(re.compile("A cell becomes a job"), timeout=60_000)
    # What is run before there is a kernel is not run at all.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=60_000)
    cells.first.click()
    for _ in range(2):  # %load_ext and %sinfo
        page.keyboard.press("Shift+Enter")
    expect(cells.nth(1).locator(".jp-OutputArea")).to_contain_text("c4aiscw[1-4]", timeout=60_000)
    page.close()
    os.killpg(lab.shell.pid, signal.SIGINT)
    lab.shell.wait(30)
    assert "Traceback" not in lab.log.read_text(errors="replace")
    nothing_left(lab, wait_for)


def test_it_ends_with_its_terminal(lab: Lab, wait_for: Callable[..., Any]) -> None:
    os.killpg(lab.shell.pid, signal.SIGHUP)
    nothing_left(lab, wait_for)


def test_it_ends_when_it_is_killed(lab: Lab, wait_for: Callable[..., Any]) -> None:
    os.kill(lab.program, signal.SIGKILL)
    nothing_left(lab, wait_for)


def test_it_ends_when_make_is_killed(lab: Lab, wait_for: Callable[..., Any]) -> None:
    lab.shell.kill()
    nothing_left(lab, wait_for)
