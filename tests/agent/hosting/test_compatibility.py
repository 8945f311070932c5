"""Agents and clients of different versions: which one yields, continues or is refused."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable

import pytest

from jupyter_slurm import _version
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.cli import agent as agent_command
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentRefused

Run = Callable[..., subprocess.Popen[str]]

# An agent of another version, attached to this process.
_OTHER_VERSION = """
import asyncio, json, sys
from jupyter_slurm import _version
from jupyter_slurm.agent.hosting import discovery
_version.__version__ = sys.argv[2]
discovery.API_MAJOR = int(sys.argv[3])
from jupyter_slurm.agent.hosting import agent_host as hosting
from jupyter_slurm.config import Settings
class Holding(hosting.AgentHost):
    def _count_holders(self):
        return {**super()._count_holders(), "submissions": int(sys.argv[4])}
async def main():
    host = Holding(Settings(**json.loads(sys.argv[1])), "daemon")
    await host.start()
    print("ready", flush=True)
    await host.wait()
    await host.stop()
asyncio.run(main())
"""


def _values(settings: Settings) -> str:
    return json.dumps({name: getattr(settings, name) for name in settings.trait_names(config=True)})


@pytest.mark.parametrize(("held", "stays"), [("0", False), ("1", True)])
def test_a_newer_client_retires_an_older_agent_that_holds_nothing(
    daemon_settings: Settings, run_python: Run, held: str, stays: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_python(_OTHER_VERSION, _values(daemon_settings), "0.0.1", "1", held) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == "ready\n"
        with AgentClient.connect(daemon_settings) as client:
            assert client.info["version"] == ("0.0.1" if stays else _version.__version__)
            assert (client.info["pid"] == old.pid) is stays
            assert client.get("/v1/clusters") == []
        agent_command.show_status(daemon_settings, argparse.Namespace(json=False))
        assert ("is older than" in capsys.readouterr().out) is stays
        if stays:
            old.terminate()
        old.communicate(timeout=60)


def test_an_older_client_works_with_a_newer_agent(daemon_settings: Settings, run_python: Run) -> None:
    with run_python(_OTHER_VERSION, _values(daemon_settings), "99.0", "1", "0") as new:
        assert new.stdout is not None
        assert new.stdout.readline() == "ready\n"
        with AgentClient.connect(daemon_settings) as client:
            assert client.info["pid"] == new.pid
            client.stop_agent()
        new.communicate(timeout=60)
        assert new.returncode == 0


def test_two_major_versions_live_side_by_side(daemon_settings: Settings, run_python: Run) -> None:
    with run_python(_OTHER_VERSION, _values(daemon_settings), "99.0", "2", "0") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with AgentClient.connect(daemon_settings) as client:
            assert client.info["pid"] != other.pid
            assert other.poll() is None
            assert client.get("/v1/clusters") == []
        other.terminate()
        other.communicate(timeout=60)


def test_an_agent_that_speaks_otherwise_is_refused(daemon_settings: Settings, run_python: Run) -> None:
    """Check a socket with the expected name whose agent reports another API (a broken build): a clear error."""
    code = _OTHER_VERSION.replace(
        "host = Holding", "discovery.API_MAJOR = 1; hosting.discovery = Other; host = Holding"
    ).replace(
        "class Holding",
        "import types\nOther = types.SimpleNamespace(**vars(discovery)); Other.API_MAJOR = 7\nclass Holding",
    )
    with run_python(code, _values(daemon_settings), "1.0", "1", "0") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(AgentRefused, match="another version of the API"):
            AgentClient.connect(daemon_settings)
        other.terminate()
        other.communicate(timeout=60)
