"""Tests of a remote cluster from a notebook and from a terminal: the login prompts the user in place, once."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def home(short_tmp: Path) -> Path:
    """Provide a short folder, for the path of a Unix socket."""
    (short_tmp / "far").mkdir()
    return short_tmp / "far"


@pytest.fixture(scope="module")
def environment(home: Path, settings_of: Callable[..., dict[str, str]], ssh_site: Site) -> Iterator[dict[str, str]]:
    """Provide the environment of a laptop: no local Slurm, and a site profile; the agent ends with the module."""
    (home / "sites").mkdir()
    (home / "sites" / "far.toml").write_text(f'[login]\nhost = "login"\nssh_config = "{ssh_site.ssh_config}"\n')
    yield {**os.environ, **settings_of(home, sites=[str(home / "sites")])}
    connect_to_agent(home).stop_agent()


@pytest.fixture(autouse=True)
def _logged_out(cli: Callable[..., Any]) -> None:
    """End the login that another test has left: they share an agent, in any order."""
    assert cli("disconnect", "far", "--yes").returncode == 0


def connect_to_agent(home: Path) -> AgentClient:
    """Connect this process to the agent of the module."""
    folders = {"job_root": str(home / "jobs"), "runtime_dir": str(home / "run"), "state_dir": str(home / "state")}
    return AgentClient.connect(Settings(**folders), start=False)


def test_a_notebook_asks_for_the_code_once(bare_kernel: Any, ssh_site: Site) -> None:
    kernel = bare_kernel
    kernel.ok("%load_ext jupyter_slurm")
    kernel.answer = ssh_site.codes.next
    used = kernel.ok("%slurm use far")
    assert "far" in used.result["text/plain"]
    assert len(kernel.asked) == 1
    ran = kernel.ok("%%sbatch wait as=job\nimport os\nprint('on', os.uname().nodename)")
    assert "on node" in kernel.value("job.stdout")
    assert ran.status == "ok"
    assert "node1" in kernel.ok("%sinfo -N").result["text/plain"]
    kernel.restart()
    kernel.ok("%slurm use far")
    assert kernel.value("__import__('jupyter_slurm').jobs()[0].state") == "COMPLETED"
    assert len(kernel.asked) == 1, "the log-in outlives the kernel"
    listed = kernel.ok("%slurm list").result["text/plain"]
    assert kernel.ok("%slurm").result["text/plain"] == listed
    assert "far  connected, in use\n    notebook, process " + kernel.value("__import__('os').getpid()") in listed
    wrong = kernel.run("%slurm use nowhere")
    assert wrong.error == "ConfigError"
    assert "known: far" in wrong.traceback
    assert "Did you mean 'use'?" in kernel.run("%slurm uses far").traceback


def test_a_host_for_transfers_asks_for_its_code_once(
    bare_kernel: Any, ssh_site: Site, home: Path, cli: Callable[..., Any], tmp_path: Path
) -> None:
    profile, other = home / "sites" / "far.toml", home / "sites" / "other.toml"
    before = profile.read_text()
    profile.write_text(f'{before}[storage]\ntransfer_host = "gateway"\n')
    try:
        kernel = bare_kernel
        kernel.ok("%load_ext jupyter_slurm")
        kernel.answer = ssh_site.codes.next
        kernel.ok("%slurm use far")
        asked = len(kernel.asked)
        (tmp_path / "x").write_text("sent")
        assert "Copied 1 file" in kernel.ok(f"%slurm put {tmp_path}/x sent-1").result["text/plain"]
        kernel.ok(f"%slurm get sent-1 {tmp_path}/back")
        assert (tmp_path / "back").read_text() == "sent"
        assert len(kernel.asked) == asked + 1

        # In a copy between two clusters, that of the second asks, too: after its login.
        other.write_text(profile.read_text())
        kernel.ok("%slurm copy far:sent-1 other:sent-2")
        kernel.ok(f"%slurm get other:sent-2 {tmp_path}/other")
        assert (tmp_path / "other").read_text() == "sent"
        assert len(kernel.asked) == asked + 3
    finally:
        for name in ("far", "other"):
            assert cli("disconnect", name, "--yes").returncode == 0
        profile.write_text(before)
        other.unlink(missing_ok=True)


def in_terminal(
    environment: dict[str, str], words: Sequence[str], question: bytes, answer: Callable[[], str | None]
) -> tuple[int, bytes]:
    """Run a subcommand in a terminal with an answer to one prompt, or none (None); return exit code and output."""
    command = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
    main, terminal = pty.openpty()
    with subprocess.Popen(
        command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    ) as process:
        os.close(terminal)
        said, has_answered = b"", False
        while process.poll() is None or select.select([main], [], [], 0)[0]:
            try:
                if select.select([main], [], [], 0.2)[0]:
                    said += os.read(main, 4096)
            except OSError:
                break
            if question in said and not has_answered:
                has_answered = True
                if (typed := answer()) is not None:
                    os.write(main, typed.encode() + b"\n")
        process.wait(60)
    os.close(main)
    assert has_answered, said
    return process.returncode, said


def test_a_terminal_asks_without_showing_what_is_typed(
    environment: dict[str, str], ssh_site: Site, cli: Callable[..., Any]
) -> None:
    code = ssh_site.codes.next()
    done, said = in_terminal(environment, ["connect", "far"], b"erification code", lambda: code)
    assert done == 0, said
    assert b"Connected to far (gateway -> login)" in said
    assert code.encode() not in said
    assert "far: connected since" in cli("connect").stdout
    assert cli("disconnect", "far").stdout == "Disconnected from far. Jobs continue.\n"


def test_a_terminal_goes_on_when_the_code_is_given_elsewhere(
    environment: dict[str, str], ssh_site: Site, cli: Callable[..., Any], home: Path
) -> None:
    with connect_to_agent(home) as other:

        def elsewhere() -> None:
            (prompt,) = other.get("/v1/prompts")
            other.post(f"/v1/prompts/{prompt['id']}", json={"answers": [ssh_site.codes.next()]})

        done, said = in_terminal(environment, ["connect", "far"], b"erification code", elsewhere)
    assert done == 0, said
    assert b"answered elsewhere" in said
    assert b"Connected to far" in said
    assert cli("disconnect", "far").returncode == 0


def test_who_ends_a_log_in_is_told_who_uses_it(
    bare_kernel: Any, environment: dict[str, str], ssh_site: Site, cli: Callable[..., Any]
) -> None:
    kernel = bare_kernel
    kernel.ok("import os; os.environ['JPY_SESSION_NAME'] = 'work/fit \x1b[2Jtwo.ipynb'\n%load_ext jupyter_slurm")
    kernel.answer = ssh_site.codes.next
    kernel.ok("%slurm use far")
    listed = f"    fit \\x1b[2Jtwo.ipynb (notebook, process {kernel.value('os.getpid()')}) since "
    assert listed in cli("connect").stdout
    done, said = in_terminal(environment, ["disconnect", "far"], b"anyway? [y/n]", lambda: "n")
    assert done == 1
    assert f"1 other uses this login:\n{listed}" in said.decode().replace("\r", "")
    assert "far: connected" in cli("connect").stdout
    kernel.ok("%slurm use local")
    assert "notebook" not in cli("connect").stdout
    kernel.ok("%slurm use far")
    ended = cli("disconnect", "far", "--yes")
    assert ended.stdout == "Disconnected from far. Jobs continue.\n"
    kernel.ok("%slurm use far")
    assert len(kernel.asked) == 2
    assert "Disconnected" in kernel.ok("%slurm disconnect far").result["text/plain"], "it is not asked about itself"
    kernel.ok("%slurm use far")
    kernel.ok("%%sbatch as=first\n#!/bin/sh\ntrue")
    assert cli("disconnect", "far", "--yes").returncode == 0
    kernel.ok("%%sbatch as=second\n#!/bin/sh\ntrue")
    assert len(kernel.asked) == 4, "a submission logs in by itself, and who makes it is asked"
    assert kernel.value("first.id == second.id") == "False"
    unasked = cli("disconnect", "far", stdin=subprocess.DEVNULL)
    assert unasked.returncode == 1
    assert unasked.stdout.startswith(f"1 other uses this login:\n{listed}")
    assert "a script cannot ask for confirmation.\nUse `jupyter slurm disconnect --yes far`" in unasked.stderr
    assert "far: connected" in cli("connect").stdout


def test_a_notebook_asks_before_it_ends_what_others_use(bare_kernel: Any, ssh_site: Site, home: Path) -> None:
    kernel = bare_kernel
    kernel.ok("%load_ext jupyter_slurm")
    kernel.answer = ssh_site.codes.next
    kernel.ok("%slurm use far")
    with connect_to_agent(home) as other:
        other.post("/v1/clusters/far/connect", json={"client": {"kind": "kernel", "name": "<b>.ipynb"}})
        kernel.answer = lambda: "n"
        kept = kernel.ok("%slurm disconnect far")
        assert f"1 other uses this login:\n    <b>.ipynb (notebook, process {os.getpid()}) since" in kept.stdout
        assert kept.result["text/plain"] == "Kept the login to far."
        assert "far  connected" in kernel.ok("%slurm list").result["text/plain"]
        kernel.answer = None  # as if a notebook is executed as a whole
        assert "Disconnected" in kernel.ok("%slurm disconnect far").result["text/plain"]


def test_who_cannot_be_asked_is_told_what_to_do(environment: dict[str, str], cli: Callable[..., Any]) -> None:
    done = cli("connect", "far", stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "jupyter slurm connect far" in done.stderr


@pytest.fixture
def cli(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return ``cli("connect", "far")``, which runs a subcommand without a terminal."""

    def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jupyter_slurm.cli.main", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            start_new_session=True,
            check=False,
            **options,
        )

    return run


