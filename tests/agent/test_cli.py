"""``jupyter slurm``: output for users, and for programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm import _version
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting import discovery, log_file
from jupyter_slurm.agent.hosting.agent_host import serve_in_thread
from jupyter_slurm.cli.terminal import for_terminal
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.magics import COMMANDS

Cli = Callable[..., subprocess.CompletedProcess[str]]

_STAGE = {"folders": [{"source": "/here", "dest": "/there"}], "local": None, "state": "back", "files": 2, "left": []}
_STAGE |= {"done": 0, "total": 0, "bytes": 2, "error": None, "given_up": False}


@pytest.fixture
def cli(daemon_settings: Settings, place: Path) -> Cli:
    """Run ``jupyter slurm …`` in a separate process, with the test's settings in a configuration file."""
    values = {name: getattr(daemon_settings, name) for name in ("runtime_dir", "state_dir", "job_root", "agent_host")}
    (place / "config").mkdir()
    (place / "config" / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": values}))

    def run(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jupyter_slurm.cli.main", *argv],
            env={**(env or os.environ), "JUPYTER_CONFIG_DIR": str(place / "config"), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout.strip() == _version.__version__
    shown = cli("--help").stdout
    for command in ("jobs", "show", "cancel", "clean", "agent", "embedded"):
        assert command in shown
    assert cli().returncode == 2


@pytest.mark.parametrize("command", ["jobs", "show", "cancel", "clean", "agent", "embedded"])
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: jupyter slurm {command}" in done.stdout


@pytest.mark.parametrize(
    "words", ["resources", "usage", "who", "room", "sessions", "tunnel --list", "jobs", "agent status"]
)
def test_a_command_closes_its_connection(cli: Cli, words: str) -> None:
    done = cli(*words.split(), env={**os.environ, "PYTHONWARNINGS": "default::ResourceWarning"})
    assert "ResourceWarning" not in done.stderr
    assert cli("agent", "stop").returncode == 0


@pytest.mark.parametrize(
    "argv", [["nonsense"], ["agent"], *(["clean", "--older-than", days] for days in ("-1", "nan", "week"))]
)
def test_wrong_usage(cli: Cli, argv: list[str]) -> None:
    done = cli(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage:" in done.stderr
    assert "clean" not in argv or f"{argv[-1]!r} is not a number of days" in done.stderr
    assert "Traceback" not in done.stderr


def test_only_what_is_asked_for_is_imported() -> None:
    code = """
import sys
from jupyter_slurm.cli.main import main
try:
    main(["agent", "--help"])
except SystemExit:
    pass
print(*sorted({"httpx", "tornado", "traitlets", "jupyter_slurm.cli.embedded", "jupyter_slurm.cli.jobs"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_no_agent(cli: Cli, daemon_settings: Settings) -> None:
    done = cli("agent", "status")
    assert done.returncode == 1
    assert "No agent is running." in done.stdout
    assert json.loads(cli("agent", "status", "--json").stdout)["running"] is False
    assert cli("agent", "stop").returncode == 0
    done = cli("agent", "logs")
    assert log_file.log_path(daemon_settings) in done.stderr
    assert discovery.search_locations(daemon_settings) == []  # and the query has started none


def test_status_logs_and_stop(cli: Cli, daemon_settings: Settings) -> None:
    with AgentClient.connect(daemon_settings) as client:
        pid = client.info["pid"]
    done = cli("agent", "status")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"process {pid}" in done.stdout
    assert "It holds: nothing." in done.stdout
    status = json.loads(cli("agent", "status", "--json").stdout)
    assert (status["running"], status["pid"], status["version"]) == (True, pid, _version.__version__)
    assert f"pid {pid}" in cli("agent", "logs").stdout
    assert cli("agent", "logs", "-n", "1", "--json").stdout.count("leads") == 1
    done = cli("agent", "stop")
    assert (done.returncode, done.stdout) == (0, "Stopped the agent. Jobs continue.\n")
    assert cli("agent", "status").returncode == 1


def test_a_busy_agent_is_not_stopped_as_idle(cli: Cli, daemon_settings: Settings, core: Any) -> None:
    core.held = {"submissions": 1}
    agent = serve_in_thread(daemon_settings, core)
    assert agent is not None
    done = cli("agent", "stop", "--only-idle")
    assert done.returncode == 1
    assert done.stderr.startswith("jupyter slurm agent: The agent holds 1 submission.\n")
    assert "jupyter slurm agent stop" in done.stderr
    assert "Traceback" in cli("--debug", "agent", "stop", "--only-idle").stderr
    assert cli("agent", "status").returncode == 0
    assert cli("agent", "stop").returncode == 0
    agent.stop()


def test_what_others_wrote_reaches_no_terminal(cli: Cli, daemon_settings: Settings, core: Any) -> None:
    """Check that escape sequences, newlines and overlong job names have no effect, and fake no row."""
    job = {"key": None, "cluster": "local", "id": "12", "state": "RUNNING", "known": False}
    evil = {"name": "a\x1b[31m\nb\u202e", "reason": "x\x07", "submit_time": 1.0}

    lost = {"stage": {**_STAGE, "error": "rsync failed: \x1b[31m.", "given_up": True}}
    over = {"state": "COMPLETED", "known": True, "finished": True}

    async def jobs(*, active: bool, days: float | None = None) -> list[dict[str, Any]]:
        assert not active
        return [{**job, **evil}, {**job, **over, "id": "13", **lost}, {**job, **over, "id": "14", "stage": _STAGE}]

    async def describe(ref: str) -> dict[str, Any]:
        if ref not in ("13", "14"):
            return core.job(ref)
        return {**job, **over, "id": ref, **(lost if ref == "13" else {"stage": _STAGE})}

    core.local.jobs.list_jobs, core.local.jobs.describe = jobs, describe
    agent = serve_in_thread(daemon_settings, core)
    assert agent is not None
    shown = cli("jobs").stdout
    assert len(shown.splitlines()) == 3  # one is finished, and needs no action
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert shown.splitlines()[2].endswith("Results missing: jupyter slurm bring 13")
    assert len(cli("jobs", "--all").stdout.splitlines()) == 4
    missing = cli("bring", "13")
    assert (missing.returncode, missing.stdout, "\x1b" in missing.stderr) == (1, "", False)
    assert "They are in /there; `jupyter slurm bring 13`" in missing.stderr
    brought = cli("bring", "14")
    assert (brought.returncode, brought.stdout) == (0, "14: 2 new or changed files copied back\n"), brought.stderr
    assert "RUNNING?" in shown  # the controller does not answer: the last known state
    assert json.loads(cli("jobs", "--json").stdout)[0]["name"] == evil["name"]
    done = cli("show", "99")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "jupyter slurm show: there is no job 99\nLook.\n"
    agent.stop()


@pytest.mark.slurm
def test_jobs_on_a_real_cluster(
    cli: Cli, daemon_settings: Settings, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    env = cluster.env()
    script = "#!/bin/sh\nsleep 300\n"
    done = subprocess.run(
        ["sbatch", "--parsable", "--gres=gpu:1", "-J", "by-hand", "-o", "/dev/null"],
        input=script,
        env=env,
        capture_output=True,
        text=True,
    )
    number = done.stdout.strip()
    listed = cli("jobs", env=env)
    assert listed.returncode == 0, listed.stderr
    assert any(line.split()[:2] in ([number, "PENDING"], [number, "RUNNING"]) for line in listed.stdout.splitlines())
    shown = cli("show", number, env=env)
    assert "by-hand" in shown.stdout
    assert json.loads(cli("show", number, "--json", env=env).stdout)["id"] == number
    assert cli("show", number, "--script", env=env).stdout == script
    wait_for(lambda: " RUNNING " in cli("jobs", env=env).stdout, "it runs")
    report = cli("report", number, env=env)
    assert (report.returncode, f"{number}, RUNNING" in report.stdout) == (0, True), report
    told = json.loads(cli("report", number, "--json", env=env).stdout)
    assert (told["id"], told["state"], told["cpus"] >= 1) == (number, "RUNNING", True)
    free = cli("resources", "--nodes", env=env)
    assert (free.returncode, free.stderr) == (0, "")
    assert re.search(r"^a100 +8 +0 +8 +8$", free.stdout, re.MULTILINE), free.stdout
    assert re.search(r"^c4aiscw1 +MIXED +devwork +16 +1 .* 1 of 1$", free.stdout, re.MULTILINE), free.stdout
    assert re.search(r"You use: 1 CPU, \d+ [GM]iB, 1 GPU in 1 job$", free.stdout, re.MULTILINE), free.stdout
    used = cli("usage", env=env)
    assert (used.returncode, "no slurmdbd" in used.stderr) == (1, True), used
    partitions = json.loads(cli("resources", "--json", env=env).stdout)["partitions"]
    assert [one["name"] for one in partitions] == ["arandu", "devwork"]
    nobody = cli("report", "999999", env=env)
    assert (nobody.returncode, nobody.stdout, "999999" in nobody.stderr) == (1, "", True)
    refused = cli("release", number, "999999", env=env)
    assert (refused.returncode, refused.stdout) == (1, f"Job {number} was released: RUNNING.\n"), refused
    assert refused.stderr.startswith("999999: You have no job 999999.")
    cancelled = cli("cancel", number, env=env)
    assert (cancelled.returncode, number in cancelled.stdout) == (0, True), cancelled.stderr
    over = f"Job {number} had finished before: CANCELLED.\n"
    wait_for(lambda: cli("cancel", number, env=env).stdout == over, "its end is told")
    assert cli("cancel", number, env=env).returncode == 0
    signalled = cli("cancel", "-s", "USR1", number, env=env)
    assert signalled.returncode == 1
    assert "No signal was sent." in signalled.stdout
    brought = cli("bring", number, env=env)
    assert (brought.returncode, f"Job {number} has no staged folder" in brought.stderr) == (1, True), brought
    cleaned = cli("clean", "--dry-run", "--older-than", "0", env=env)
    assert cleaned.stdout.endswith("0 would be removed, 0 kept.\n"), cleaned
    done = cli("show", "999999", env=env)
    assert done.returncode == 1
    assert "999999" in done.stderr
    assert "`squeue --me` shows your jobs in the queue, `jupyter slurm jobs --all`" in done.stderr
    assert "%" not in done.stderr


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("`%squeue --me` or `%sinfo -o '%P %G'`", "`squeue --me` or `sinfo -o '%P %G'`"),
        ("jupyter_slurm.jobs() lists yours.", "`jupyter slurm jobs --all` lists yours."),
        ("Read it from jupyter_slurm.job(12).state.", "Read it from `jupyter slurm show 12`."),
        ("`%%sbatch?` shows the options", "`sbatch --help` shows the options"),
        ("Use `%slurm image list`.", "Use `jupyter slurm image list`."),
        (
            "`%slurm room` shows all disks, `%slurm who` all users",
            "`jupyter slurm room` shows all disks, `jupyter slurm who` all users",
        ),
        *((f"`%{command} --help`", f"`{command} --help`") for command in COMMANDS),
        ("Check it with `%slurm sh ls -ld`.", "Check it with `jupyter slurm sh -- ls -ld`."),
        ("the cell below `%%slurm sh`", "the cell below `jupyter slurm sh`"),
        ("when `%slurm list` shows it", "when `jupyter slurm connect` shows it"),
        ("`%slurm use far` in a notebook", "`%slurm use far` in a notebook"),
        ("Slurm's %s and 5%sacks stay", "Slurm's %s and 5%sacks stay"),
    ],
)
def test_hints_can_be_typed_in_a_terminal(told: str, shown: str) -> None:
    assert for_terminal(told) == shown


@pytest.mark.slurm
def test_the_parts_of_a_job_and_of_an_array_and_their_folders(
    cli: Cli, daemon_settings: Settings, cluster: EmbeddedCluster, place: Path, wait_for: Callable[..., Any]
) -> None:
    env = cluster.env()
    with AgentClient.connect(daemon_settings) as client:
        asked = {"slurm_conf": str(cluster.slurm_conf), "path": env.get("PATH")}
        path = f"/v1/clusters/{client.post('/v1/clusters', json=asked)['id']}/jobs"
        cell = {"text": "print('a cell')\n", "kind": "python", "python": sys.executable}
        script = {"text": "#!/bin/sh\nsleep 60\n", "kind": "script", "options": ["--array", "1-2%1", "-J", "two words"]}
        context = {"cwd": str(place), "env": env}
        made = [
            client.post(path, json={**part, "key": f"20260101-000000-0000000{n}", "context": context})["id"]
            for n, part in enumerate((cell, script))
        ]
    assert cli("show", made[0], "--source", env=env).stdout == cell["text"]
    assert cell["text"] not in cli("show", made[0], "--script", env=env).stdout
    refused = cli("show", made[1], "--source", env=env)
    assert refused.returncode == 1
    assert "not a Python cell" in refused.stderr
    shown = cli("show", f"{made[1]}_2", env=env).stdout
    assert "/stdout.2\n" in shown
    assert " --array 1-2%1 -J 'two words' " in shown
    missing = cli("show", f"{made[1]}_7", env=env)
    assert missing.returncode == 1
    assert missing.stderr == f"jupyter slurm show: Job {made[1]} has no task 7.\nIts tasks are 1-2.\n"
    wait_for(lambda: json.loads(cli("show", made[0], "--json", env=env).stdout)["finished"], "the end of the cell")
    ended, goes_on = (Path(json.loads(cli("show", job, "--json", env=env).stdout)["folder"]) for job in made)
    young = cli("clean", "--older-than", "1", env=env)
    assert young.stdout == "0 removed, 2 kept.\n", young
    assert ended.is_dir()
    cleaned = cli("clean", "--older-than", "0", env=env)
    assert cleaned.stdout == f"{ended}\n1 removed, 1 kept.\n", cleaned
    assert not ended.exists()
    assert (goes_on / "job.json").exists()


def test_a_queue_that_cannot_be_read_is_no_empty_queue(cli: Cli, daemon_settings: Settings, core: Any) -> None:
    """Check that the last known jobs are shown, with the reason why there may be more."""
    error = {"detail": "Slurm does not answer: \x1b[31mno", "hint": "Try again in a minute."}
    known = core.clusters.list_clusters()[0]
    core.clusters.list_clusters = lambda: [{**known, "poll": {**known["poll"], "failing_for": 90.0, "error": error}}]
    nothing = False

    async def jobs(*, active: bool, days: float | None = None) -> list[dict[str, Any]]:
        job = {"key": None, "cluster": "local", "id": "12", "state": "RUNNING", "known": False, "submit_time": 1.0}
        return [] if nothing else [job]

    core.local.jobs.list_jobs = jobs
    agent = serve_in_thread(daemon_settings, core)
    assert agent is not None
    for nothing in (False, True):
        done = cli("jobs")
        assert done.returncode == 1
        assert done.stderr.startswith("The queue cannot be read since ")
        assert done.stderr.endswith("Slurm does not answer: \\x1b[31mno. Try again in a minute.\n")
        assert ("RUNNING?" in done.stdout) is not nothing
        assert "No jobs" not in done.stdout
        assert len(json.loads(cli("jobs", "--json").stdout)) == (0 if nothing else 1)
    agent.stop()


def test_a_configuration_that_is_not_there_is_said_at_once(cli: Cli, daemon_settings: Settings, place: Path) -> None:
    """Check that the error comes at once: Slurm's own commands wait a minute for the file."""
    started = time.monotonic()
    done = cli("jobs", env={**os.environ, "SLURM_CONF": str(place / "nowhere.conf")})
    assert time.monotonic() - started < 45
    assert (done.returncode, done.stdout) == (1, "")
    assert f"SLURM_CONF names {place}/nowhere.conf, which does not exist." in done.stderr
    assert "Set SLURM_CONF" in done.stderr
