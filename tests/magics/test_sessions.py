"""Tests of sessions from a notebook and from a terminal: a real kernel, a real agent, a real Slurm, a real Jupyter."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest
from ssh_hosts.terminal import converse

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.here_only("tests/services/sessions/test_sessions.py goes over SSH"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "remote-jupyter.ipynb"
WaitFor = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_is_left(kernel: Any) -> Iterator[None]:
    yield
    kernel.ok(
        "import jupyter_slurm, time\nfor one in jupyter_slurm.sessions(): one.cancel()\n"
        "while jupyter_slurm.sessions(): time.sleep(0.2)"
    )


@pytest.fixture
def slurm(environment: dict[str, str], home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``jupyter slurm WORDS`` in the environment of the kernel."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jupyter_slurm.cli.main", *words],
            env={**os.environ, **environment, **more},
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_one_under_a_cell_and_one_from_a_terminal(kernel: Any, slurm: Any, home: Path, wait_for: WaitFor) -> None:
    asked = kernel.ok("%slurm launch arandu -p arandu --gpus 1 name=training idle=2h\n").display
    with socket.create_server(("127.0.0.1", 8765)):
        begun = slurm("launch", "-p", "arandu", "noopen", "name=second", "port=8765")
        assert begun.stderr.startswith("Warning: Port 8765 on this computer is in use by another program of yours.")
        assert "Free the port, then use `jupyter slurm open second`" in begun.stderr
        assert "(second): unreachable: No local port is free: port 8765 is in use" in slurm("sessions").stderr
    assert re.search(r"^Session \d+ \(second\): starting\b", begun.stdout, re.MULTILINE), begun.stdout
    done = slurm("open", "--no-browser", "second")
    assert (begun.returncode, done.returncode) == (1, 0), done.stderr
    where = re.search(
        r"^(http://[0-9a-f-]+\.localhost:8765/\S+)\nTo open it logged in, open this file in a browser: (.+)$",
        done.stdout,
        re.MULTILINE,
    )
    assert where, done.stdout
    url, page = where.groups()
    key = url.rstrip("/").rpartition("/")[2]
    assert url.startswith(f"http://{key}.localhost:8765/")
    for_programs = url.replace(f"{key}.localhost", "127.0.0.1")
    assert os.stat(page).st_mode & 0o777 == 0o600
    token = re.findall(r'name="token" value="(\w+)"', Path(page).read_text())[0]
    assert token not in done.stdout + done.stderr
    with httpx.Client(trust_env=False, headers={"Authorization": f"token {token}"}) as client:
        assert client.get(f"{for_programs}api/contents").status_code == 200
        host = {"Host": f"{key}.localhost:8765"}
        assert client.get(f"{for_programs}api/contents", headers=host).status_code == 200
        for other in ("elsewhere.example", f"x{key}.localhost", "other.localhost:8765"):  # DNS rebinding
            assert client.get(f"{for_programs}api/contents", headers={"Host": other}).status_code == 403
        wait_for(lambda: kernel.value("training.state") == "ready", "the first")
        browser = home / "browser"
        browser.write_text('#!/bin/sh\ntr \'\\0\' \'\\n\' </proc/$$/cmdline >"$0.tmp" && mv "$0.tmp" "$0.argv"\n')
        browser.chmod(0o755)
        opened = slurm("open", "second", BROWSER=str(browser))
        assert (opened.returncode, token in opened.stdout) == (0, False), opened.stderr
        argv = wait_for(lambda: (home / "browser.argv").is_file(), "a browser") and (home / "browser.argv").read_text()
        assert argv.splitlines()[-1] == f"file://{page}"
        assert token not in argv
        # Each session has its own token.
        assert client.get(kernel.value("training.url") + "api/contents").status_code == 403
    wait_for(lambda: kernel.value("training.browser_url") in kernel.text(asked), "its card")
    assert re.search(r"Session \d+ \(training\): ready, on dgx01, .*1 GPU, jupyterlab \d", kernel.text(asked))
    assert "It stops after 2 h without use." in kernel.text(asked)
    listed = slurm("sessions").stdout
    assert re.search(r"^NAME +STATE +JOBID +NODES +ADDRESS\n", listed)
    assert re.search(rf"^second +ready +\d+ +dgx01 +{re.escape(for_programs)}$", listed, re.MULTILINE), listed
    assert "is running at" in slurm("log", "second").stdout
    os.kill(int(json.loads(slurm("agent", "status", "--json").stdout)["pid"]), signal.SIGKILL)
    wait_for(lambda: slurm("open", "--no-browser", "second").stdout.startswith(url), "it, from another agent")
    assert "There is a session training already" in slurm("rename", "second", "training").stderr
    assert "(third)" in slurm("rename", "second", "third").stdout
    steps = r"third: submitted \S+ \S+, pending \S+ .*, starting \S+ \(after \d+ s\), ready \S+ \(after \d+ s\)\n"
    assert re.search(steps, slurm("sessions", "-v").stdout)
    stopped = slurm("stop", "third")
    assert re.fullmatch(r"Stopped: Session \d+ \(third\)\n", stopped.stdout), stopped
    assert slurm("stop", "third").stdout.endswith("(third) had finished before.\n")
    assert "Nothing was stopped." in slurm("stop", "training", "nobody").stderr
    assert slurm("open", "--no-browser").stdout.startswith(kernel.value("training.browser_url")), "the only one"
    over = next(one for one in json.loads(slurm("sessions", "--all", "--json").stdout) if one["label"] == "third")
    assert (over["session"]["state"], over["state"]) == ("ended", "CANCELLED")
    assert [step["state"] for step in over["session"]["steps"]][-2:] == ["ready", "ended"]
    assert "no session second" in slurm("open", "--no-browser", "second").stderr
    assert kernel.value("training.server").startswith("jupyterlab")
    kernel.ok("training.stop()")
    wait_for(lambda: "CANCELLED" in kernel.text(asked), "its end, drawn")
    assert kernel.value("training.state, training.url") == "CANCELLED None"


def test_an_interrupt_asks_whether_it_is_to_be_kept(
    kernel: Any, slurm: Any, environment: dict[str, str], wait_for: WaitFor
) -> None:
    command = ["setsid", "--ctty", "--wait", sys.executable, "-m", "jupyter_slurm.cli.main", "launch", "-p", "arandu"]
    for answer, said in (("k", "keeps running"), ("c", "was cancelled")):
        words = ["--begin=now+3600", f"name=asked-{answer}", "noopen"]
        dialogue = [("pending: .*", "\x03"), (r"\[c/k\]", answer)]
        done = converse([*command, *words], {**os.environ, **environment}, dialogue)
        assert done.code == 130, done.text
        assert (
            f"Stopped waiting. Session {re.findall(r'Session ([0-9]+)', done.text)[0]} (asked-{answer}) {said}"
            in done.text
        )
    assert re.search(r"^asked-k +pending", slurm("sessions").stdout, re.MULTILINE)
    kernel.ok("import jupyter_slurm\nkept = jupyter_slurm.session('asked-k')")
    assert kernel.value("kept.state") == "pending"
    assert "is not ready: pending" in slurm("open", "asked-k").stderr
    wait_for(lambda: "asked-c" not in slurm("sessions").stdout, "its end")


def test_other_servers_from_a_notebook_and_from_a_terminal(kernel: Any, slurm: Any, home: Path) -> None:
    served = ["python3", "-m", "http.server", "{port}", "--bind", "{host}"]
    (home / "seen here").touch()
    kernel.ok("port, host = 99, '0.0.0.0'")  # the node's values are meant
    asked = kernel.ok("%slurm launch -p arandu name=files -- " + " ".join(served)).display
    done = slurm("launch", "-p", "arandu", "noopen", "--", *served)
    assert done.returncode == 0, done.stderr
    assert "unreachable" not in done.stdout
    where = re.search(r"^http://127\.0\.0\.1:8\d{3}/$", done.stdout, re.MULTILINE)
    assert where, done.stdout
    assert "seen here" in httpx.get(where[0], trust_env=False).text
    # The session may be ready before the first query of its state.
    assert re.search(r"^Session \d+ \(python3-1\): (starting|ready)", done.stdout, re.MULTILINE), done.stdout
    kernel.ok("files.wait_ready()")
    assert "seen here" in httpx.get(kernel.value("files.url"), trust_env=False).text
    assert kernel.value("files.page()") == "None"
    assert "It stops after 24 h without a connection." in kernel.text(asked)
    assert "; runs python3 -m http.server '{port}' --bind '{host}'\n" in slurm("sessions", "-v").stdout
    assert "GET /" in slurm("log", "files").stdout
    browser = home / "plain-browser"
    browser.write_text('#!/bin/sh\necho "$@" >"$0.argv"\n')
    browser.chmod(0o755)
    assert slurm("open", "files", BROWSER=str(browser)).stdout == kernel.value("files.url") + "\n"
    assert "There are several sessions: files, python3-1." in slurm("log").stderr
    stopped = slurm("stop", "files", "python3-1", kernel.value("files.id"))
    assert (stopped.returncode, stopped.stdout.count("Stopped: ")) == (0, 2), stopped
    assert slurm("sessions").stdout == "No active sessions. Add --all to list finished sessions.\n"
    assert "There is no active session." in slurm("log").stderr
    refused = kernel.run("%slurm launch -p arandu -- tensorboard --logdir runs")
    assert "does not name the port on which" in refused.traceback
    done = slurm("launch", "-p", "arandu", "noopen", "name=quoted", "--", "no-such --port {port}")
    assert "without quotes around them all" in done.stderr
    # The next step comes from the runner or from Slurm, whichever was first; the lines appear in both cases.
    assert re.search(r"Last lines of \S+stderr:\n {4}.* has no no-such --port", done.stderr), done.stderr
    assert "Write {port} where the command takes a port" in refused.traceback


def test_the_example_shows_what_it_promises(kernel: Any) -> None:
    cells = nbformat.read(EXAMPLE, as_version=4).cells
    told, modes = {}, []
    for cell in cells:
        if cell.cell_type == "code":
            told[cell.source] = ran = kernel.ok(cell.source)
            if "training.page" in cell.source:  # the file is removed at the end of the session
                modes.append(Path(ran.result["text/plain"].strip("'")).stat().st_mode & 0o777)

    def under(part: str) -> Any:
        return next(ran for source, ran in told.items() if part in source)

    assert re.search(r"^http://127\.0\.0\.1:8\d{3}/jupyter-slurm/\S+/\njupyterlab \d", under("wait_ready").stdout)
    assert modes == [0o600]
    assert re.search(r"training +ready +\d+ +dgx01 +http", under("sessions()").result["text/plain"])
    assert under("log(5)").stdout


def test_what_is_wrong_is_said_before_anything_is_submitted(kernel: Any, slurm: Any) -> None:
    ran = kernel.run("%slurm launch -p arandu nmae=x")
    assert "Did you mean name?" in ran.traceback
    assert "jupyter=instal is not supported" in kernel.run("%slurm launch -p arandu jupyter=instal").traceback
    assert "^^^^" in ran.traceback
    assert "no-such" in kernel.run("%slurm launch -p no-such").traceback
    assert "at least one minute" in kernel.run("%slurm launch idle=0:10").traceback
    assert "resume=0 is not a valid number of restarts" in kernel.run("%slurm launch resume=0").traceback
    assert "which --no-requeue forbids" in kernel.run("%slurm launch -p arandu --no-requeue resume").traceback
    assert "There is no site profile 'nowhere'" in kernel.run("%slurm launch nowhere -p arandu").traceback
    assert "--test-only is not supported" in slurm("launch", "-p", "arandu", "--test-only").stderr
    assert "--array cannot be used" in kernel.run("%slurm launch -p arandu --array 1-3").traceback
    done = slurm("launch", "-p", "arandu", "python=/usr/bin/python3")
    assert done.returncode == 1
    assert "Session" not in done.stdout  # nothing was submitted
    assert "/usr/bin/python3 has no Jupyter." in done.stderr
    assert "/usr/bin/python3 has no Jupyter.\nInstall it with jupyter=install" in done.stderr
    assert "'../x' is not a valid session name" in slurm("launch", "name=../x").stderr
    assert "port=99999 is not a port number" in slurm("launch", "port=99999").stderr
    assert "the Slurm of this computer is arandu" in slurm("launch", "arndu").stderr
    assert "Did you mean --gpus=1?" in kernel.run("%slurm launch -p arandu gpus=1").traceback
    for idle in ("soon", "30s", "100000000d", "UNLIMITED"):
        ran = kernel.run(f"%slurm launch -p arandu idle={idle}")
        assert f"idle={idle} is not a time of at least one minute" in ran.traceback
        assert "idle=30m" in ran.traceback
    assert "'docker://Torch:1' is not a valid image name" in kernel.run("%slurm launch image=Torch:1").traceback
    assert "/no-such.sif" in kernel.run("%slurm launch image=no-such.sif").traceback
    assert "Use one of them: image=NAME:TAG" in kernel.run("%slurm launch image=python:3 env=torch").traceback
    shown = slurm("launch", "--help")
    assert shown.returncode == 0
    assert "idle=TIME" in shown.stdout
    assert {"name", "idle"} <= {offer.rstrip("=") for offer in kernel.complete("%slurm launch -p arandu ")[0]}