def test_who_waits_for_a_silent_link_is_told_so_once(bare_kernel: Any, ssh_site: Site, wait_for: Any) -> None:
    """Before the loss of the link is known: queries are cancelled at once; a submission waits, and is made once."""
    kernel, said = bare_kernel, "The connection to far does not answer (login"
    kernel.ok("%load_ext jupyter_slurm")
    kernel.answer = ssh_site.codes.next
    kernel.ok("%slurm use far")
    kernel.ok("%%sbatch as=before\n#!/bin/sh\ntrue")

    def is_told(request: str) -> bool:
        kernel.pump()
        return said in str([m["content"] for m in kernel.under(request) if m["msg_type"] == "stream"])

    ssh_site.gateway.drop()
    try:
        for cell, who in (("%sinfo", "sinfo"), ("before.stdout", "far")):
            asked = kernel.begin(cell)
            wait_for(lambda asked=asked: is_told(asked), "that the link is waited for")
            kernel.manager.signal_kernel(signal.SIGINT)
            ran = kernel.end(asked)
            assert (ran.error, ran.traceback) == ("WaitInterrupted", f"Interrupted: {who} has not answered.")
        submitting = kernel.begin("%%sbatch as=job\n#!/bin/sh\ntrue")
        wait_for(lambda: is_told(submitting), "that the link is waited for")
    finally:
        ssh_site.gateway.restore()
    ran = kernel.end(submitting)
    assert (ran.status, ran.stderr.count(said)) == ("ok", 1), ran.traceback
    listed = ssh_site.slurm.run("squeue", "--noheader", "--states=all", "--format=%o").stdout.split()
    assert listed.count(kernel.value("job._data['script_path']")) == 1
