"""Tests of %slurm sh: commands on the login node, from a notebook and a terminal, here and over SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def beats(sign: Path) -> bool:
    """Return whether a process shows signs of life in a file."""
    before = sign.stat().st_mtime_ns
    time.sleep(0.5)
    return sign.stat().st_mtime_ns != before


def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def beat(sign: Path) -> str:
    return f"( while :; do echo >'{sign}'; sleep 0.1; done ) >/dev/null 2>&1 &\n"


def terminal(environment: dict[str, str], *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
    env = {**os.environ, **environment}
    return subprocess.run(argv, env=env, capture_output=True, timeout=90, check=False, **options)


def test_a_cell_runs_in_the_login_shell(kernel: Any) -> None:
    ran = kernel.ok("# the shell\n%%slurm sh\necho $((6 * 7)); echo \"a 'b' {x} $0\" | cut -c 1-9; echo oops >&2\ncat")
    assert (ran.stdout, ran.stderr) == ("42\na 'b' {x}\n", "oops\n")


def test_a_line_is_unchanged_and_out_keeps_its_text(kernel: Any) -> None:
    kernel.ok("x = 'not this'")
    ran = kernel.ok("%slurm sh out=said x=1; echo $x {x}; printf '\\377\\033[31mred\\n'; echo err >&2")
    assert (ran.stdout, ran.stderr) == ("", "err\n")
    assert kernel.value("repr(said)") == repr("1 {x}\n\ufffd\x1b[31mred\n")


def test_output_appears_while_the_command_runs(kernel: Any, gate: Callable[[str], Path]) -> None:
    request = kernel.begin(f"%%slurm sh\necho begun; until [ -e '{gate('go')}' ]; do sleep 0.1; done; echo done")
    until(lambda: kernel.pump() or any("begun" in str(message["content"]) for message in kernel.under(request)))
    assert "done\\n" not in str([message["content"].get("text") for message in kernel.under(request)])
    gate("go").touch()
    assert kernel.end(request).stdout == "begun\ndone\n"


def test_a_failed_command_raises_its_exit_code(kernel: Any) -> None:
    ran = kernel.run("%slurm sh echo before; exit 3")
    assert (ran.stdout, ran.error) == ("before\n", "CommandError")
    assert "exit code 3" in ran.traceback
    ran = kernel.run("%slurm sh no-such-command-here")
    assert "no-such-command-here" in ran.stderr
    assert "exit code 127" in ran.traceback


def test_an_interrupt_ends_the_command_and_its_children(kernel: Any, gate: Callable[[str], Path]) -> None:
    sign = gate("sign")
    request = kernel.begin(f"%%slurm sh\n{beat(sign)}sleep 1000")
    until(sign.exists)
    assert beats(sign)
    kernel.manager.interrupt_kernel()
    ran = kernel.end(request)
    assert "Interrupted: the command on" in ran.traceback
    assert "local-" not in ran.traceback
    until(lambda: not beats(sign))
    assert kernel.ok("%slurm sh -- echo again -- x").stdout == "again -- x\n"


def test_a_large_output_is_read_to_its_end_and_shown_in_part(kernel: Any) -> None:
    ran = kernel.ok("%slurm sh seq 1 3000000; echo the end", timeout=300)
    assert ran.stdout.startswith("1\n2\n3\n")
    assert ran.stdout.endswith("3000000\nthe end\n")
    assert len(ran.stdout) < 270_000
    assert "characters of stdout are not shown" in ran.stderr


def test_words_of_the_notebook_that_are_wrong(kernel: Any) -> None:
    for code, said in (
        ("%slurm sh", "There is no command."),
        ("%%slurm sh\n\n", "There is no command."),
        ("%%slurm sh wait\ntrue", "no keyword 'wait'"),
        ("%slurm sh out=1x true", "Use `%slurm sh [out=NAME] COMMAND`, or `%%slurm sh [out=NAME]` with"),
        ("%slurm sh local -- ls", "Choose the cluster first: `%slurm use local`, then `%slurm sh ls`."),
        ("%%slurm list\nx", "Only %%slurm sh takes a cell."),
        ("%%slurm sh\n#!/usr/bin/env python3\nprint(1)", "The text is for python3"),
    ):
        ran = kernel.run(code)
        assert (ran.status, said in ran.traceback) == ("error", True), (code, ran.traceback)


def test_a_terminal_gets_the_bytes_and_the_exit_code(environment: dict[str, str], kernel: Any) -> None:
    kernel.ok("%slurm sh true")  # the login of the notebook
    done = terminal(environment, "sh", "--", "printf '\\377\\000%s' \"$((1 + 1))\"; echo no >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, b"\xff\x002", b"no\n")
    done = terminal(environment, "sh", "--", "echo", "a   b", "'c   d'")
    assert (done.returncode, done.stdout) == (0, b"a b c   d\n")
    done = terminal(environment, "sh", input=b"cat\necho from stdin\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"from stdin\n", b"")
    assert terminal(environment, "sh", "one", "two", "--", "x").returncode == 1
    assert b"jupyter slurm sh [CLUSTER]" in terminal(environment, "sh", "--help").stdout


def test_control_c_in_a_terminal(environment: dict[str, str], kernel: Any, gate: Callable[[str], Path]) -> None:
    sign = gate("sign")
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "sh", "--", f"{beat(sign)}sleep 1000"]
    with subprocess.Popen(argv, env={**os.environ, **environment}, stderr=subprocess.DEVNULL) as process:
        until(sign.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    until(lambda: not beats(sign))


def test_a_terminal_that_is_killed_ends_its_command(
    environment: dict[str, str], kernel: Any, gate: Callable[[str], Path]
) -> None:
    sign = gate("sign")
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "sh", "--", f"{beat(sign)}sleep 1000"]
    with subprocess.Popen(argv, env={**os.environ, **environment}, stderr=subprocess.DEVNULL) as process:
        until(sign.exists)
        process.kill()
    until(lambda: not beats(sign))


def test_a_login_that_has_ended_is_made_again(kernel: Any) -> None:
    kernel.ok("%slurm sh true")
    if "far" not in kernel.ok("%slurm list").result["text/plain"]:
        return
    kernel.ok("%slurm disconnect far")
    assert kernel.ok("%slurm sh echo again").stdout == "again\n"
