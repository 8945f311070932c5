"""Laptop in front of a replica: a profile, settings, and the front ends that a user has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from ssh_hosts.terminal import Answer, Said, converse

from jupyter_slurm.sites.toml_writer import toml_text

if TYPE_CHECKING:
    from replicas.replica import Replica

__all__ = ["Cell", "Laptop"]

_FOREIGN = ("SLURM", "SBATCH", "JUPYTER", "XDG_", "SSH_", "DOCKER")


class Cell:
    """Result of one cell."""

    def __init__(self) -> None:
        self.text, self.error = "", ""

    def hear(self, message: dict[str, Any]) -> None:
        """Process a published message."""
        content = message["content"]
        if message["msg_type"] == "stream":
            self.text += content["text"]
        elif message["msg_type"] in ("execute_result", "display_data", "update_display_data"):
            self.text += content["data"].get("text/plain", "") + "\n"
        elif message["msg_type"] == "error":
            self.error = "\n".join(content["traceback"])


class Laptop:
    """A user's computer: a home, the profile of the site with the user's name, and an agent.

    Attributes
    ----------
    home : Path
    env : dict
        The environment of all its processes.
    since, cells, commands : float, int, int
        Time of its start (``time.monotonic()``), and numbers of cells and commands run.
    asked : str
        Text on the terminal at the last login.
    ssh_config : Path
        Has the addresses of hosts, which a name server has for a real laptop.
    """

    def __init__(self, replica: Replica, home: Path) -> None:
        self.replica, self.home = replica, home
        self.ssh_config = home / "ssh_config"
        (home / "sites").mkdir(parents=True)
        for part in ("run", "work"):
            (home / part).mkdir(mode=0o700)
        self._write_ssh_config()
        self.profile = home / "sites" / f"{replica.name}.toml"
        said = {"user": replica.user, "ssh_config": str(self.ssh_config)}
        told = {"extends": replica.name} if replica.site.is_shipped else tomllib.loads(replica.site.profile)
        self.profile.write_text(toml_text({**told, "login": {**told.get("login", {}), **said}}))
        places = {"runtime_dir": home / "run", "state_dir": home / "state", "job_root": home / "jobs"}
        settings = {
            **{name: str(path) for name, path in places.items()},
            "sites": [str(home / "sites")],
            "trust": "always",
        }
        (home / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        self.env |= {"HOME": str(home), "JUPYTER_CONFIG_DIR": str(home), "JUPYTER_RUNTIME_DIR": str(home / "run")}
        self.env |= {"IPYTHONDIR": str(home / "ipython")}
        self._kernel: tuple[KernelManager, BlockingKernelClient] | None = None
        self.since, self.cells, self.commands, self.asked = time.monotonic(), 0, 0, ""

    def close(self) -> None:
        """End the kernel and the agent."""
        if self._kernel is not None:
            manager, client = self._kernel
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()
        for words in (["disconnect", self.replica.name, "--yes"], ["agent", "stop"]):
            self.command(*words)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``jupyter slurm WORDS``; a failure raises no error."""
        self.commands += 1
        argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", *words]
        return subprocess.run(
            argv, env=self.env, cwd=self.home / "work", stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def connect(self) -> Said:
        """Log in with ``jupyter slurm connect``, at a terminal, and answer the hosts' questions."""
        replica, way = self.replica, self.replica.site.way
        # A question is at the end of the text: before, its words may occur in a heading.
        password = ("[Pp]assword[^\n]* $", replica.password)
        code = ("[Vv]erification code[^\n]* $", lambda: replica.codes.next())
        asked: list[tuple[str, Answer]] = [password] if "password" in way.asks else []
        asked += [code] if "code" in way.asks else []
        asked += [password] if way.gateway and way.login_asks == "password" else []
        argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "connect", replica.name]
        self.commands += 1
        said = converse(argv, self.env, asked)
        self.asked = said.text
        return said

    def run(self, code: str, timeout: float = 120) -> Cell:
        """Run a cell in the laptop's kernel, which uses the site."""
        if self._kernel is None:
            manager = KernelManager(transport="ipc", connection_file=str(self.home / "run" / "kernel.json"))
            manager.start_kernel(env=self.env, cwd=str(self.home / "work"))
            client: BlockingKernelClient = manager.blocking_client()
            client.start_channels()
            self._kernel = manager, client
            client.wait_for_ready(timeout=60)
            begun = self.run(f"%load_ext jupyter_slurm\n%slurm use {self.replica.name}")
            assert not begun.error, begun.error
        cell = Cell()
        self.cells += 1
        self._kernel[1].execute_interactive(code, timeout=timeout, output_hook=cell.hear, allow_stdin=False)
        return cell

    def value(self, expression: str) -> str:
        """Return ``str()`` of an expression in that kernel."""
        cell = self.run(f"print({expression})")
        assert not cell.error, cell.error
        return cell.text.removesuffix("\n")

    def execute(self, path: Path, timeout: int = 300) -> Any:
        """Execute all cells of a notebook of the project, as a user would; return it with its outputs."""
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(notebook, timeout=timeout, resources={"metadata": {"path": str(self.home / "work")}})
        self.cells += sum(cell.cell_type == "code" for cell in notebook.cells)
        client.execute(env=self.env)
        return notebook

    def _write_ssh_config(self) -> None:
        replica, way = self.replica, self.replica.site.way
        first = replica.gateway or replica.login
        entries = [f"Host {way.gateway or way.login}\n    HostName {first.address}\n"]
        if replica.gateway:
            entries.append(f"Host {way.login}\n    HostName {replica.login.address}\n    ProxyJump {way.gateway}\n")
        entries += [
            f"Host {name}\n    HostName {host.address}\n    ProxyJump {way.login}\n"
            for name, host in replica.nodes.items()
        ]
        known = replica.gateway.known_hosts_lines() if replica.gateway else ""
        for name, host in {way.login: replica.login, **replica.nodes}.items():
            known += host.known_hosts_lines(name, host.address)
        (self.home / "known_hosts").write_text(known)
        common = {
            "User": replica.user,
            "IdentityFile": replica.key if "key" in way.asks + way.at_login else "none",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.home / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        entries.append("Host *\n" + "".join(f"    {word} {value}\n" for word, value in common.items()))
        self.ssh_config.write_text("\n".join(entries))
