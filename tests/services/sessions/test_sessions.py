"""Tests of sessions: a real Jupyter in a real job, reached through the local port as by a browser."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hostile_folder import fill
from sessions import Page, ended, launch, nothing_left, ready, run_a_cell, runner_of
from ssh_hosts.ways import new_login_host

from jupyter_slurm.errors import CommandTimeout, JobError, JobNotFound, TunnelError, UsageError

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(scope="module")
def login_host(ssh_host: Any, short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Provide a login node with OpenSSH's default limit of sessions, one of them for the tunnel."""
    return new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=10)


async def test_a_session_from_its_launch_to_its_end_over_a_restart_of_the_agent(
    open_desk: Any, cluster: Any, tmp_path: Path
) -> None:
    async with open_desk(cluster, tmp_path) as desk:
        asked = launch(desk, "-p", "arandu", "--gpus", "1", name="training", prefix="/user/ana%40lab/")
        await desk.core.sessions.launch(desk.id, asked)
        told = await ready(desk, asked)
        session = told["session"]
        assert 8000 <= session["local_port"] <= 9000
        assert session["server"].startswith("jupyterlab 4")
        base_url = f"/user/ana%40lab/jupyter-slurm/{told['key']}/"
        assert urlsplit(session["url"]).path == session["path"] == base_url
        page = Page((await desk.core.sessions.open(desk.id, "training"))["page"])
        assert await page.get("api/contents") == 403
        assert await page.log_in() == base_url
        assert (await page.leads_to("")).startswith(f"{base_url}lab/workspaces/training")  # with separate tabs
        way = {"port": session["local_port"], "path": base_url, "base_url": base_url, "token": page.token}
        assert await desk.core.sessions.session_route(desk.core.clusters.reached(), told["key"]) == way
        assert await page.get("lab") == 200
        assert await run_a_cell(page, "import os; print(os.environ['SLURM_JOB_ID'])") == f"{told['id']}\n"
        assert page.token not in str(told)
        assert page.token not in await desk.text(told["key"], "stdout") + await desk.text(told["key"], "stderr")
    with socket.create_server(("127.0.0.1", session["local_port"])):  # another program was faster
        async with open_desk(cluster, tmp_path) as desk:
            told = await desk.until(asked["key"], lambda job: job["session"]["state"] == "reconnecting")
            assert (
                f"{session['local_port']} on this computer is in use by another program of yours"
                in told["session"]["message"]
            )
    async with open_desk(cluster, tmp_path) as desk:
        now = (await ready(desk, asked))["session"]
        assert [step["state"] for step in now["steps"]] == ["submitted", "pending", "starting", "ready"]
        assert {**now, "steps": session["steps"]} == session  # Slurm knows the start time better than the runner
        assert await page.get("api/contents") == 200  # the login stays valid, on the same port
        kept = await desk.core.sessions.rename(desk.id, "training", "serious")
        assert kept["label"] == "serious"
        assert [one["key"] for one in desk.core.sessions.list_to_api(desk.id, active=True)] == [told["key"]]
        with pytest.raises(JobNotFound, match="There is no session training"):
            await desk.core.sessions.session_to_api(desk.id, "training")
        assert [tunnel["local_port"] for tunnel in desk.core.tunnels.list_to_api(desk.id)] == [session["local_port"]]
        await desk.core.sessions.end(desk.id, "serious")
        assert desk.core.tunnels.list_to_api(desk.id) == []
        over = await desk.finished(told["key"])
        assert (over["state"], over["session"]["state"], over["session"]["url"]) == ("CANCELLED", "ended", None)
        await nothing_left(desk, told)


HERE = "the way there is the same for all of these; the test above goes over SSH"


@pytest.mark.here_only(HERE)
async def test_a_folder_with_names_of_modules_harms_no_session(desk: Any, launched: Any, tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "types.py").unlink()  # hides Python's from the kernel that Jupyter starts in the folder
    context = {"cwd": desk.folder, "env": {**desk.env, "PYTHONSAFEPATH": ""}}  # `make test` sets it
    told = await launched("-p", "devwork", dir=str(tmp_path), context=context)
    page = Page((await desk.core.sessions.open(desk.id, told["key"]))["page"])
    await page.log_in()
    cell = "from own_module_of_the_user import answer; import os; print(answer, os.environ['SLURM_JOB_NAME'])"
    assert await run_a_cell(page, cell) == "42 interactive\n"


