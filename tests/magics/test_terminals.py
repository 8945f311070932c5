"""Tests of ``jupyter slurm shell``: terminals on the login node and in a job, here and over SSH."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from screens import Screen

pytestmark = pytest.mark.slurm

DETACH = b"\x1dd"


def shell(environment: dict[str, str], *words: str) -> str:
    """Return the error of ``jupyter slurm shell`` on a terminal."""
    screen = Screen(environment, *words)
    assert screen.end() == 1
    screen.close()
    return screen.text


def listed(environment: dict[str, str]) -> str:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "shell", "--list"]
    return subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, check=True, text=True).stdout


def test_a_terminal_outlives_its_viewer(open_screen: Any, environment: dict[str, str], kernel: Any) -> None:
    kernel.ok("%slurm sh true")  # the login of the notebook
    screen = open_screen()
    screen.wait(rb"[#$%>] ")  # start-up files may drop what is typed before
    screen.ask("echo $((6 * 7))-${#TERM}", rb"42-14\r\n")
    screen.ask("stty size", rb"30 100\r\n")
    screen.resize(90, 20)
    screen.process.send_signal(signal.SIGWINCH)
    screen.ask("until stty size | grep '^20 90$'; do sleep 0.1; done", rb"20 90\r\n")
    screen.ask("printf '\\033]52;c;b2xk\\007\\033[6n\\033[?1003h'; echo sent", rb"\x1b\]52;c;b2xk\x07.*sent\r\n")
    screen.type(DETACH)
    name = screen.wait(rb"shell ([0-9a-f]{8})`(?s:.*)\x1b\[\?1003l")[1].decode()  # the mouse is the user's again
    assert screen.end() == 0
    assert name in listed(environment)

    back = open_screen(name)
    before = back.wait(rb"42-14\r\n(?s:.*)sent\r\n")[0]  # the scrollback
    assert b"b2xk\x07" not in before, "an old clipboard does not replace that of now"
    assert b"\x1b[6n" not in before
    back.ask("exit 5", rb"exit 5")
    assert back.end() == 5
    assert name not in listed(environment)


FULL_SCREEN = """
import curses, os

def show(screen):
    screen.timeout(200)  # a signal just before a read would be seen after the next key only
    key = 0
    while key != ord("q"):
        screen.clear()  # all is drawn again
        screen.addstr(0, 0, f"size-{curses.LINES}x{curses.COLS}-{os.environ['TERM']}.")
        screen.refresh()
        if (key := screen.getch()) == curses.KEY_RESIZE:
            curses.update_lines_cols()

