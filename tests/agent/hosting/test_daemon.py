"""Agent in a separate process: single, detached, clean, and restarted after every kind of death."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting import discovery, launcher, log_file
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import AgentUnreachable

Run = Callable[..., subprocess.Popen[str]]
Wait = Callable[..., Any]

# A client in a separate process: connects, prints the agent that it met, and stays until its standard input ends.
_CLIENT = """
import json, sys
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
with AgentClient.connect(Settings(**json.loads(sys.argv[1]))) as client:
    print(json.dumps(client.info), flush=True)
    sys.stdin.read()
"""


def _values(settings: Settings) -> str:
    return json.dumps({name: getattr(settings, name) for name in settings.trait_names(config=True)})


def _is_alive(pid: int) -> bool:
    """Return whether a thread of a process lives: until the last one ends, its sockets accept connections."""
    states = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return any(state not in "ZX" for state in states)


def _has_ended(settings: Settings, pid: int) -> bool:
    """Return whether an agent has ended, and its socket with it: a process that it was just starting may hold that."""
    if _is_alive(pid):
        return False
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(discovery.search_locations(settings)[0].socket)
        except OSError:
            return True
    return False


def _log(settings: Settings) -> str:
    return Path(log_file.log_path(settings)).read_text()


def test_twenty_at_once_get_one_agent(daemon_settings: Settings, run_python: Run) -> None:
    clients = [run_python(_CLIENT, _values(daemon_settings), stdin=subprocess.PIPE) for _ in range(20)]
    met = []
    for client in clients:
        out, err = client.communicate(timeout=120)
        assert client.returncode == 0, err
        met.append(json.loads(out)["pid"])
    log = _log(daemon_settings)
    assert len(set(met)) == 1, log
    assert _is_alive(met[0]), log
    assert log.count(" leads (") == 1, log


def test_an_early_start_and_a_request_get_one_agent(daemon_settings: Settings) -> None:
    launcher.start_early(daemon_settings)
    with AgentClient.connect(daemon_settings) as client:
        assert _is_alive(client.info["pid"])
        launcher.start_early(daemon_settings)  # there is one
    for thread in threading.enumerate():
        if thread.name == "agent start":
            thread.join()
    assert _log(daemon_settings).count("an agent is started") == 1


def test_an_early_start_that_fails_is_explained_by_the_request(
    daemon_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    launcher.start_early(daemon_settings)
    with pytest.raises(AgentUnreachable, match="cannot be started"):
        launcher.find_or_start(daemon_settings)


def test_two_that_start_one_all_the_same_get_one_leader(daemon_settings: Settings) -> None:
    """Check that the lock decides if two agents start at the same time."""
    threads = [threading.Thread(target=launcher._spawn, args=(daemon_settings,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _log(daemon_settings).count(" leads (") == 1
    assert launcher.find(daemon_settings) is not None


def test_it_is_detached_and_clean(
    daemon_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wait_for: Wait
) -> None:
    secrets = {
        "JUPYTERHUB_API_TOKEN": "hush-1",
        "JPY_API_TOKEN": "hush-2",
        "JUPYTERHUB_USER": "hush-3",
        "AWS_SECRET_ACCESS_KEY": "hush-4",
        "HF_TOKEN": "hush-5",
        "MY_PASSWORD": "hush-6",
        "SLURM_JOB_ID": "77",
        "SLURM_NTASKS": "4",
        "SLURMD_NODENAME": "node1",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    for name, value in {**secrets, "SLURM_CONF": "/etc/some/slurm.conf", "KRB5CCNAME": "FILE:/tmp/cc"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    inherited = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        with AgentClient.connect(daemon_settings) as client:
            pid = client.info["pid"]
            assert client.info["host"] == "daemon"
    finally:
        os.close(inherited)
    proc = Path("/proc", str(pid))
    assert os.readlink(proc / "cwd") == "/"
    _, parent, group, session, terminal, *_ = (proc / "stat").read_text().rpartition(")")[2].split()
    assert int(parent) != os.getpid()
    assert int(session) != os.getsid(0)
    assert int(session) != pid, "a session leader could acquire a terminal"
    assert (int(terminal), int(group)) == (0, int(session))
    assert "Umask:\t0077" in (proc / "status").read_text()

    environ = dict(entry.split("=", 1) for entry in (proc / "environ").read_text().split("\0") if entry)
    assert not set(secrets) & set(environ)
    assert "hush" not in (proc / "environ").read_text()
    assert "hush" not in (proc / "cmdline").read_text()
    assert (environ["SLURM_CONF"], environ["KRB5CCNAME"]) == ("/etc/some/slurm.conf", "FILE:/tmp/cc")

    targets = {os.readlink(fd) for fd in (proc / "fd").iterdir()}
    log = log_file.log_path(daemon_settings)
    assert os.readlink(proc / "fd" / "0") == "/dev/null"
    assert os.readlink(proc / "fd" / "1") == os.readlink(proc / "fd" / "2") == log
    assert str(tmp_path) not in targets
    assert not any(target.startswith("pipe:") for target in targets), "somebody would wait for its end"
    assert os.stat(log).st_mode & 0o777 == 0o600
    assert "hush" not in _log(daemon_settings)


def test_the_starter_has_no_child_left(daemon_settings: Settings) -> None:
    with AgentClient.connect(daemon_settings) as client:
        pid = client.info["pid"]
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_after_kill_9_the_client_goes_on(daemon_settings: Settings, wait_for: Wait) -> None:
    with AgentClient.connect(daemon_settings) as client:
        client.post("/v1/clusters", json={"slurm_conf": "/nowhere/slurm.conf", "path": "/nowhere"})
        first = client.info["pid"]
        assert len(client.get("/v1/clusters")) == 1
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: _has_ended(daemon_settings, first), "the end of the agent")
        place = discovery.search_locations(daemon_settings)[0]
        assert os.path.exists(place.socket), "a stale socket is in the way"
        clusters = client.get("/v1/clusters")
        assert client.info["pid"] != first
        # A cluster without a job is not on disk: the client registers it again.
        assert [cluster["slurm_conf"] for cluster in clusters] == ["/nowhere/slurm.conf"]

        second = client.info["pid"]
        os.kill(second, signal.SIGKILL)
        wait_for(lambda: _has_ended(daemon_settings, second), "the end of the agent")
        with AgentClient.connect(daemon_settings) as another:  # starts an agent before the other client's next request
            assert another.info["pid"] != second
            assert client.get("/v1/clusters") == clusters
            assert client.info["pid"] == another.info["pid"]


def test_after_kill_9_a_login_command_is_run_by_the_next_agent(daemon_settings: Settings, wait_for: Wait) -> None:
    with AgentClient.connect(daemon_settings) as client:
        cluster = client.post("/v1/clusters", json={"slurm_conf": "/nowhere/slurm.conf", "path": os.environ["PATH"]})

        def kill() -> int:
            pid: int = client.info["pid"]
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: _has_ended(daemon_settings, pid), "the end of the agent")
            return pid

        def run() -> dict[str, Any]:
            events = client.post_events(f"/v1/clusters/{cluster['id']}/login-commands", {"text": "exit 3\n"})
            return dict(events)["end"]  # type: ignore[no-any-return]

        first = kill()
        assert run()["exit_code"] == 3
        assert client.info["pid"] != first

        second = kill()
        with AgentClient.connect(daemon_settings) as another:  # starts an agent that does not know the cluster
            assert another.info["pid"] != second
            assert run()["exit_code"] == 3
            assert client.info["pid"] == another.info["pid"]


def test_many_threads_live_through_a_kill(daemon_settings: Settings) -> None:
    errors: list[BaseException] = []
    with AgentClient.connect(daemon_settings) as client:
        first = client.info["pid"]
        met = {first}  # another client may not have asked in time
        go_on = threading.Event()

        def ask() -> None:
            try:
                while not go_on.is_set() or len(met) < 2:
                    met.add(client.get("/v1/agent")["pid"])
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        os.kill(first, signal.SIGKILL)
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert not errors
        assert len(met) == 2


def test_it_leaves_when_idle_and_only_then(make_settings: Callable[..., Settings], wait_for: Wait) -> None:
    settings = make_settings(agent_host="daemon", agent_idle_exit=2.0)
    with AgentClient.connect(settings) as client:
        pid = client.info["pid"]
        with socket.socket(socket.AF_UNIX) as reader:
            reader.connect(discovery.search_locations(settings)[0].socket)
            reader.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_for(lambda: client.get("/v1/agent")["holds"]["streams"] == 1, "the stream")
            # A listening client keeps the agent alive, without any request, for several times its idle time.
            threading.Event().wait(5.0)
            assert _is_alive(pid)
    wait_for(lambda: not _is_alive(pid), "the agent's leaving")
    place = discovery.search_locations(settings)[0]
    left = {os.path.basename(path) for path in (place.lock, place.start_lock)}
    assert set(os.listdir(place.folder)) <= left
    assert "idle: leaving" in _log(settings)


def test_sigterm_is_a_clean_end(daemon_settings: Settings, wait_for: Wait) -> None:
    with AgentClient.connect(daemon_settings) as client:
        pid = client.info["pid"]
    os.kill(pid, signal.SIGHUP)  # its terminal is closed
    assert launcher.find(daemon_settings) is not None
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not _is_alive(pid), "the end of the agent")
    place = discovery.search_locations(daemon_settings)[0]
    assert not os.path.exists(place.socket)
    assert not os.path.exists(place.record)
    assert "has left" in _log(daemon_settings)
    assert "Traceback" not in _log(daemon_settings)


def test_it_comes_back_to_a_folder_that_was_removed(daemon_settings: Settings, wait_for: Wait, place: Path) -> None:
    """Check that the agent survives a logout, which removes /run/user/UID, and is found at the next login."""
    with AgentClient.connect(daemon_settings) as client:
        pid = client.info["pid"]
    shutil.rmtree(place / "run")
    wait_for(lambda: launcher.find(daemon_settings) is not None, "the socket")
    with AgentClient.connect(daemon_settings, start=False) as client:
        assert client.info["pid"] == pid


def test_it_makes_room_when_another_leads(daemon_settings: Settings, wait_for: Wait, place: Path) -> None:
    with AgentClient.connect(daemon_settings) as client:
        first = client.info["pid"]
    os.kill(first, signal.SIGSTOP)  # otherwise it may take the lead again before the second has started
    shutil.rmtree(place / "run")
    with AgentClient.connect(daemon_settings) as client:
        second = client.info["pid"]
        os.kill(first, signal.SIGCONT)
        wait_for(lambda: not _is_alive(first), "the first agent's leaving")
        assert client.get("/v1/agent")["pid"] == second


def test_a_failed_start_shows_the_log(make_settings: Callable[..., Settings], place: Path) -> None:
    settings = make_settings(agent_host="daemon")
    os.mkdir(discovery.place_to_start(settings).lock)
    with pytest.raises(AgentUnreachable, match="could not be started") as caught:
        AgentClient.connect(settings)
    assert "Error" in caught.value.message
    assert log_file.log_path(settings) in caught.value.hint


def test_the_log_is_bounded_and_private(place: Path) -> None:
    code = f"""