@pytest.mark.here_only(HERE)
async def test_one_that_cannot_begin_says_why_and_leaves_nothing(desk: Any, launched: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "jupyterlab"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('it is damaged')\n")
    context = {"cwd": desk.folder, "env": {**desk.env, "PYTHONPATH": str(broken.parent)}}
    elsewhere = {
        "cwd": desk.folder,
        "env": {**desk.env, "PATH": f"{os.path.dirname(shutil.which('sbatch') or '')}:/usr/bin"},
    }
    own = tmp_path / "own"
    own.mkdir()
    (own / "jupyter_config.py").write_text("import sys\nif True:\n    sys.exit(3)\n")
    ended_by_own = {"cwd": desk.folder, "env": {**desk.env, "JUPYTER_CONFIG_DIR": str(own)}}
    board = {"app": "tensorboard", "app_values": {"logdir": "no/logs"}, "dir": str(tmp_path)}
    early, lost, damaged, exiting, bare, later, empty = await asyncio.gather(
        launched("-p", "arandu", wait=False),
        launched("-p", "arandu", dir="no/such 'folder'", wait=False),
        launched("-p", "arandu", context=context, wait=False),
        launched("-p", "arandu", context=ended_by_own, wait=False),
        launched("-p", "arandu", "--begin=now+3600", python="python3", context=elsewhere, wait=False),
        launched("-p", "arandu", "--begin=now+3600", name="later", wait=False),
        launched("-p", "arandu", "--begin=now+3600", **board, wait=False),
    )
    await desk.until(early["key"], lambda job: job["session"]["state"] == "starting")
    await desk.core.sessions.end(desk.id, early["key"])
    assert any("/usr/bin/python3 has no Jupyter." in said for said in bare["warnings"])  # a node may find another one
    assert any("no/such 'folder' does not exist on " in said for said in lost["warnings"])
    assert [said for said in empty["warnings"] if f"The folder {tmp_path}/no/logs does not exist on " in said]
    over = await desk.finished(lost["key"])
    assert (over["state"], over["session"]["state"]) == ("FAILED", "ended")
    assert re.fullmatch(r"\S+ has no folder .*/no/such 'folder'\.", over["error"]["detail"])
    over = await desk.finished(damaged["key"])
    assert re.match(r"jupyterlab \S+ ended before it was ready \(exit code 1\)", over["error"]["detail"])
    assert "it is damaged" in await desk.text(damaged["key"], "stderr")
    over = await desk.finished(exiting["key"])
    said = f"ended before it was ready (exit code 3): {own}/jupyter_config.py, line 3, ended it."
    assert said in over["error"]["detail"]
    assert "configuration file" in over["error"]["hint"]
    assert (await desk.core.sessions.session_to_api(desk.id, "later"))["session"]["state"] == "pending"
    with pytest.raises(JobError, match="Session later is not ready: pending"):
        await desk.core.sessions.open(desk.id, "later")
    for told in (lost, damaged, exiting, early):
        await ended(told["folder"])
    told = await desk.until(later["key"], lambda job: job["estimated_start"])
    assert told["session"]["state"] == "pending"
    assert 3500 < told["estimated_start"] - told["submit_time"] < 3700


async def test_a_form_has_the_problems_of_a_folder_and_an_environment_before_the_launch(desk: Any) -> None:
    """They are looked for where Slurm's commands run."""
    wide = Path(desk.folder, "a folder")
    wide.mkdir()
    (wide / "file").touch()

    async def problems(**more: Any) -> list[tuple[str, str]]:
        asked = {**launch(desk, "-p", "arandu", "--nodes=1", **more), "dry_run": True}
        shown = await desk.core.sessions.launch(desk.id, asked)
        return [(one["option"], one["scope"]) for one in shown["problems"]]

    assert await problems() == await problems(dir=str(wide)) == await problems(dir="~") == []
    assert await problems(dir=f"{wide}/file") == [("dir", "file")]
    assert await problems(dir=f"{wide}/no such", env="docker://python:3.12") == []  # the container has other folders
    assert await problems(dir="~/no such") == [("dir", "missing")]
    for env, scope in {str(wide): "file", f"{wide}/none": "missing", "nowhere": "unknown"}.items():
        with pytest.raises(UsageError) as refused:
            await problems(env=env)
        assert (refused.value.details["option"], refused.value.details["scope"]) == ("env", scope)


@pytest.mark.root
@pytest.mark.here_only(HERE)
async def test_it_has_a_name_a_port_and_a_token_that_are_nobody_elses(
    desk: Any, launched: Any, tmp_path: Path, open_desk: Any, cluster: Any
) -> None:
    own: dict[str, dict[str, Any]] = {"ServerApp": {"ip": "0.0.0.0", "sock": str(tmp_path / "socket")}}
    own["ServerApp"] |= {"certfile": "/none", "client_ca": "/none", "ssl_options": {"keyfile": "/none"}}
    own["ServerApp"] |= {"preferred_dir": "/usr", "runtime_dir": str(tmp_path / "none"), "file_to_run": "/etc/fstab"}
    own["ServerApp"] |= {"websocket_url": "ws://127.0.0.2", "allow_origin_pat": ".*", "allow_credentials": True}
    own |= {name: {"root_dir": "/usr"} for name in ("FileContentsManager", "AsyncLargeFileManager")}
    own |= {"IdentityProvider": {"token": "known"}, "PasswordIdentityProvider": {"password_required": True}}
    (tmp_path / "jupyter_server_config.d").mkdir()
    for path in ("jupyter_server_config.json", "jupyter_server_config.d/own.json"):
        (tmp_path / path).write_text(json.dumps(own))
    env = {**desk.env, "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_TOKEN": "known"}
    context = {"cwd": desk.folder, "env": env}
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        both = await asyncio.gather(
            *(launched("-p", "arandu", name="one", port=port, context=context, wait=False) for _ in range(2)),
            return_exceptions=True,
        )
        refused = [one for one in both if isinstance(one, UsageError)]
        assert [error.message for error in refused] == ["There is a session one already."], both
        told = next(one for one in both if isinstance(one, dict))
        await desk.until(told["key"], lambda job: job["session"]["state"] == "unreachable")
        with pytest.raises(TunnelError, match=f"port {port} is in use"):
            await desk.core.sessions.open(desk.id, "one")
    told = await desk.core.sessions.open(desk.id, "one")
    assert (told["session"]["state"], told["session"]["local_port"]) == ("ready", port)
    assert httpx.get(f"{told['session']['url']}api/contents?token=known", trust_env=False).status_code == 403
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):  # it listens only on 127.0.0.1
        probe.connect(("127.0.0.2", told["session"]["port"]))
    async with open_desk(cluster, tmp_path / "other-machine", job_root=desk.core.settings.job_root) as another:
        await another.until(told["key"], lambda job: job["label"] == "one" and job["session"]["port"])
        await desk.core.sessions.rename(desk.id, "one", "first")
        await another.until(told["key"], lambda job: job["label"] == "first")
    assert json.loads((Path(told["folder"]) / "job.json").read_bytes())["label"] == "first"
    token = (Path(told["folder"]) / "serving" / "token").read_text()
    headers = {"Authorization": f"token {token}", "Origin": "http://127.0.0.3"}
    listed = httpx.get(f"{told['session']['url']}api/contents", headers=headers, trust_env=False)
    assert "bin" not in {one["name"] for one in listed.json()["content"]}, "its folder, not /usr"
    assert "Access-Control-Allow-Credentials" not in listed.headers
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for path in ("serving/token", "serving/jupyter_config.json", "served.json"):
        assert (Path(told["folder"]) / path).stat().st_mode & 0o77 == 0
        read = subprocess.run([*nobody, "cat", f"{told['folder']}/{path}"], capture_output=True, check=False)
        assert read.returncode == 1, path
    reach = "import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=20)"
    for where in (told["session"]["port"], port):
        url = f"http://127.0.0.1:{where}/jupyter-slurm/{told['key']}/api/contents"
        tried = subprocess.run([*nobody, "/usr/bin/python3", "-c", reach, url], capture_output=True, check=False)
        assert tried.returncode == 1
    show = ["scontrol", "show", "job", "-dd", told["id"]]
    shown = subprocess.run(show, env={**os.environ, **desk.env}, capture_output=True, check=True)
    assert token.encode() not in shown.stdout
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


