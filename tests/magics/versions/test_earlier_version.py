"""Tests of agents, clients and job directories of the earlier layout beside the present ones: formats are unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.magics.versions.conftest import stop_agent

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("versions differ in their Python, not in the connection")]

PYTHON = f"python={sys.executable}"
VERSIONS = [("earlier", "present"), ("present", "earlier")]

# The unmodified answer of the agent, which a front end of either version uses.
_LISTED = """
import json
def listed():
    try:
        from jupyter_slurm.agent.client.agent_client import AgentClient
    except ImportError:
        from jupyter_slurm.agent.client import AgentClient
    from jupyter_slurm.config import Settings
    from jupyter_slurm.config import Settings
    with open(os.environ["JUPYTER_CONFIG_DIR"] + "/jupyter_slurm_config.json") as file:
        client = AgentClient.connect(Settings(**json.load(file)["Settings"]), start=False)
    cluster = next(one["id"] for one in client.get("/v1/clusters") if one.get("slurm_conf"))
    jobs = client.get(f"/v1/clusters/{cluster}/jobs", params={"state": "all"})
    answers = {job["key"]: {
        "job": {name: value for name, value in job.items() if name not in _CHANGING},
        "record": client.get(f"/v1/clusters/{cluster}/jobs/{job['key']}/record"),
        "agent": client.info["pid"],
    } for job in jobs if job.get("key")}
    print(json.dumps(answers))
"""


def _answers(kernel: Any) -> dict[str, Any]:
    kernel.ok("_CHANGING = ('known', 'unknown_since', 'state_since')\n" + _LISTED)
    answers: dict[str, Any] = json.loads(kernel.value("listed() or ''").strip())
    return answers


def _facts(job: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job that both versions have, without sentences and times.

    The times of the runner come first, and those of Slurm replace them.
    """
    left_out = ("reason_text", "next_step", "start_time", "end_time")
    return {name: value for name, value in job.items() if name in other and name not in left_out}


def _lasting(answers: dict[str, Any]) -> dict[str, Any]:
    """Return answers without what changes when Slurm's own times arrive."""
    return {name: {**answer, "job": _facts(answer["job"], answer["job"])} for name, answer in answers.items()}


def _agents(answers: dict[str, Any]) -> set[int]:
    """Return the process ids of the agents that gave the answers."""
    return {answer["agent"] for answer in answers.values()}


def _submit_all(kernel: Any) -> list[str]:
    """Submit a job of each common kind and wait for its end; return the names of their objects."""
    kernel.ok("x = {'a': [1, 2]}")
    kernel.ok(f"%%sbatch wait in=x out=y as=python {PYTHON} --time 5\ny = x['a'] + [3]\nprint('out', y)\ny")
    kernel.ok("%%sbatch wait as=script -J 'two words' -- 'an argument'\n#!/bin/sh\necho script $1\nexit 0")
    kernel.run("%%sbatch wait as=failed\n#!/bin/sh\necho no >&2\nexit 3")
    kernel.ok(f"%%sbatch wait as=array --array 0-2 {PYTHON}\nimport os\nprint(os.environ['SLURM_ARRAY_TASK_ID'])")
    return ["python", "script", "failed", "array"]


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_a_client_works_with_the_agent_of_the_other_version(
    kernel_of: Callable[[str], Any], first: str, second: str
) -> None:
    older = kernel_of(first)
    names = _submit_all(older)
    keys = {name: older.value(f"{name}.key") for name in names}
    before = _answers(older)
    newer = kernel_of(second)
    answers = _answers(newer)
    assert _lasting(answers) == _lasting(before), "another agent, or other answers"
    newer.ok(f"job = jupyter_slurm.job({keys['python']!r})")
    assert newer.value("job.outputs['y'], job.result(), job.state") == older.value(
        "python.outputs['y'], python.result(), python.state"
    )
    assert newer.value(f"jupyter_slurm.job({keys['failed']!r}).exit_code") == "3"
    assert newer.value(f"jupyter_slurm.job({keys['script']!r}).stdout.strip()") == "script an argument"
    # A submission of the second version is executed by the agent and the runner of the first.
    newer.ok("v = 20")
    newer.ok(f"%%sbatch wait in=v out=w as=mine {PYTHON}\nw = v + 22\nprint(w)")
    assert newer.value("mine.outputs['w'], mine.stdout.strip()") == "42 42"
    newer.ok("again = mine.resubmit(time='6:00')")
    newer.ok("again.wait()")
    assert newer.value("again.outputs['w']") == "42"
    newer.ok("%%sbatch as=held --hold\n#!/bin/sh\nsleep 60")
    newer.ok("held.cancel()")
    assert newer.value("held.state") == "CANCELLED"
    assert _agents(_answers(newer)) == _agents(before)


@pytest.mark.parametrize(("first", "second"), VERSIONS)
def test_job_directories_of_the_other_version_are_read(
    kernel_of: Callable[[str], Any], shared_home: dict[str, str], gate: Callable[[str], Any], first: str, second: str
) -> None:
    older = kernel_of(first)
    names = _submit_all(older)
    opened = gate("go-on")
    older.ok(
        f"%%sbatch as=running out=z {PYTHON}\nimport pathlib, time\n"
        f"while not pathlib.Path({str(opened)!r}).exists(): time.sleep(0.1)\nz = 'late'\nprint(z)"
    )
    key = older.value("running.key")
    before = _answers(older)
    older.stop()
    stop_agent(shared_home)
    newer = kernel_of(second)
    newer.ok(f"running = jupyter_slurm.job({key!r})")  # an agent of this version has started with the existing files
    answers = _answers(newer)
    assert _agents(answers).isdisjoint(_agents(before))
    for name, old in before.items():
        if name != key:
            assert _facts(answers[name]["job"], old["job"]) == _facts(old["job"], answers[name]["job"])
            assert answers[name]["record"] == old["record"]
    assert len(before) == len(names) + 1
    opened.touch()
    assert newer.value("running.wait().outputs['z']") == "late"
