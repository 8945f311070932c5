"""Imports of the agent and of its start: a first submission waits for each of these modules."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from jupyter_slurm.config import Settings

Run = Callable[..., subprocess.Popen[str]]

MOST_MODULES = 250
MOST_MODULES_OF_A_STARTER = 17

FRONT_ENDS = {"cli", "embedded", "kernels", "magics", "server", "widgets"}
RARE = {
    "domain.advice.value_forms",
    "domain.scripts.resubmission",
    "runner.session.tls_door",
    "services.slurm.passthrough",
    "services.submission.estimate",
    "services.submission.foreign_submission",
    "services.staging.received_results",
    "services.submission.resubmission_request",
    "services.transfers.stage_within",
    "transport.tunnel.accepted_peer",
    "transport.tunnel.forwarder",
}


def test_little_is_imported_before_the_agent_listens(daemon_settings: Settings, run_python: Run) -> None:
    """Check that a first submission, which waits for the agent, does not wait for modules that it does not need."""
    code = """
import gc, json, sys
from jupyter_slurm.agent.hosting import daemon, leader_election
listen = leader_election.Leadership.listen
def told(*args):
    print(json.dumps(sorted(sys.modules)), flush=True)
    return listen(*args)
leader_election.Leadership.listen = told
def announced(*args):
    print(json.dumps([gc.isenabled(), gc.get_freeze_count() > 1000]), flush=True)
    daemon.os.kill(daemon.os.getpid(), daemon.signal.SIGTERM)
daemon._announce = announced
daemon._serve(json.loads(sys.argv[1]), announce=False)
"""
    values = json.dumps({name: getattr(daemon_settings, name) for name in daemon_settings.trait_names(config=True)})
    out, err = run_python(code, values).communicate(timeout=120)
    modules, collection = map(json.loads, out.splitlines()) if out else pytest.fail(err)
    assert collection == [True, True], "garbage is collected again, but not among the modules"
    assert "jupyter_slurm.services.agent_core" in modules
    packages = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert not packages & {"IPython", "cryptography", "httpx", "jinja2", "jsonschema", "jupyter_client"}
    assert not packages & {"jupyter_server", "numpy", "packaging", "paramiko", "platformdirs"}
    assert not packages & {"tornado", "yaml", "zmq"}
    ours = {name.removeprefix("jupyter_slurm.") for name in modules if name.startswith("jupyter_slurm.")}
    assert not {name.partition(".")[0] for name in ours} & FRONT_ENDS
    assert not ours & RARE, "what few requests need is imported by them"
    assert len(ours) <= MOST_MODULES, "each module takes the start of the agent half a millisecond"


def test_an_agent_is_started_before_the_modules_of_queries_are_imported() -> None:
    """Check that a kernel starts the agent first, and imports the rest of what its first cell needs meanwhile."""
    code = (
        "import sys; import jupyter_slurm.agent.hosting.launcher, jupyter_slurm.client.agent_start; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    ours = {name.removeprefix("jupyter_slurm.") for name in done.stdout.split() if name.startswith("jupyter_slurm.")}
    assert "agent.hosting.launcher" in ours
    assert {name for name in ours if name.startswith("domain.")} <= {"domain.environment_variables"}
    assert not {name for name in ours if name.startswith(("services", "magics"))}
    assert len(ours) <= MOST_MODULES_OF_A_STARTER
