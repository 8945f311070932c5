"""Fixtures: a user of a laptop with a separate account, home, ``~/.ssh`` and agent."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from ssh_hosts import Site
from ssh_hosts.people import People
from ssh_hosts.terminal import Dialogue, Said, converse


class Laptop:
    """A user of this machine; OpenSSH finds their home in the user database.

    Parameters
    ----------
    user : str
        Login name.
    python, env
        A Python with the package that the user can run, and its variables.

    Attributes
    ----------
    user, home, ssh
        Login name, home and ``~/.ssh``.
    environment : dict
        Environment of all the user's processes.
    """

    def __init__(self, user: str, python: Sequence[str], env: dict[str, str]) -> None:
        account = pwd.getpwnam(user)
        self.user, self.home, self.ssh = user, Path(account.pw_dir), Path(account.pw_dir) / ".ssh"
        self._python = list(python)
        self.environment = {
            **env,
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "USER": user,
            "LOGNAME": user,
            "LC_ALL": "C.UTF-8",
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
        }
        for folder in ("run", "state"):
            (self.home / folder).mkdir(mode=0o700)
            os.chown(self.home / folder, account.pw_uid, account.pw_gid)
        settings = {
            "runtime_dir": str(self.home / "run"),
            "state_dir": str(self.home / "state"),
            "job_root": str(self.home / "jobs"),
            "sites": [str(self.home / "sites")],
        }
        self.write("config/jupyter_slurm_config.json", json.dumps({"Settings": settings}))

    def write(self, path: str, text: str, mode: int = 0o600) -> Path:
        """Write a file below the home."""
        file = People.write(self.user, path, text)
        file.chmod(mode)
        return file

    def knows(self, site: Site) -> None:
        """Install the files of a site's laptop: ``~/.ssh/config``, key and known_hosts."""
        self.write(".ssh/key", site.key.read_text())
        self.write(".ssh/key.pub", site.key.with_suffix(".pub").read_text())
        self.write(".ssh/known_hosts", site.known_hosts.read_text())
        text = site.ssh_config.read_text().replace(str(site.key), str(self.ssh / "key"))
        self.write(".ssh/config", text.replace(str(site.known_hosts), str(self.ssh / "known_hosts")))

    def command(self, *argv: str) -> list[str]:
        """Return a command line that runs as this user, at a separate terminal."""
        who = [f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
        return ["setsid", "--ctty", "--wait", "setpriv", *who, *argv]

    def slurm(self, *words: str, dialogue: Dialogue = (), timeout: float = 90) -> Said:
        """Run ``jupyter slurm WORDS`` at a terminal."""
        return self.at_terminal(
            *self._python, "-m", "jupyter_slurm.cli.main", *words, dialogue=dialogue, timeout=timeout
        )

    def printed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``jupyter slurm WORDS`` without a terminal, and return its outputs separately."""
        argv = self.command(*self._python, "-m", "jupyter_slurm.cli.main", *words)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(argv[3:], env=self.environment, cwd="/", text=True, timeout=90, check=False, **pipes)

    def at_terminal(self, *argv: str, dialogue: Dialogue = (), timeout: float = 90) -> Said:
        """Run a command at a terminal and answer its questions, in their order."""
        return converse(self.command(*argv), self.environment, dialogue, timeout)


@pytest.fixture
def laptop(new_user: Callable[..., str], user_python: tuple[list[str], dict[str, str]]) -> Iterator[Laptop]:
    """Provide a user of a laptop without any files, even ``~/.ssh``; the agent ends with the test."""
    person = Laptop(new_user(), *user_python)
    yield person
    with contextlib.suppress(subprocess.TimeoutExpired):
        person.printed("agent", "stop")


@pytest.fixture
def own_agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return an environment with separate settings and agent, which ends with the test; profiles are in ``sites``."""
    runtime = tempfile.mkdtemp(prefix="jsr-", dir="/tmp")  # short, for the paths of Unix sockets
    places = {"state_dir": str(tmp_path / "state"), "runtime_dir": runtime, "job_root": str(tmp_path / "jobs")}
    settings = {"sites": [str(tmp_path / "sites")], **places}
    (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path)}
    env.pop("SSH_AUTH_SOCK", None)
    yield env
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "agent", "stop"]
    subprocess.run(argv, env=env, capture_output=True, timeout=60, check=False)
    shutil.rmtree(runtime, ignore_errors=True)
