"""Tests of connection faults to a kernel behind a gateway and a login node with prompts: nothing is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from replicas import Replica
from ssh_hosts.machine import run
from ssh_hosts.watch import Watch

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import SlurmError

SITE = "aau-aicloud"  # with a password and a code on the gateway, and a password on the login node
SMALL = ("-p", "batch", "-c", "2", "--mem=2G", "--time=30:00")
STRANGER = "daemon"  # a user of every system

DOWN, BACK = "The connection to this kernel is lost.", "The connection is back."
LINES = (
    "import itertools, time\nfor number in itertools.count():\n    print('line', number, flush=True); time.sleep(0.02)"
)
# An attacker without the secret, with repeated connections; the last sends an incomplete greeting.
KNOCKS = """
import socket, sys
for number in range(40):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as guest:
        try:
            guest.sendall((b"jslk" + bytes(100))[: number or None])
            assert guest.recv(1) == b"", "a stranger is answered"
        except (ConnectionResetError, BrokenPipeError):
            pass
"""

ENTERS = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.remote, pytest.mark.xdist_group(f"replica-{SITE}")]


class Person:
    """User who answers prompts of hosts at another front end, while ``is_there``; ``declines`` refuses instead."""

    def __init__(self, site: Replica) -> None:
        self._site, told = site, site.laptop.home / "jupyter_slurm_config.json"
        self.agent = AgentClient(Settings(**json.loads(told.read_text())["Settings"]), start=False)
        self.is_there, self.declines = True, False
        self.declined: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        while not self._over.wait(0.2):
            try:
                for prompt in self.agent.get("/v1/prompts") if self.is_there or self.declines else ():
                    if self.declines:
                        self.declined.append(prompt["id"])
                    said = None if self.declines else [self._words(one["text"]) for one in prompt["questions"]]
                    if said is None or prompt["questions"]:
                        self.agent.post(f"/v1/prompts/{prompt['id']}", json={"answers": said})
            except SlurmError:  # no agent is running now, or the prompt was closed
                continue

    def _words(self, question: str) -> str:
        return self._site.codes.next() if "code" in question else self._site.password

    @property
    def agent_pid(self) -> int:
        """Return the process of the running agent."""
        self.agent.get("/v1/agent")
        return int(self.agent.info["pid"])

    def leave(self) -> None:
        self._over.set()
        self._thread.join()
        self.agent.close()


@pytest.fixture(scope="module")
def site(replicas: Callable[[str], Replica]) -> Iterator[Replica]:
    """Provide the site with a login, and restore its hosts after the tests."""
    there = replicas(SITE)
    yield there
    assert there.gateway is not None
    there.gateway.restore()
    if there.gateway.listener is None:
        there.gateway.start()
    there.laptop.command("disconnect", SITE, "--yes")
    assert there.laptop.connect().code == 0


@pytest.fixture(scope="module")
def person(site: Replica) -> Iterator[Person]:
    there = Person(site)
    yield there
    there.leave()


@pytest.fixture(autouse=True)
def _somebody_answers(person: Person) -> None:
    person.is_there, person.declines = True, False


@pytest.fixture(scope="module")
def kernel(
    site: Replica,
    person: Person,
    site_kernel: Callable[..., Any],
    user_python: tuple[list[str], dict[str, str]],
) -> Any:
    """Provide an ipykernel, with a Python that the user on the site can run."""
    packages = ":".join(entry for entry in sys.path if entry.endswith("-packages"))
    there = site_kernel(SITE, *SMALL, f"--export=ALL,PYTHONPATH={packages}", f"python={user_python[0][0]}")
    assert there.value("1") == "1"
    return there


def folder(site: Replica, step: str) -> Path:
    """Return the local path of the job directory of a step."""
    return next(path for path in site.home.rglob(step) if (path / "job.json").exists())


def holding(secret: str, place: Path) -> list[Path]:
    """Return the files below a folder that contain a secret."""
    return [Path(line) for line in run("grep", "-rlFs", "--", secret, str(place), check=False).stdout.splitlines()]


def test_not_a_line_is_lost_whatever_happens_on_the_way(
    kernel: Any, site: Replica, person: Person, wait_for: Callable[..., Any]
) -> None:
    """A cell prints all the time. At the end it is interrupted during an outage of the link."""
    cell = kernel.begin(LINES)
    log = folder(site, kernel.post["step"]) / "stderr"

    def line() -> int:
        return int((re.findall(r"line (\d+)\n", kernel.said(cell)) or ["-1"])[-1])

    def goes_on(what: str) -> None:
        before = line()
        wait_for(lambda: line() > before, f"lines come again after {what}", 120)

    goes_on("the start")
    site.login.kill_sessions()
    site.login.stop()
    site.login.start()
    goes_on("a restart of the sshd of the login node")

    laptop, lost = (kernel.front, person.agent_pid), log.read_text().count("The front end has disconnected")
    for process in laptop:
        os.kill(process, signal.SIGSTOP)
    try:
        wait_for(lambda: log.read_text().count("The front end has disconnected") > lost, "the laptop is missed")
    finally:
        for process in laptop:
            os.kill(process, signal.SIGCONT)
    goes_on("the laptop's sleep")

    before = kernel.said(cell).count(BACK)
    person.is_there = False
    os.kill(person.agent_pid, signal.SIGKILL)
    wait_for(lambda: "asks for a login" in kernel.said(cell), "the cell says what is waited for")
    assert f"`jupyter slurm connect {SITE}`" in kernel.said(cell)
    person.is_there = True
    goes_on("the end of the agent")
    wait_for(lambda: kernel.said(cell).count(BACK) > before, "the cell says that it goes on")

    before = kernel.said(cell).count(DOWN)
    site.gateway.drop()
    wait_for(lambda: kernel.said(cell).count(DOWN) > before, "the cell says that the link is down")
    kernel.manager.interrupt_kernel()
    wait_for(
        lambda: "interrupted when the connection is back" in kernel.said(cell), "the cell says when it is interrupted"
    )
    site.gateway.restore()
    told = kernel.end(cell)
    assert told.kind == "KeyboardInterrupt"
    every = "".join(f"line {number}\n" for number in range(line() + 2))
    assert every.startswith(told.stdout), "each line came once, in its order"


def test_a_kernel_that_nothing_leads_to_is_waited_for_and_a_refusal_stays_one(
    kernel: Any, site: Replica, person: Person, wait_for: Callable[..., Any]
) -> None:
    """Agent and proxy are killed while the gateway refuses connections; then the user declines the login."""
    assert site.gateway is not None
    kernel.run("x = 41")
    person.is_there, front = False, kernel.front
    site.gateway.stop()
    site.gateway.kill_sessions()
    for process in (front, person.agent_pid):
        os.kill(process, signal.SIGKILL)
    wait_for(lambda: kernel.manager.is_alive() and kernel.front != front, "another front has taken its place")
    cell = kernel.begin("print(x + 1)")
    wait_for(lambda: "refused" in kernel.said(cell), "the cell says why it waits")
    person.declines = True
    site.gateway.start()
    wait_for(lambda: "was not answered" in kernel.said(cell), "the cell says that nobody has logged in")
    # The user logs in at another front end, which shows the prompt.
    person.declines = False
    assert site.laptop.connect().code == 0
    person.is_there = True
    assert kernel.end(cell).stdout == "42\n"
    assert len(person.declined) == 1, "who has declined is not asked again"


def test_no_secret_is_seen_and_a_stranger_gets_nowhere(
    kernel: Any,
    site: Replica,
    person: Person,
    watch: Watch,
    site_kernel: Callable[..., Any],
    user_python: tuple[list[str], dict[str, str]],
) -> None:
    """Another kernel starts meanwhile; the secret of kernel and keeper is in two files, private to their owner."""
    other = site_kernel(SITE, f"on={kernel.post['label']}", f"python={user_python[0][0]}")
    job, step = other.value("__import__('os').environ['SLURM_JOB_ID']"), other.post["step"]
    secret, key = other.post["secret"], other.manager.session.key.decode()
    assert watch.rounds
    assert not watch.where(secret) + watch.where(key), "in a command line, or an environment"
    questions = (
        ("scontrol", "-dd", "show", "job", job),
        ("scontrol", "show", "step", job),
        ("squeue", "--all", "--json"),
        ("sacct", "--jobs", job, "--parsable", "--format=ALL"),
    )
    told = [site.controller.run(*words, check=False).stdout for words in questions]
    assert [job in one for one in told] == [True] * len(questions)
    assert not [one for one in told if secret in one or key in one]

    asked, post = folder(site, step) / "kernel.json", Path(f"{other.manager.connection_file}.slurm")
    assert (holding(secret, site.disk), holding(secret, site.laptop.home)) == ([asked], [post])
    assert {stat.S_IMODE(path.stat().st_mode) for path in (asked, post)} == {0o600}

    cluster = f"/v1/clusters/{SITE}"
    where = person.agent.get(f"{cluster}/jobs/{step}/kernel")
    node, there = site.nodes[where["node"]], f"/{asked.relative_to(site.disk)}"
    assert node.run("cat", there).stdout
    assert node.run("cat", there, user=STRANGER, check=False).returncode
    node.run("python3", "-c", KNOCKS, str(where["port"]), user=STRANGER)
    tunnels = [one["socket"] for one in person.agent.get(f"{cluster}/tunnels") if one["port"] == where["port"]]
    here = [
        ["cat", str(post)],
        ["cat", other.manager.connection_file],
        *(["python3", "-c", ENTERS, one] for one in tunnels),
    ]
    assert len(here) == 3
    for command in here:
        done = run("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *command, check=False)
        assert "Permission" in done.stderr, done
    assert other.value("2") == "2"
    other.stop()


def test_what_is_shut_down_while_the_link_is_down_is_given_back_when_it_is_back(
    kernel: Any, site: Replica, person: Person, wait_for: Callable[..., Any]
) -> None:
    assert site.gateway is not None
    job = kernel.value("__import__('os').environ['SLURM_JOB_ID']")
    site.gateway.drop()
    kernel.stop()
    queue = ("squeue", "--noheader", "--states=running", "--format=%A")
    assert job in site.controller.run(*queue).stdout
    site.gateway.restore()
    wait_for(lambda: job not in site.controller.run(*queue).stdout, "the allocation is given back", 150)
    wait_for(lambda: not kernel.post, "nothing leads to it")