curses.wrapper(show)
"""


def test_a_full_screen_program_is_resized(open_screen: Any, kernel: Any, home: Path) -> None:
    kernel.ok("%slurm sh true")
    (home / "full.py").write_text(FULL_SCREEN)
    screen = open_screen()
    screen.wait(rb"[#$%>] ")
    screen.ask(f"/usr/bin/python3 {home}/full.py", rb"size-30x100-xterm-256color\.")
    screen.resize(120, 41)
    screen.process.send_signal(signal.SIGWINCH)
    screen.wait(rb"size-41x120-")
    screen.type(b"q")
    screen.ask("exit 7", rb"exit 7")
    assert screen.end() == 7


@pytest.mark.carrier("openssh")
def test_keys_pass_beside_the_agent(open_screen: Any, kernel: Any) -> None:
    """Over paramiko, the agent itself encrypts them."""
    kernel.ok("%slurm sh true")
    screen = open_screen()
    screen.wait(rb"[#$%>] ")
    agent = (
        "__import__('jupyter_slurm.client.clusters.cluster').client.clusters.cluster.current().client.get('/v1/agent')"
    )
    process = int(kernel.value(f"{agent}['pid']"))
    os.kill(process, signal.SIGSTOP)
    try:
        screen.ask("echo $((6 * 7))", rb"42\r\n")
    finally:
        os.kill(process, signal.SIGCONT)
    screen.ask("exit 5", rb"exit 5")
    assert screen.end() == 5


def test_a_shell_in_a_job_ends_with_it(open_screen: Any, kernel: Any) -> None:
    kernel.ok("%%sbatch as=job\n#!/bin/bash\nsleep 600")
    job = kernel.value("job.id").strip("'")
    kernel.ok("import time\nwhile job.refresh().state != 'RUNNING': time.sleep(0.2)")
    screen = open_screen(str(job))
    screen.wait(rb"[#$%>] ")
    screen.ask("echo in $SLURM_JOB_ID", rb"in " + str(job).encode() + rb"\r\n")
    screen.ask("tty | cut -c 1-8", rb"/dev/pts\r\n")
    kernel.ok("job.cancel()")
    assert screen.end() != 0


@pytest.mark.carrier("openssh", "paramiko")
def test_a_broken_connection_repeats_no_input(open_screen: Any, kernel: Any, way: Any) -> None:
    kernel.ok("%slurm sh true")
    screen = open_screen()
    screen.wait(rb"[#$%>] ")
    screen.ask("stty -echo; echo up; while read x; do echo got-$x.; done", rb"up\r\n")
    screen.ask("first", rb"got-first\.\r\n")
    if way.is_remote:  # every connection, also the shared one of OpenSSH
        way.host.stop()
        way.host.kill_sessions()
    else:
        agent = "__import__('jupyter_slurm.client.clusters.cluster').client.clusters.cluster.current().client.get('/v1/agent')"
        os.kill(int(kernel.value(f"{agent}['pid']")), signal.SIGKILL)
    for number in range(20):
        screen.type(b"typed-%d\r" % number)  # lost, or in time
    screen.wait(rb"The connection broke\.")
    if way.is_remote:
        way.host.start()
    screen.wait(rb"\x1bc(?s:.*)got-first\.\r\n", seconds=120)  # the scrollback
    output = screen.ask("last", rb"(?s)(.*)got-last\.\r\n")[1]
    numbers = [int(number) for number in re.findall(rb"got-typed-(\d+)\.\r\n", output)]
    assert numbers == sorted(set(numbers))
    assert b"first" not in output
    screen.type(b"\x04exit\r")
    screen.end()


def test_targets_by_name(open_screen: Any, environment: dict[str, str], kernel: Any, wait_for: Any) -> None:
    kernel.ok("%salloc as=train -c 1 keep")
    job = kernel.value("train.wait_granted().id").strip("'")
    screen = open_screen("train")
    screen.wait(rb"[#$%>] ")
    screen.ask("echo in $SLURM_JOB_ID", rb"in " + job.encode() + rb"\r\n")
    line = rf"[0-9a-f]{{8}}  \S+  train \(job {job}\) on \S+  2"  # the node may not be known right after the start
    wait_for(lambda: re.search(line, listed(environment)), "the node in the list")
    screen.ask("exit 3", rb"exit 3")
    assert screen.end() == 3

    for name in ("train", "twin", "twin"):  # a name of Slurm counts less than one of jupyter_slurm
        kernel.ok(f"%%sbatch -J {name} -H\n#!/bin/bash\nsleep 600")
    screen = open_screen("train")
    screen.wait(rb"[#$%>] ")
    screen.type(DETACH)
    screen.end()
    refused = shell(environment, "twin")
    assert re.search(r"Several jobs have the name twin: \d+ \(job, PENDING\), \d+ \(job, PENDING\)", refused), refused
    assert "No job, session, kernel or allocation has the name nothing" in shell(environment, "nothing")


def test_words_that_are_wrong(environment: dict[str, str], kernel: Any) -> None:
    kernel.ok("%slurm sh true")
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "shell"]
    for words, said in (([], "must be a terminal"), (["ffffffff", "--close"], "is not a terminal of")):
        done = subprocess.run(
            [*argv, *words], env={**os.environ, **environment}, capture_output=True, check=False, text=True
        )
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
