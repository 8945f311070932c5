"""Fixtures of all tests: real clusters, ordinary users, and waiting for conditions."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import lean  # noqa: F401 - before whatever imports jsonschema
import pytest
from chosen import *  # noqa: F403 - which files a stage looks into
from containers import *  # noqa: F403 - fixtures: a Docker and an image
from distributed import *  # noqa: F403 - fixtures: Ray and PyTorch
from hostile_login import *  # noqa: F403 - a login node whose commands lie
from jupyter_servers import listening_url
from leftovers import *  # noqa: F403 - what a failed test leaves open
from own_network import *  # noqa: F403 - a network for each worker of the browser stage
from registry import *  # noqa: F403 - fixtures: what images come from
from replicas.fixtures import *  # noqa: F403 - replicas of real clusters
from schedule import *  # noqa: F403 - what becomes of a worker's tests
from ssh_hosts.fixtures import *  # noqa: F403 - fixtures: hosts with a real sshd
from ssh_hosts.laptop import *  # noqa: F403 - a laptop in front of them
from ssh_hosts.watch import *  # noqa: F403 - who looks for secrets on all of them
from ssh_hosts.ways import *  # noqa: F403 - and the same tests over SSH

from jupyter_slurm.embedded import Description, EmbeddedCluster, load_description
from jupyter_slurm.embedded import cluster as embedded_cluster
from jupyter_slurm.embedded.control import ClusterControl
from jupyter_slurm.embedded.description import Partition, Preemption, Qos
from jupyter_slurm.embedded.machine.packages import find_program
from jupyter_slurm.embedded.machine.slurm_versions import installation_for, slurm_root
from jupyter_slurm.errors import EmbeddedError, MissingPackages

# A background run of a shell (`make test &`) ignores interrupts, and its children would, too; a run behind `nohup`
# ignores hang-ups, by which OpenSSH ends a child process for a jump host. Child processes get the default back for a
# signal that is handled, even by a function that does nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# Eight tests run in parallel: the duration of an example is meaningless. `make test-nightly` chooses the other profile.
for _profile, _examples in (("nightly", 500), ("day", 60)):
    hypothesis.settings.register_profile(
        _profile,
        parent=hypothesis.settings(),  # CI has its own
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("day")

# Likewise for the start of a cluster: the default seconds suffice for a cluster that starts alone.
embedded_cluster.READY_TIMEOUT_S, embedded_cluster.READY_TIMEOUT_WITH_ACCOUNTING_S = 60.0, 90.0

# Waiting ---------------------------------------------------------------------------------------------------------


def _wait_for(condition: Callable[[], Any], what: str, timeout: float = 120.0, interval: float = 0.05) -> Any:
    """Return the first true value of ``condition``; fail with ``what`` at the timeout."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout:g} s: {what} (last answer: {value!r})")
        time.sleep(interval)


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., Any]:
    """Return ``wait_for(condition, what, timeout=120)``: tests wait for conditions, never for seconds."""
    return _wait_for


# Ordinary users --------------------------------------------------------------------------------------------------