@pytest.mark.here_only(HERE)
async def test_the_end_of_a_stopped_one_is_known_from_its_runner_before_slurm_tells(
    desk: Any, launched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-m", "http.server", "--bind", "{host}", "{port}"]
    stopped, elsewhere = [await launched("-p", "arandu", command=command) for _ in range(2)]
    cluster = desk.core.cluster(desk.id)
    await cluster.poller.stop()
    with monkeypatch.context() as patch:
        patch.setattr(cluster.client, "describe", _nothing)  # from here on, only the runners tell
        patch.setattr(cluster.client, "queue", _no_answer)
        subprocess.run(["scancel", elsewhere["id"]], env=desk.env, check=True)
        told = await desk.core.sessions.end(desk.id, stopped["key"])
        assert (told["state"], told["session"]["state"], told["error"]) == ("CANCELLED", "ended", None)
        marker = Path(elsewhere["folder"], "end.json")
        async with asyncio.timeout(60):
            while not marker.exists():
                await asyncio.sleep(0.1)
        assert json.loads(marker.read_text())["terminated"]
        assert not await cluster.tracker.read_end(cluster.tracker.entries[elsewhere["key"]])
        # The signal may come at a time limit or a preemption, too.
        assert (await desk.job(elsewhere["key"]))["state"] in ("RUNNING", "COMPLETING")  # as in the last answer
    async with asyncio.timeout(60):
        while not (await desk.job(elsewhere["key"]))["finished"]:
            await cluster.tracker.poll()
    assert [(await desk.job(told["key"]))["state"] for told in (stopped, elsewhere)] == ["CANCELLED", "CANCELLED"]


async def _nothing(*_: Any) -> list[Any]:
    return []


async def _no_answer(*_: Any) -> list[Any]:
    raise CommandTimeout("Slurm does not answer.")


@pytest.mark.here_only(HERE)
async def test_it_ends_with_its_runner_by_itself_and_when_nobody_uses_it(desk: Any, launched: Any) -> None:
    killed, over, unused = await asyncio.gather(
        launched("-p", "arandu", name="killed"),
        launched("-p", "arandu", name="over"),
        launched("-p", "arandu", name="unused", idle=2.0, wait=False),
    )
    page = Page((await desk.core.sessions.open(desk.id, "killed"))["page"])
    await run_a_cell(page, "1")  # to start a kernel
    os.kill(runner_of(killed["folder"]), signal.SIGKILL)
    page = Page((await desk.core.sessions.open(desk.id, "over"))["page"])
    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"token {page.token}"}) as http:
        with contextlib.suppress(httpx.RemoteProtocolError):  # the server may end before its answer
            await http.post(f"{page.url}api/shutdown")
    assert (await desk.finished(over["key"]))["state"] == "COMPLETED"
    last = await desk.finished(unused["key"])
    assert (last["state"], last["error"]) == ("COMPLETED", None)
    assert "This session was not used for 2 s" in await desk.text(unused["key"], "stderr")
    assert (await desk.finished(killed["key"]))["state"] == "FAILED"
    for told in (killed, over, unused):
        await ended(told["folder"])
    await nothing_left(desk, killed)


