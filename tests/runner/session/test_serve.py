"""The runner of a session, as a job would start it, with a server that is a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

SERVE = str(resources.files("jupyter_slurm.runner.session").joinpath("serve.py"))
# Without the signal, the next look at the server would come after the patience of this test.
SLOW = (
    "import sys; text = open(sys.argv[1]).read().replace('_CHECK_INTERVAL_S = 1.0', '_CHECK_INTERVAL_S = 1000.0'); "
    "assert '1000.0' in text; path = sys.argv.pop(1); sys.argv[0] = path; "
    "exec(compile(text, path, 'exec'), {'__name__': '__main__', '__file__': path})"
)


def test_a_signal_is_noticed_at_once_and_the_end_of_the_server_is_recorded(tmp_path: Path) -> None:
    folder, events = tmp_path / "job", tmp_path / "events"
    folder.mkdir()
    events.mkdir()
    command = [sys.executable, "-m", "http.server", "--bind", "{host}", "{port}"]
    session = {"command": command, "base_url": "/", "idle": 86400.0, "dir": str(tmp_path)}
    (folder / "job.json").write_text(json.dumps({"key": "k", "events": str(events), "session": session}))
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}
    with subprocess.Popen([sys.executable, "-c", SLOW, SERVE, str(folder)], env=env) as runner:
        try:
            until = time.monotonic() + 120
            while "pid" not in (served := _read(folder / "served.json")) and time.monotonic() < until:
                time.sleep(0.05)
            runner.send_signal(signal.SIGTERM)
            assert runner.wait(60) == 143
        finally:
            runner.kill()
    end = _read(folder / "end.json")
    assert (end["exit_code"], end["terminated"]) == (143, True)
    assert (events / "k.ended").exists()
    assert not Path(f"/proc/{served['pid']}").exists()


OPENS_A_PORT = """
import http.server, pathlib, socket, sys, threading, time

def open_port():
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    kept.append(socket.create_server(("0.0.0.0", 0)))

kept, handler = [], http.server.SimpleHTTPRequestHandler
handler.log_message = lambda *_: None
threading.Thread(target=open_port, daemon=True).start()
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), handler).serve_forever()
"""


def test_a_warning_on_a_full_disk_does_not_end_a_session(tmp_path: Path) -> None:
    folder, events = tmp_path / "job", tmp_path / "events"
    folder.mkdir()
    events.mkdir()
    command = [sys.executable, "-c", OPENS_A_PORT, "{host}", "{port}"]
    session = {"command": command, "base_url": "/", "idle": 100.0, "dir": str(tmp_path)}
    (folder / "job.json").write_text(json.dumps({"key": "k", "events": str(events), "session": session}))
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}
    argv = [sys.executable, "-u", SERVE, str(folder)]
    with open("/dev/full", "w") as full, subprocess.Popen(argv, env=env, stderr=full) as runner:
        try:
            until = time.monotonic() + 120
            while "pid" not in _read(folder / "served.json") and time.monotonic() < until:
                time.sleep(0.05)
            (tmp_path / "go").touch()
            while "0.0.0.0" not in (folder / "served.json").read_text() and time.monotonic() < until:
                assert runner.poll() is None
                time.sleep(0.05)
            assert "listens on port" in (folder / "served.json").read_text()
            runner.send_signal(signal.SIGTERM)
            assert runner.wait(60) == 143
        finally:
            runner.kill()


def _read(path: Path) -> dict[str, object]:
    return json.loads(path.read_text()) if path.exists() else {}