def _unavailable(reason: str) -> None:
    """Skip the test; but fail if CI is set, where a skipped test would never run."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def unavailable() -> Callable[[str], None]:
    """Return ``unavailable(reason)``, which skips a test because of a missing part, and fails if CI is set."""
    return _unavailable


def _ordinary_user(letter: str) -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be several users")
    name = f"jsl{os.getpid()}{letter}"
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
    # An account without a password is locked for sshd; one with an impossible password is not (TESTBED).
    subprocess.run(["usermod", "--password", "*", name], check=True)
    yield name
    subprocess.run(["userdel", "--force", "--remove", name], check=False, capture_output=True)


@pytest.fixture(scope="session")
def alice() -> Iterator[str]:
    """Provide the login name of an ordinary user that exists for this session."""
    yield from _ordinary_user("a")


@pytest.fixture(scope="session")
def bob() -> Iterator[str]:
    """Provide the login name of a second ordinary user."""
    yield from _ordinary_user("b")


@pytest.fixture(scope="session")
def short_tmp() -> Iterator[Path]:
    """Provide a directory with a short path, for Unix sockets, that other users can traverse."""
    path = Path(tempfile.mkdtemp(prefix="jsl", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def short_path(short_tmp: Path) -> Path:
    """Provide a directory as ``tmp_path``, with a short path."""
    return Path(tempfile.mkdtemp(prefix="t", dir=short_tmp))


@pytest.fixture(scope="session")
def user_python() -> tuple[list[str], dict[str, str]]:
    """Provide the start of a command line, and variables, for a Python with the package that every user can run."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        env = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        try:
            subprocess.run(
                [candidate, "-c", "import jupyter_slurm.embedded"],
                **({"user": "nobody"} if os.geteuid() == 0 else {}),
                env=env,
                cwd="/",
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return [candidate], env
    pytest.skip("no Python here can be run by every user")


# Clusters --------------------------------------------------------------------------------------------------------


_OWN_CLUSTERS = pytest.StashKey[list[EmbeddedCluster]]()


def _start(description: Description, directory: Path, **options: Any) -> Iterator[EmbeddedCluster]:
    running = EmbeddedCluster(description, directory=directory, **options)
    try:
        running.start(until=os.getpid())
    except MissingPackages as error:
        _unavailable(str(error))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide the default cluster (Arandu) without accounting, one for all tests of the session.

    Remaining jobs of a test are cancelled. Stop, freeze or change only a separate cluster (``new_cluster``).
    """
    yield from _start(load_description(), short_tmp / "c")


@pytest.fixture(scope="session")
def accounting_cluster(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Provide Arandu with accounting: account c4ai; QOS normal and urgent (preempts normal, at most two GPUs a user).

    The tester belongs to the account and, if the tester is root, alice and bob do.
    """
    users = [pwd.getpwuid(os.geteuid()).pw_name]
    if os.geteuid() == 0:
        users += [request.getfixturevalue("alice"), request.getfixturevalue("bob")]
    urgent = Qos("urgent", priority=1000, preempt=("normal",), limits={"MaxTRESPerUser": "gres/gpu=2"})
    description = replace(load_description(), qos=(urgent,)).with_users(*users)
    yield from _start(replace(description, enforce=("associations", "limits", "qos")), short_tmp / "a")


@pytest.fixture(scope="session")
def strict_cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide two nodes with accounting, where many jobs are refused, fail or wait, for tests of the messages.

    An array has at most four tasks (MaxArraySize). Jobs in ``high`` take the nodes of those in ``low``, which are
    requeued, and of those in ``short``, which are cancelled; QOS ``few`` allows five submissions, ``one`` one running
    job.
    """
    arandu = load_description()
    nodes = replace(arandu.nodes[1], names=("c4aiscw1", "c4aiscw2"))
    partitions = (
        Partition("low", nodes.names, default=True, priority_tier=1, preempt_mode="requeue"),
        Partition("short", nodes.names, priority_tier=1, preempt_mode="cancel", max_time="10"),
        Partition("high", nodes.names, priority_tier=10, preempt_mode="off"),
    )
    few = Qos("few", limits={"MaxSubmitJobsPerUser": "5"})
    one = Qos("one", limits={"MaxJobsPerUser": "1"})
    extra = ("MaxArraySize=4", "SlurmdTimeout=3", "Licenses=solver:1", "BatchStartTimeout=2", "KillWait=1")
    description = replace(
        arandu,
        nodes=(nodes,),
        partitions=partitions,
        preemption=Preemption("partition", "requeue"),
        qos=(few, one),
        enforce=("associations", "limits", "qos"),
        extra=(*arandu.extra, *extra),
    ).with_users(pwd.getpwuid(os.geteuid()).pw_name)
    yield from _start(description, short_tmp / "s")


@pytest.fixture(scope="session")
def user_cluster(
    short_tmp: Path, request: pytest.FixtureRequest, user_python: tuple[list[str], dict[str, str]]
) -> Iterator[ClusterControl]:
    """Provide the default cluster as an ordinary user starts it: alice if root runs the tests."""
    if os.geteuid() != 0:
        yield request.getfixturevalue("cluster")
        return
    alice = request.getfixturevalue("alice")
    home, (python, env) = Path(pwd.getpwnam(alice).pw_dir), user_python

    def embedded(action: str, *options: str) -> None:
        subprocess.run(
            [*python, "-m", "jupyter_slurm.embedded", action, "--dir", str(home / "c"), *options],
            env={**os.environ, **env, "HOME": str(home), "USER": alice, "LOGNAME": alice},
            user=alice,
            group=alice,
            extra_groups=[],
            cwd=home,
            check=True,
        )

    embedded("start", "--until", str(os.getpid()))
    yield ClusterControl(home / "c")
    embedded("stop")


@pytest.fixture(scope="session")
def cluster_for(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], EmbeddedCluster]]:
    """Return ``cluster_for("26.05")``: a cluster of that Slurm version, one for the session, started at first use.

    This machine's own version is that of the fixture ``cluster``.
    """
    running: dict[str, Iterator[EmbeddedCluster]] = {}
    clusters: dict[str, EmbeddedCluster] = {}

    def get(version: str) -> EmbeddedCluster:
        own = request.getfixturevalue("cluster")
        if version == "{}.{:02d}".format(*own.installation.version):
            return own
        if version not in clusters:
            try:
                installation = installation_for(str(slurm_root(version)))
            except EmbeddedError as error:
                _unavailable(str(error))
            running[version] = _start(load_description(), short_tmp / version, installation=installation)
            clusters[version] = next(running[version])
        return clusters[version]

    yield get
    for generator in running.values():
        next(generator, None)


@pytest.fixture
def new_cluster(short_tmp: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., EmbeddedCluster]]:
    """Return ``new_cluster(**changes)``: a small cluster to disturb, for one test; stopped at the end of the test.

    The changes are those of :func:`dataclasses.replace` on a description of two nodes; ``start=False`` does not start
    it.
    """
    if find_program("slurmctld") is None:
        _unavailable("Slurm is not installed")
    made = request.node.stash.setdefault(_OWN_CLUSTERS, [])

    def make(*, start: bool = True, directory: Path | None = None, **changes: Any) -> EmbeddedCluster:
        arandu = load_description()
        workstations = replace(arandu.nodes[1], names=("c4aiscw1", "c4aiscw2"))
        partition = replace(arandu.partitions[1], nodes=workstations.names)
        small = replace(arandu, nodes=(workstations,), partitions=(partition,))
        directory = directory or short_tmp / f"n{len(made)}"
        made.append(EmbeddedCluster(replace(small, **changes), directory=directory))
        if start:
            made[-1].start(until=os.getpid())
        return made[-1]

    yield make
    for one in made:
        one.stop()


def _job_ids(control: ClusterControl) -> set[str]:
    return set(control.run("squeue", "--noheader", "--format=%A", check=False).stdout.split())


@pytest.fixture(autouse=True)
def _no_leftover_jobs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cancel the remaining jobs of a test in a shared cluster."""
    shared = ("cluster", "accounting_cluster", "strict_cluster", "user_cluster")
    names = [name for name in shared if name in request.fixturenames]
    before = {name: _job_ids(request.getfixturevalue(name)) for name in names}
    yield
    for name, known in before.items():
        control = request.getfixturevalue(name)
        if left := _job_ids(control) - known:
            control.run("scancel", *sorted(left), check=False)


# Jupyter servers -------------------------------------------------------------------------------------------------


@dataclass
class JupyterServer:
    """A separate Jupyter server: a process with its own home folder, token and agent."""

    url: str
    token: str
    home: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """Return its log so far."""
        return (self.home / "server.log").read_text(errors="replace")

    def api(self, path: str) -> str:
        """Return the address of a path of the agent's API (``v1/…``)."""
        return f"{self.url}jupyter-slurm/api/{path}"

    def restart(self) -> None:
        """Start a server that has ended again, at its address."""
        port = f"--port={urlsplit(self.url).port}"
        command = [port if word == "--port=0" else word for word in self.process.args]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )


@pytest.fixture(scope="module")
def start_jupyter(cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> Iterator[Callable[..., JupyterServer]]:
    """Return ``start_jupyter("server" or "lab", *arguments, files={name: text})``; stopped at the end."""
    started: list[JupyterServer] = []

    def start(kind: str, *arguments: str, files: dict[str, str] | None = None) -> JupyterServer:
        home = Path(tempfile.mkdtemp(prefix="jsl-jupyter-", dir="/tmp"))
        (home / "run").mkdir(mode=0o700)
        for name, text in (files or {}).items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        (home / ".jupyter").mkdir(exist_ok=True)
        # A separate agent, even if the tester has one.
        settings = {"Settings": {"runtime_dir": str(home / "run")}}
        (home / ".jupyter" / "jupyter_slurm_config.json").write_text(json.dumps(settings))
        token = secrets.token_hex(16)
        own = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "JUPYTER_RUNTIME_DIR": str(home / "jupyter")}
        foreign = ("JUPYTER", "XDG_", "SLURM")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env = {**inherited, **own, "JUPYTER_TOKEN": token, "SLURM_CONF": str(cluster.slurm_conf)}
        with (home / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jupyter", kind, "--allow-root", "--no-browser", "--port=0", *arguments],
                cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        server = JupyterServer("", token, home, env, process)
        started.append(server)
        record = wait_for(lambda: next((home / "jupyter").glob("jpserver-*.json"), None), kind, 180)
        server.url = wait_for(lambda: listening_url(record), "that the server listens")
        return server

    yield start
    for server in started:
        _stop_jupyter(server)


def _stop_jupyter(server: JupyterServer) -> None:
    server.process.terminate()
    try:
        server.process.wait(120)
    finally:
        server.process.kill()
        server.process.wait()
        # Not through the server: it may refuse that, and its next request would start another agent.
        stop = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "agent", "stop"]
        subprocess.run(stop, env=server.env, cwd="/", check=True, capture_output=True)
        shutil.rmtree(server.home, ignore_errors=True)


# Output of a failed test -----------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the queue, the nodes and the end of the controller's log of each cluster that a failed test used."""
    report = yield
    if report.failed:
        arguments = getattr(item, "funcargs", {})
        used = {name: value for name, value in arguments.items() if isinstance(value, ClusterControl)}
        used |= {f"new {number}": value for number, value in enumerate(item.stash.get(_OWN_CLUSTERS, []))}
        for name, value in used.items():
            report.sections.append((f"cluster {name}", _look_at(value)))
    return report


def _look_at(control: ClusterControl) -> str:
    try:
        texts = [
            control.run("squeue", "--all", "--states=all", check=False, timeout=60).stdout,
            control.run("sinfo", "--all", "--Node", "--long", check=False, timeout=60).stdout,
            control.daemons.log_tail("slurmctld", 30),
        ]
    except (EmbeddedError, OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "\n".join(texts)
