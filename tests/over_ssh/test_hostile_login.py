"""Tests of a login node whose Slurm commands lie: the agent stays, no text of theirs acts, no file of theirs appears."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_login import ESCAPES, LIES, MARKUP, HostileLogin
from ssh_hosts.ways import Way

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

COMMANDS = ("jobs", "jobs --all", "resources", "usage", "sessions", "show {job}", "report {job}", "cancel {job}")
# Each line is a cell; its outputs are printed as JSON, errors as a front end shows them.
CELLS = """
%squeue
%sinfo
%sacct
%scontrol show job {job}
%squeue --me -o "%i %j %o"
import jupyter_slurm; jupyter_slurm.jobs()
jupyter_slurm.job({job})
jupyter_slurm.job({job}).report()
print(jupyter_slurm.job({job}).stdout)
jupyter_slurm.job({job}).cancel()
jupyter_slurm.resources()
jupyter_slurm.usage()
jupyter_slurm.sessions()
%sbatch --wrap "true"
"""
NOTEBOOK = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from jupyter_slurm.errors import SlurmError

shell = InteractiveShell.instance(colors="nocolor")
shell.run_line_magic("load_ext", "jupyter_slurm")
told = []
for cell in json.loads(sys.argv[1]):
    bundle, error = {}, ""
    with capture_output() as seen:
        result = shell.run_cell(cell)
        if result.result is not None:
            bundle = shell.display_formatter.format(result.result)[0]
        raised = result.error_in_exec or result.error_before_exec
        if isinstance(raised, SlurmError):
            error = "\\n".join(raised._render_traceback_())
        elif raised is not None and not isinstance(raised, SystemExit):
            error = f"CRASH {raised!r}"
    shown = [dict(output.data) for output in seen.outputs]
    texts = [seen.stdout if not error else "", seen.stderr if not error else "", error]
    texts += [part for one in (bundle, *shown) for kind, part in one.items() if kind == "text/plain"]
    pages = [part for one in (bundle, *shown) for kind, part in one.items() if kind == "text/html"]
    told.append([cell, texts, pages])
print("TOLD", json.dumps(told))
"""

# The directory of ssh comes from the user database.
CODE = """
import sys
from jupyter_slurm.cli.editors import ssh_files
from jupyter_slurm.cli.main import main
folder = sys.argv.pop(1)
ssh_files.ssh_folder = lambda: folder
sys.exit(main())
"""