@pytest.mark.here_only(HERE)
async def test_one_with_resume_goes_on_after_its_time_limit_whoever_is_there(
    open_desk: Any, cluster: Any, tmp_path: Path, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(cluster, tmp_path) as desk:
        asked = launch(desk, "-p", "arandu", "--time=10", name="long", resume=1)
        await desk.core.sessions.launch(desk.id, asked)
        first = await ready(desk, asked)
        assert first["session"]["ends"] is None
        monkeypatch.setattr("jupyter_slurm.domain.advice.endings._WARNING_SHARE", 1.0)  # as if the end was near already
        async for event, told in desk.core.cluster(desk.id).results.stream(asked["key"], {}):
            if event == "job" and told["session"]["ends"]:
                break
        assert told["session"]["ends"] == told["start_time"] + 600
        page = Page((await desk.core.sessions.open(desk.id, "long"))["page"])
        await page.log_in()
        await run_a_cell(page, "1")  # to start a kernel
        soon = (datetime.datetime.now() + datetime.timedelta(seconds=6)).strftime("%Y-%m-%dT%H:%M:%S")
        cluster.run("scontrol", "update", f"jobid={first['id']}", f"endtime={soon}")
        cluster.run("scancel", "--batch", "--signal=USR1", first["id"])  # as Slurm does before the time limit
        waits = await desk.until(first["key"], lambda job: job["session"]["state"] == "pending")
        assert waits["session"]["message"] == "it will continue under the same address, without its kernels"
        assert "ready" not in [step["state"] for step in waits["session"]["steps"]]  # a step of the first run
        with pytest.raises(JobError, match="Session long is not ready: pending"):
            await desk.core.sessions.open(desk.id, "long")

    def has_begun() -> bool:  # without the two minutes for which Slurm holds a requeued job
        cluster.run("scontrol", "update", f"jobid={first['id']}", "starttime=now", check=False)
        return "RUNNING" in str(cluster.run("squeue", "-h", "-j", first["id"], "-o", "%T").stdout)

    await asyncio.to_thread(wait_for, has_begun, "the second run")
    async with open_desk(cluster, tmp_path) as desk:
        again = await ready(desk, asked)
        assert (again["id"], again["session"]["url"]) == (first["id"], first["session"]["url"])
        assert await page.get("api/contents") == 200  # the login stays valid
        assert await run_a_cell(page, "import os; print(os.environ['SLURM_RESTART_COUNT'])") == "1\n"
        over = await desk.core.sessions.end(desk.id, "long")
        assert (over["state"], over["session"]["state"]) == ("CANCELLED", "ended")
        await nothing_left(desk, again)


# Common installations at the end of 2018, 2021 and 2023, with the additions needed on present Pythons.
OLD = {
    "notebook 5.7.16": ("notebook==5.7.16", "nbconvert<6", "mistune<1", "jinja2<3.1", "tornado<6.3", "six"),
    "jupyterlab 2.3.2": ("jupyterlab==2.3.2", "notebook==6.4.12", "jinja2<3.1"),
    "jupyterlab 3.6.8": ("jupyterlab==3.6.8", "jupyter_server<2"),
}
COMMON = ("traitlets<5.10", "jupyter_client<8", "ipykernel<7")


@pytest.fixture(scope="module")
def old_pythons(request: pytest.FixtureRequest) -> dict[str, str]:
    """Provide Pythons with old Jupyters, made once for all test runs."""
    folder = request.config.rootpath / ".build" / "jupyters"
    places = {name: folder / f"{name.replace(' ', '-')}-{sys.version_info.minor}" for name in OLD}
    missing = [name for name, place in places.items() if not (place / "is-whole").exists()]

    def make(name: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", places[name]], check=True)
        install = [sys.executable, "-m", "pip", "--python", places[name], "install", "-q", "--no-compile"]
        subprocess.run([*install, *OLD[name], *COMMON], check=True)
        (places[name] / "is-whole").touch()

    with ThreadPoolExecutor() as pool:
        list(pool.map(make, missing))
    return {name: str(place / "bin" / "python") for name, place in places.items()}


@pytest.mark.here_only(HERE)
@pytest.mark.nightly  # they are installed; tests/services/images/test_session_images.py has one of them by day
@pytest.mark.timeout(600)
async def test_old_jupyters_do_as_well(desk: Any, launched: Any, old_pythons: dict[str, str]) -> None:
    """notebook 5 and 6, jupyter_server 1; a notebook 6 alone is in tests/services/images/test_session_images.py."""

    async def use(number: int, name: str) -> None:
        told = await launched("-p", "arandu", name=f"old-{number}", python=old_pythons[name])
        assert told["session"]["server"] == name
        page = Page((await desk.core.sessions.open(desk.id, f"old-{number}"))["page"])
        assert await page.get("api/contents") == 403
        assert await page.log_in() == f"/jupyter-slurm/{told['key']}/"
        assert await page.get("api/contents") == 200
        assert await run_a_cell(page, "import os; print(os.environ['SLURM_JOB_ID'])") == f"{told['id']}\n"
        assert page.token not in await desk.text(told["key"], "stderr")

    await asyncio.gather(*(use(number, name) for number, name in enumerate(old_pythons)))