import logging
from jupyter_slurm.agent.hosting import daemon
from jupyter_slurm.config import Settings
import os, sys
os.makedirs({str(place)!r} + "/state")
daemon._MAX_LOG_BYTES = 2000
daemon._log_to_file(Settings(state_dir={str(place / "state")!r}))
for number in range(200):
    logging.getLogger("x").info("line %d", number)
os.write(2, b"from below\\n")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    logs = sorted((place / "state").iterdir())
    assert len(logs) == 3
    assert all(log.stat().st_size < 3000 and log.stat().st_mode & 0o777 == 0o600 for log in logs)
    assert "from below" in logs[0].read_text()


def test_a_log_that_is_a_link_is_not_followed(daemon_settings: Settings, place: Path) -> None:
    (place / "state").mkdir()
    (place / "precious").write_text("precious")
    os.symlink(place / "precious", log_file.log_path(daemon_settings))
    with pytest.raises(AgentUnreachable):
        AgentClient.connect(daemon_settings)
    assert (place / "precious").read_text() == "precious"


def test_settings_arrive_and_are_checked(make_settings: Callable[..., Settings], run_python: Run) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "jupyter_slurm.agent"],
        input="not json",
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 2
    assert "started by its clients" in process.stderr


@pytest.mark.root
def test_two_users_have_an_agent_each(
    alice: str, bob: str, user_python: tuple[list[str], dict[str, str]], wait_for: Wait
) -> None:
    """Check with default settings: no names, and no runtime directory of a session."""
    (python, variables), code = user_python, _CLIENT + "    client.stop_agent()\n"
    agents = {}
    for name in (alice, bob):
        user = pwd.getpwnam(name)
        process = subprocess.Popen(
            [*python, "-c", code, "{}"],
            env={"PATH": os.environ["PATH"], "HOME": user.pw_dir, **variables},
            user=name,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        agents[name] = (process, json.loads(line)["pid"], user.pw_uid)
    for process, pid, uid in agents.values():
        assert os.stat(f"/proc/{pid}").st_uid == uid
        folder = f"/tmp/jupyter-slurm-{uid}"
        assert (os.stat(folder).st_uid, os.stat(folder).st_mode & 0o777) == (uid, 0o700)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        wait_for(functools.partial(lambda pid: not _is_alive(pid), pid), "the end of the agent")
        shutil.rmtree(folder)


def test_an_agent_in_a_process_ends_with_it(make_settings: Callable[..., Settings], run_python: Run) -> None:
    """Check that no thread hangs, and no socket is left."""
    settings = make_settings(agent_host="inprocess")
    with run_python(_CLIENT, _values(settings), stdin=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["host"] == "inprocess"
    place = discovery.search_locations(settings)[0]
    assert not os.path.exists(place.socket)
    assert not os.path.exists(place.record)


@pytest.mark.parametrize(
    ("wanted", "environ", "expected"),
    [
        ("auto", {}, "daemon"),
        ("auto", {"SLURM_JOB_ID": "1"}, "inprocess"),
        ("auto", {"JUPYTERHUB_USER": "alice"}, "inprocess"),
        ("daemon", {"SLURM_JOB_ID": "1"}, "daemon"),
        ("server", {}, "inprocess"),
        ("inprocess", {}, "inprocess"),
    ],
)
def test_where_it_lives(
    make_settings: Callable[..., Settings], wanted: str, environ: dict[str, str], expected: str
) -> None:
    assert launcher.choose_hosting(make_settings(agent_host=wanted), environ) == expected


def test_credentials_are_recognised_and_habits_kept() -> None:
    given = {
        "HOME": "/home/a",
        "GITHUB_TOKEN": "x",
        "OPENAI_API_KEY": "x",
        "PGPASSWORD": "x",
        "SLURM_JWT": "x",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "SBATCH_ACCOUNT": "physics",
        "SLURM_JOB_PARTITION": "x",
        "SLURM_CONF": "/etc/slurm.conf",
        "PYTHONPATH": "relative" + os.pathsep + "/absolute",
    }
    kept = launcher.clean_environment(given)
    assert set(kept) == {"HOME", "SSH_AUTH_SOCK", "SBATCH_ACCOUNT", "SLURM_CONF", "PYTHONPATH"}
    assert all(re.match("/", entry) for entry in kept["PYTHONPATH"].split(os.pathsep))
