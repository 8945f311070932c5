"""Computers that pages are typed on: a login node of the embedded cluster, or a laptop in front of a replica."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from replicas.laptop import Laptop
from ssh_hosts.terminal import Answer

from pages.neutral import PERSON, Neutral

if TYPE_CHECKING:
    from page_blocks import Page
    from replicas import Replica

    from jupyter_slurm.embedded import EmbeddedCluster

__all__ = ["Surroundings", "at_laptop_of", "on_login_node"]

_PROGRAMS = {str(Path(sys.prefix)): f"/home/{PERSON}/envs/jupyter", str(Path(__file__).parents[3]): "/opt/src"}
# The shared storage of a replica is this machine's disk, and other tests use ports of it.
_REMARKS = (
    (
        r"^warning  (job folder: \S+ can be written), but seems to lie on a local file system .*\n +-> .*"
        r"((?:\n.*)*?)\n0 failed, 1 warning\.$",
        r"ok       \1\2\nAll checks passed.",
    ),
    (r"^ *Warning: \S+ lies on a local file system .*\n", ""),
    (r"(, for tunnels: )\d+ is free; taken: .*", r"\g<1>8000 is free"),
)
_FOREIGN = ("SLURM", "SBATCH", "JUPYTER", "XDG_", "SSH_", "DOCKER", "PYTEST", "COV_", "CONDA")


@dataclass(frozen=True)
class Surroundings:
    """A computer with a user's home.

    Attributes
    ----------
    home : Path
    env : mapping
        Environment of all that the user starts.
    user : str
        Login name on the cluster, in place of ``ana`` in the text of the page.
    neutral : Neutral
        What readers see instead of the names of this run.
    prefix : tuple of str
        Command line before each command.
    answers : sequence of pairs
        Questions of hosts, and their answers.
    """

    home: Path
    env: Mapping[str, str]
    user: str
    neutral: Neutral
    prefix: tuple[str, ...] = ()
    answers: Sequence[tuple[str, Answer]] = ()

    def typed(self, text: str) -> str:
        """Return a text of the page as this user types it."""
        return re.sub(rf"\b{PERSON}\b", self.user, text)

    def slurm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``jupyter slurm WORDS`` without a terminal."""
        argv = [*self.prefix, sys.executable, "-P", "-m", "jupyter_slurm.cli.main", *words]
        return subprocess.run(
            argv, env=dict(self.env), cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of a user without settings; the programs are those of this Python."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    (home / "run").mkdir(mode=0o700, exist_ok=True)
    # Paths of Unix sockets are short, and a kernel is not asked whether the directory is private.
    env |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "TERM": "dumb", "NO_COLOR": "1"}
    env |= {"LC_ALL": "C.UTF-8", "COLUMNS": "100", "PYTHONWARNINGS": "ignore"}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    return env


def _own_agent(home: Path, **settings: object) -> None:
    """Let all programs with this home use one agent of their own, not one that runs elsewhere on this machine."""
    (home / ".jupyter").mkdir()
    written = {"JupyterSlurm": {"runtime_dir": str(home / "run"), **settings}}
    (home / ".jupyter" / "jupyter_slurm_config.json").write_text(json.dumps(written))


@contextlib.contextmanager
def on_login_node(
    cluster: EmbeddedCluster, home: Path, environments: Mapping[str, object] | None = None
) -> Iterator[Surroundings]:
    """Provide the login node of an embedded cluster, with a user who has named environments; its agent ends with it."""
    home.mkdir()
    _own_agent(home, environments=environments or {})
    env = {**cluster.env(_environment(home)), **cluster.owned()}
    user = pwd.getpwuid(os.geteuid()).pw_name
    words = {
        str(home): f"/home/{PERSON}",
        str(cluster.directory): "/run/arandu",
        socket.gethostname(): "login",
        **_PROGRAMS,
    }
    first = _next_job(cluster.run("scontrol", "show", "config").stdout)
    place = Surroundings(home, env, user, Neutral([user], words, first))
    try:
        yield place
    finally:
        place.slurm("agent", "stop")


@contextlib.contextmanager
def at_laptop_of(replica: Replica, home: Path, page: Page) -> Iterator[Surroundings]:
    """Provide a laptop in front of a replica.

    It has a profile and is logged in, unless the page shows ``jupyter slurm init`` or ``connect``. Its ``~/.ssh`` has
    the addresses, which a name server has for a real laptop, and is mounted where OpenSSH looks for it.
    """
    laptop = Laptop(replica, home)
    (home / "jupyter_slurm_config.json").unlink()
    _own_agent(home)
    sites = home / ".config" / "jupyter_slurm" / "sites"
    sites.mkdir(parents=True)
    env = _environment(home)
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700)
    own = Path(pwd.getpwuid(os.geteuid()).pw_dir, ".ssh")
    own.mkdir(mode=0o700, exist_ok=True)
    key = replica.key.with_suffix("")
    for file in (key, key.with_suffix(".pub")):
        shutil.copy(file, ssh / file.name)
    config = laptop.ssh_config.read_text().replace(str(key), str(own / key.name))
    shutil.copy(home / "known_hosts", ssh / "known_hosts")  # that of the profile stays
    (ssh / "config").write_text(config.replace(str(home / "known_hosts"), str(own / "known_hosts")))
    mount = f'mount --bind "{ssh}" "{own}" && exec "$@"'
    words = {
        str(home): f"/home/{PERSON}",
        str(own): f"/home/{PERSON}/.ssh",
        socket.gethostname(): "laptop",
        **_PROGRAMS,
    }
    words |= {str(replica.directory): "", replica.password: "…"}
    first = _next_job(replica.controller.run("scontrol", "show", "config").stdout)
    place = Surroundings(
        home, env, replica.user, Neutral([replica.user, pwd.getpwuid(os.geteuid()).pw_name], words, first, _REMARKS),
        ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"), _answers(replica),
    )  # fmt: skip
    if "jupyter slurm init" not in page.typed:
        laptop.profile.rename(sites / laptop.profile.name)
    if not re.search(r"jupyter slurm (init|connect)|%slurm connect", page.typed):
        _connect(place, replica.name)
    try:
        yield place
    finally:
        place.slurm("disconnect", replica.name, "--yes")
        place.slurm("agent", "stop")


def _next_job(config: str) -> int:
    match = re.search(r"^NEXT_JOB_ID\s*= (\d+)", config, re.MULTILINE)
    return int(match[1]) if match else 0


def _answers(replica: Replica) -> list[tuple[str, Answer]]:
    # A question is at the end of the text: before, its words may occur in a heading.
    return [
        ("[Pp]assword[^\n]* $", replica.password),
        ("[Vv]erification code[^\n]* $", lambda: replica.codes.next()),
    ]


def _connect(place: Surroundings, name: str) -> None:
    from pages.terminal import Terminal

    said = Terminal(place.env, place.home, place.prefix, place.answers).run(f"jupyter slurm connect {name}")
    assert said.code == 0, said.text
