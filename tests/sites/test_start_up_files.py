"""Tests of whole things over SSH with start-up files that print, bind names, set traps or change the shell."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from replicas import Replica
from replicas.laptop import Cell

_NAMES = ("ls", "cat", "cd", "printf", "read", "sh", "python3", "rsync", "kill")
_COMMANDS = ("srun", "squeue", "sbatch", "scancel", "docker", "tar", "env")
_ALIASES = "\n".join(f"alias {name}='echo evil'" for name in (*_NAMES, *_COMMANDS))
_SAYS = "echo welcome to the cluster\necho quota: 3 GB left >&2\nstty erase ^H\n"

# Login shell, start-up files.
START_UP_FILES = {
    "strict bash": (
        "/bin/bash",
        {
            ".bashrc": f"{_SAYS}shopt -s expand_aliases\n{_ALIASES}\nfunction sinfo {{ echo evil; }}\nexport -f sinfo\n"
            "alias exec='echo evil'\nset -u -o pipefail\nexport PROMPT_COMMAND='echo evil' BASH_ENV=~/.bashrc CDPATH=/tmp GREP_OPTIONS=--color\n"
            "export PS4='+ evil ' LS_COLORS=x TERM=dumb EDITOR=vi\ntrap 'echo debug' DEBUG\nset -e\n"
        },
    ),
    "bash that becomes zsh": (
        "/bin/bash",
        {".bashrc": "exec zsh\n", ".zshenv": f"{_SAYS}setopt aliases noglob noclobber\n{_ALIASES}\n"},
    ),
    "tcsh": (
        "/usr/bin/tcsh",
        {
            ".tcshrc": f"{_SAYS.replace(' >&2', '')}set noclobber\nset prompt='%m> '\n"
            + _ALIASES.replace("=", " ")
            + "\nalias precmd 'echo evil'\nsetenv GREP_OPTIONS --color\n",
            ".login": "echo logged in\n",
        },
    ),
}
_IMAGE = "docker://nvcr.io/nvidia/pytorch:22.11-py3"


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.nightly) if "zsh" in name else name for name in START_UP_FILES]
)
def files(replica: Replica, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the user a login shell and start-up files, and log in with them; undone after the test."""
    shell, files = START_UP_FILES[request.param]
    account, laptop = pwd.getpwnam(replica.user), replica.laptop

    def log_in_with(shell: str, files: dict[str, str | None]) -> None:
        assert laptop.command("disconnect", replica.name, "--yes").returncode == 0
        subprocess.run(["usermod", "--shell", shell, replica.user], check=True, capture_output=True)
        for name, text in files.items():
            (replica.home / name).unlink(missing_ok=True)
            if text is not None:
                (replica.home / name).write_text(text)
                os.chown(replica.home / name, account.pw_uid, account.pw_gid)
        said = laptop.connect()
        assert said.code == 0, said.text

    had = {name: (replica.home / name).read_text() if (replica.home / name).exists() else None for name in files}
    try:
        log_in_with(shell, dict(files))
        yield request.param
    finally:
        log_in_with(account.pw_shell, had)


def ok(replica: Replica, code: str) -> str:
    cell = replica.laptop.run(code)
    assert not cell.error, f"{code}\n{cell.text}\n{cell.error}"
    return cell.text


@pytest.mark.timeout(600)
@pytest.mark.sites("arandu")
def test_jobs_sessions_and_kernels_do_not_meet_the_start_up_files(
    replica: Replica, files: str, wait_for: Callable[..., Any]
) -> None:
    folder = replica.laptop.home / "work" / "sent"
    folder.mkdir(exist_ok=True)
    (folder / "note").write_text("of the laptop")
    ok(
        replica,
        "%%sbatch as=job wait out=x stage=sent\nx = open('note').read()\n_ = open('back', 'w').write('of the job')",
    )
    assert ok(replica, "print(x, repr(job.stdout), repr(job.stderr))") == "of the laptop '' ''\n"
    wait_for(lambda: (folder / "back").exists(), "the file of the job")
    ok(replica, "%%sbatch as=script wait\n#!/bin/sh\necho of a script")
    assert ok(replica, "print(repr(script.stdout), repr(script.stderr))") == "'of a script\\n' ''\n"

    ok(replica, "%salloc as=held")
    ok(replica, "%%remote on=held out=y\ny = 6 * 7")
    ok(replica, "%%srun on=held as=step wait\n#!/bin/sh\necho of a step")
    assert ok(replica, "print(y, repr(step.stdout), repr(step.stderr))") == "42 'of a step\\n' ''\n"
    ok(replica, "held.release()")
    table = ok(replica, "%squeue")
    assert "evil" not in table
    assert "welcome" not in table

    if files == "bash that becomes zsh":  # each shell waits some seconds for it: the rest is the same
        return
    options = ["-p", "devwork", "-w", "c4aiscw1", f"env={_IMAGE}", "--cluster", replica.name]
    launched = replica.laptop.command("launch", "name=session", *options)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    assert "ready" in launched.stdout
    stopped = replica.laptop.command("stop", "session", "--cluster", replica.name)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    told = run_in_kernel(
        replica, "import os; print(os.uname().nodename)", "-p", "devwork", "-w", "c4aiscw1", f"env={_IMAGE}"
    )
    assert told.splitlines()[-1:] == ["c4aiscw1"]


def run_in_kernel(replica: Replica, code: str, *words: str) -> str:
    """Run a cell in a new kernel on a node; return its output."""
    laptop = replica.laptop
    place = Path(tempfile.mkdtemp(prefix="k", dir=laptop.home / "run"))
    (place / "far").mkdir()
    argv = [sys.executable, "-P", "-m", "jupyter_slurm.kernels", "-f", "{connection_file}", replica.name, *words]
    (place / "far/kernel.json").write_text(json.dumps({"argv": argv, "display_name": "far", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(place)], ensure_native_kernel=False)
    manager = KernelManager(
        kernel_name="far", kernel_spec_manager=specs, connection_file=str(place / "c.json"), transport="ipc"
    )
    manager.start_kernel(env=laptop.env, cwd=str(laptop.home / "work"))
    client = manager.blocking_client()
    client.start_channels()
    cell = Cell()
    try:
        client.wait_for_ready(timeout=120)
        client.execute_interactive(code, timeout=120, output_hook=cell.hear, allow_stdin=False)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()
    assert not cell.error, cell.error
    return cell.text
