"""Tests of the completion of the command line: argcomplete's protocol, and a real bash."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.terminal import converse

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting import discovery
from jupyter_slurm.agent.hosting.agent_host import serve_in_thread
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster

Complete = Callable[..., list[str]]


@pytest.fixture
def environment(daemon_settings: Settings, place: Path) -> dict[str, str]:
    """Provide the variables of a user with two site profiles, and a command ``jupyter-slurm``."""
    (place / "config").mkdir()
    (place / "sites").mkdir()
    (place / "bin").mkdir()
    for name in ("far", "near"):
        (place / "sites" / f"{name}.toml").write_text('[login]\nhost = "login.invalid"\n')
    values = {name: getattr(daemon_settings, name) for name in daemon_settings.trait_names(config=True)}
    values["sites"] = [str(place / "sites")]
    (place / "config" / "jupyter_slurm_config.json").write_text(json.dumps({"JupyterSlurm": values}))
    script = place / "bin" / "jupyter-slurm"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m jupyter_slurm.cli.main "$@"\n')
    script.chmod(0o700)
    return {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_DATA_DIR": str(place / "data"),
        "PATH": f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.fixture
def complete(environment: dict[str, str], place: Path) -> Complete:
    """Return ``complete(line)``, which asks as a shell does and returns the completions of its last word."""

    def ask(line: str, env: dict[str, str] | None = None) -> list[str]:
        asked = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(place / "completions"),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }
        argv = [line.partition(" ")[0]]
        done = subprocess.run(
            argv,
            env={**(env or environment), **asked},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return [word.strip() for word in (place / "completions").read_text().splitlines()]

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("jupyter-slurm do", {"doctor"}),
        ("jupyter slurm do", {"doctor"}),
        ("jupyter slurm jobs --cluster ", {"far", "near", "local"}),
        ("jupyter-slurm doctor ", {"far", "near"}),
        ("jupyter-slurm init sky", {"skynet"}),
        ("jupyter-slurm init hpc", {"hpc2019"}),
        ("jupyter-slurm sites show a", {"aau-aicloud", "aicloud", "arandu"}),
        ("jupyter-slurm config poll", {"poll_longest", "poll_shortest"}),
        ("jupyter-slurm agent st", {"status", "stop"}),
        ("jupyter-slurm launch fa", {"far"}),
        ("jupyter-slurm launch far --par", {"--parsable", "--partition"}),
        ("jupyter-slurm launch far -p gpu pyth", {"python="}),
        ("jupyter-slurm kernel add --cluster n", {"near"}),
        ("jupyter-slurm kernel sw", {"switch"}),
        ("jupyter-slurm kernel remove ", {"slurm-gpu"}),
        ("jupyter-slurm kernel switch tr", {"train.ipynb"}),
        ("jupyter-slurm image bu", {"build"}),
        ("jupyter-slurm image list --cluster f", {"far"}),
        ("jupyter-slurm cancel ", set()),
        ("jupyter-slurm stop ", set()),
    ],
)
def test_words_from_files_without_an_agent(
    complete: Complete, daemon_settings: Settings, place: Path, line: str, expected: set[str]
) -> None:
    kernel = place / "data" / "kernels" / "slurm-gpu"
    kernel.mkdir(parents=True)
    metadata = {"kernel_provisioner": {"provisioner_name": "jupyter-slurm"}}
    spec = {"argv": ["x", "{connection_file}", "-p", "gpu"], "display_name": "GPU", "metadata": metadata}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    (place / "train.ipynb").write_text("{}")
    found = set(complete(line))
    assert found == expected
    assert discovery.search_locations(daemon_settings) == [], "no agent was started"


def test_jobs_and_sessions_of_a_running_agent(
    complete: Complete, daemon_settings: Settings, core: Any, wait_for: Callable[..., Any]
) -> None:
    running = {"key": None, "cluster": "local", "id": "12", "state": "RUNNING", "known": True, "name": "train"}
    finished = {**running, "id": "13", "state": "COMPLETED", "finished": True}

    async def jobs(*, active: bool, days: float | None = None) -> list[dict[str, Any]]:
        return [running] if active else [running, finished]

    async def names(name: str, kind: str, *_: Any, **__: Any) -> dict[str, Any]:
        place = {"allocation": {"name": "box", "about": "11, RUNNING"}, "running": {"name": "12", "about": "train"}}
        return {"taken": 1.0, "names": [place[kind]]}

    core.local.jobs.list_jobs = jobs
    core.clusters.list_names = names
    agent = serve_in_thread(daemon_settings, core)
    assert agent is not None
    # A shell waits two seconds for the agent at most: on a busy machine the user presses the key again.
    for line, expected in (
        ("cancel ", ["12"]),
        ("show 1", ["12", "13"]),
        ("tunnel ", ["12", "login"]),
        ("stop ", ["jupyter-1"]),
        ("show --cluster far ", []),
        ("launch -p gpu on=", ["on=box", "on=12"]),
        ("kernel add on=b", ["on=box"]),
    ):
        wait_for(lambda line=line, expected=expected: complete(f"jupyter-slurm {line}") == expected, line)
    agent.stop()


@pytest.mark.slurm
def test_jobs_of_a_real_cluster(
    complete: Complete, environment: dict[str, str], daemon_settings: Settings, cluster: EmbeddedCluster
) -> None:
    env = {**environment, **{name: cluster.env()[name] for name in ("SLURM_CONF",)}}
    argv = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap=sleep 300"]
    job = subprocess.run(argv, env=cluster.env(), cwd="/", capture_output=True, text=True, check=True).stdout.strip()
    assert complete("jupyter-slurm cancel ", env) == []
    with AgentClient.connect(daemon_settings) as client:
        client.post("/v1/clusters", json={"slurm_conf": env["SLURM_CONF"], "path": cluster.env().get("PATH")})
        started = time.monotonic()
        assert job in complete("jupyter-slurm cancel ", env)
        assert time.monotonic() - started < 10
        client.stop_agent()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("program", "typed", "shown"),
    [
        ("jupyter-slurm", "jupyter-slurm disc\tne\t--help", "jupyter-slurm disconnect near"),
        ("jupyter", "jupyter slurm disc\tne\t--help", "jupyter slurm disconnect near"),
    ],
)
def test_a_tab_in_bash(environment: dict[str, str], program: str, typed: str, shown: str) -> None:
    dialogue = [
        (r"\$ ", f'eval "$(register-python-argcomplete {program})"; PS1="ready> "'),
        ("\nready> ", typed),
        ("usage: (.|\n)*ready> ", "exit"),
    ]
    env = {**environment, "PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null"}
    said = converse(["setsid", "--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"], env, dialogue, timeout=60)
    assert f"{shown} --help" in said.text