class Front:
    """The front ends of a user who is logged in to the hostile node."""

    def __init__(self, cluster: EmbeddedCluster, login: HostileLogin, home: Path) -> None:
        self.home = home
        chosen: dict[str, Any] = Way("paramiko", login.host).settings(cluster, home, str(home / "far"))
        folders = {"runtime_dir": str(home / "run"), "state_dir": str(home / "state"), "job_root": chosen["job_root"]}
        chosen |= {**folders, "cluster": "far", "agent_host": "daemon", "command_timeout": 4.0, "submit_timeout": 3.0}
        (home / "config").mkdir()
        (home / "work").mkdir()
        (home / "config" / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": chosen}))
        self.settings = Settings(**{name: chosen[name] for name in (*folders, "sites", "agent_host")})
        own = {"JUPYTER_CONFIG_DIR": "config", "IPYTHONDIR": "ipython", "JUPYTER_RUNTIME_DIR": "runtime"}
        env = {**os.environ, **{name: str(home / folder) for name, folder in own.items()}}
        self.env = {name: value for name, value in env.items() if not name.startswith("SLURM")}

    @property
    def agent(self) -> int:
        """Return the process ID of the agent."""
        with AgentClient.connect(self.settings, start=False) as client:
            return int(client.info["pid"])

    def notebook(self, *cells: str) -> list[tuple[str, list[str], list[str]]]:
        """Run cells; return each with its texts and its HTML."""
        done = self._run("-c", NOTEBOOK, json.dumps(cells))
        told = next((line for line in done.stdout.splitlines() if line.startswith("TOLD ")), "")
        assert told, done.stdout + done.stderr
        found: list[tuple[str, list[str], list[str]]] = json.loads(told.removeprefix("TOLD "))
        return found

    def command(self, *words: str) -> str:
        """Run ``jupyter slurm``; return all that it printed."""
        done = self._run("-P", "-m", "jupyter_slurm.cli.main", *words)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def code(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``jupyter slurm code``, with SSH files of its own."""
        self.ssh_folder.mkdir(mode=0o700, exist_ok=True)
        return self._run("-c", CODE, str(self.ssh_folder), "code", *words)

    def ssh(self, host: str, *words: str, patience: float = 100.0) -> subprocess.CompletedProcess[str]:
        """Run OpenSSH with the file that ``code`` has written; Ctrl-C ends it after some seconds."""
        argv = ["ssh", "-F", str(self.ssh_folder / "jupyter_slurm.conf"), host, *words]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(argv, env=self.env, text=True, start_new_session=True, **pipes) as ssh:
            try:
                texts = ssh.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                os.killpg(ssh.pid, signal.SIGINT)
                texts = ssh.communicate(timeout=30)
        return subprocess.CompletedProcess(argv, ssh.returncode, *texts)

    @property
    def ssh_folder(self) -> Path:
        """Return the folder of the SSH files."""
        return self.home / "dot-ssh"

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *argv],
            env=self.env,
            cwd=self.home / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module")
def front(cluster: EmbeddedCluster, hostile_login: HostileLogin, short_tmp: Path) -> Iterator[Front]:
    home = Path(tempfile.mkdtemp(prefix="l", dir=short_tmp))
    made = Front(cluster, hostile_login, home)
    yield made
    hostile_login.tell("honest")
    made.command("disconnect", "far")
    made.command("agent", "stop")
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def job(front: Front, hostile_login: HostileLogin) -> str:
    """Provide a job that runs meanwhile."""
    hostile_login.tell("honest")
    cells = ("%sbatch --wrap 'echo hi; sleep 900'", "import jupyter_slurm; print('ID', jupyter_slurm.jobs()[0].id)")
    return front.notebook(*cells)[1][1][0].split()[-1]


def acting(texts: list[str], pages: list[str]) -> list[str]:
    """Return the outputs that would act in a terminal or a browser."""
    escapes = [text for text in (*texts, *pages) if any(sign in text for sign in ESCAPES)]
    return escapes + [page for page in pages if any(markup in page for markup in MARKUP)]


# Each takes minutes: `make test-nightly` tries the others.
BY_DAY = ("garbage", "other-names")


@pytest.mark.parametrize(
    "lie",
    [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in LIES if name != "honest"],
)
def test_no_lie_of_the_commands_acts_or_ends_the_agent(
    front: Front, hostile_login: HostileLogin, job: str, lie: str, wait_for: Callable[..., Any]
) -> None:
    before = front.agent
    hostile_login.tell(lie)
    try:
        for cell, texts, pages in front.notebook(*CELLS.format(job=job).strip().splitlines()):
            assert not [text for text in texts if text.startswith("CRASH")], (cell, texts)
            assert not acting(texts, pages), cell
        for words in COMMANDS:
            printed = front.command(*words.format(job=job).split())
            assert not acting([printed], []), words
    finally:
        hostile_login.tell("honest")
    assert front.agent == before
    assert "hello" in "".join(front.notebook("%%sbatch wait\nprint('hello')")[0][1])
    strays = [path for path in (front.home, Path.home(), Path("/tmp")) for path in path.glob("*pwned*")]
    assert [*strays, *front.home.rglob("*pwned*")] == []


@pytest.mark.parametrize(
    "lie",
    [pytest.param(name, marks=() if name == "escapes" else pytest.mark.nightly) for name in LIES if name != "honest"],
)
def test_no_lie_of_the_commands_acts_in_the_ssh_of_an_editor(
    front: Front, hostile_login: HostileLogin, lie: str, wait_for: Callable[..., Any]
) -> None:
    host = f"editor-{lie}"
    line = ("far", f"name={host}", "noopen", "--ntasks=1", "/data")

    def connect(patience: float) -> str:
        done = front.ssh(host, "printf %s $SLURM_JOB_ID", patience=patience)
        assert not acting([done.stdout, done.stderr], []), done
        assert "Traceback" not in done.stderr
        return done.stdout if done.returncode == 0 else ""

    hostile_login.tell("honest")
    front.command("jobs")
    before = front.agent
    try:
        hostile_login.tell(lie)  # the options of sbatch are asked for
        made = front.code(*line)
        assert not acting([made.stdout, made.stderr], []), made
        hostile_login.tell("honest")
        assert front.code(*line).returncode == 0
        files = {path: path.read_bytes() for path in front.ssh_folder.iterdir()}
        hostile_login.tell(lie)
        connect(10)  # starts a job, says why it does not, or waits
        hostile_login.tell("honest")
        # A job that the lie has named comes to its end first.
        job = wait_for(lambda: connect(100), "a connection", timeout=200)
        hostile_login.tell(lie)
        connect(10)  # to the running job
    finally:
        hostile_login.tell("honest")
    assert wait_for(lambda: connect(100), "another connection", timeout=200).isdecimal()
    assert job.isdecimal()
    assert {path: path.read_bytes() for path in front.ssh_folder.iterdir()} == files
    (known,) = (front.home / "state/ssh-hosts" / host / "known_hosts").read_text().splitlines()
    assert known.startswith(f"{host} ssh-ed25519 AAAA")
    front.command("stop", host, "--cluster", "far")
    assert front.agent == before
    strays = [path for path in (front.home, Path.home(), Path("/tmp")) for path in path.glob("*pwned*")]
    assert [*strays, *front.home.rglob("*pwned*")] == []
