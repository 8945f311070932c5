"""Tests of allocations and the steps in them: on a real cluster, over each transport."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.errors import JobError, OptionError, SubmissionUnknown, TransportError, UsageError
from jupyter_slurm.services.allocations import leases, steps
from jupyter_slurm.services.jobs.runner_events import RunnerEvents

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh")]


class Bench:
    """A test desk with the requests of this file."""

    def __init__(self, desk: Any) -> None:
        self.desk = desk
        self.held: list[str] = []

    async def allocate(
        self, *options: str, lease: float = 600.0, once: bool = False, keep: bool = False, process: int | None = None
    ) -> dict[str, Any]:
        asked = {"seconds": lease, "once": once, "keep": keep}
        job = await self.desk.submit(
            "", *options, kind="allocation", python=sys.executable, lease=asked, process=process
        )
        self.held.append(job["key"])
        return dict(job)

    def asked(self, *command: str, text: str | None = None, options: tuple[str, ...] = ()) -> dict[str, Any]:
        asked = self.desk.asked(text or "#!", *options)
        for name in ("dry_run", "kind", "text"):
            del asked[name]
        kind = "command" if text is None else "script" if text.startswith("#!") else "python"
        return {**asked, "kind": kind, "text": text or "", "args": list(command), "python": sys.executable}

    async def start(self, job: dict[str, Any], *command: str, **more: Any) -> dict[str, Any]:
        return dict(await self.desk.start_step(job["key"], self.asked(*command, **more)))

    async def ran(self, job: dict[str, Any], *command: str, **more: Any) -> tuple[dict[str, Any], str, str]:
        """Run a step to its end; return it with its output."""
        step = await self.start(job, *command, **more)
        done = await self.desk.finished(step["key"])
        return done, await self.desk.text(step["key"]), await self.desk.text(step["key"], "stderr")


@pytest.fixture
async def bench(desk: Any) -> Any:
    bench = Bench(desk)
    yield bench
    for key in bench.held:
        await desk.core.cluster(desk.id).actions.cancel(key)


@pytest.fixture
def marks(tmp_path: Path) -> Callable[[str], Path]:
    tmp_path.chmod(0o755)
    return lambda name: tmp_path / name


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


async def test_steps_run_in_it_with_its_geometry_and_end_with_their_own_exit_codes(bench: Bench) -> None:
    job = await bench.allocate("-p", "arandu", "-n3", "--gpus=1", "--job-name=mine")
    step, out, err = await bench.ran(job, "sh", "-c", 'echo "task $SLURM_PROCID of $SLURM_NTASKS, $WHO" | sort')
    assert (step["state"], step["exit_code"]) == ("COMPLETED", 0), err
    assert sorted(line.partition(",")[0] for line in out.splitlines()) == [f"task {i} of 3" for i in range(3)]
    granted = await bench.desk.job(job["key"])
    assert (granted["state"], granted["gpus"], granted["lease"]) == ("RUNNING", 1, 600.0)
    assert step["id"] == f"{granted['id']}.0"
    assert step["allocation"] == job["key"]
    failed, out, _ = await bench.ran(job, "sh", "-c", 'echo $0 "$1"; exit 7', "a b", "c' d", options=("-n1",))
    assert (failed["state"], failed["exit_code"], failed["id"], out) == (
        "FAILED",
        7,
        f"{granted['id']}.1",
        "a b c' d\n",
    )
    missing, _, err = await bench.ran(job, "no-such-program", options=("-n1",))
    assert (missing["exit_code"], missing["state"]) == (127, "FAILED")
    assert "no-such-program cannot be run" in err
    listed = await bench.desk.list_steps(job["key"])
    assert [step["id"].rpartition(".")[2] for step in listed] == ["0", "1", "2"]
    assert (await bench.desk.job(f"{granted['id']}.1"))["key"] == failed["key"]
    jobs = {one["key"] for one in await bench.desk.core.cluster(bench.desk.id).jobs.list_jobs(active=False)}
    assert jobs & {job["key"], *(step["key"] for step in listed)} == {job["key"]}


async def test_several_at_once_each_interrupted_alone_and_the_allocation_goes_on(
    bench: Bench, marks: Callable[[str], Path]
) -> None:
    job = await bench.allocate("-p", "arandu")
    cell = (
        "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\nprint('begun', end='', flush=True)\n"
        "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.05)\nprint(' and done')\n"
    )
    stop = str(marks("stop"))
    first = await bench.start(job, str(marks("one")), stop, text=cell)
    second = await bench.start(job, str(marks("two")), stop, text=cell)
    await _until(lambda: marks("one").exists() and marks("two").exists())
    assert (await bench.desk.until(first["key"], lambda job: job["nodes"]))["state"] == "RUNNING"
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(first["key"], "INT")
    ended = await bench.desk.finished(first["key"])
    assert (ended["state"], ended["exit_code"]) == ("CANCELLED", 130)
    assert "KeyboardInterrupt" in await bench.desk.text(first["key"], "stderr")
    assert await bench.desk.text(first["key"]) == "begun"  # an incomplete line as well
    assert (await bench.desk.job(second["key"]))["state"] == "RUNNING"
    marks("stop").touch()
    assert (await bench.desk.finished(second["key"]))["state"] == "COMPLETED"
    assert await bench.desk.text(second["key"]) == "begun and done\n"
    deaf = await bench.start(job, text=f"#!/bin/sh\ntrap '' INT\ntouch {marks('deaf')}\nwhile :; do sleep 0.1; done\n")
    await _until(marks("deaf").exists)
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(deaf["key"], "INT")
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(deaf["key"])
    assert (await bench.desk.finished(deaf["key"]))["state"] == "CANCELLED"
    assert (await bench.desk.job(job["key"]))["state"] == "RUNNING"


@pytest.mark.here_only("what srun says is the same everywhere")
async def test_a_step_that_waits_for_another_says_so(bench: Bench, marks: Callable[[str], Path]) -> None:
    job, alone = await bench.allocate("-p", "arandu", "--gpus=1"), ("--exclusive", "--gpus=1")
    until = ("sh", "-c", f"while [ ! -e {marks('go')} ]; do sleep 0.1; done")
    first = await bench.start(job, *until, options=alone)
    await bench.desk.until(first["key"], lambda step: step["state"] == "RUNNING")
    second = await bench.start(job, "echo", "ran", options=alone)
    waits = await bench.desk.until(second["key"], lambda step: step["reason"])
    assert (waits["state"], waits["reason"]) == ("PENDING", "Requested nodes are busy")
    assert "Other steps seem to use the CPUs" in waits["reason_text"]
    assert "--overlap" in waits["next_step"]
    refused, _, _ = await bench.ran(job, "true", options=(*alone, "--immediate=1"))
    assert (refused["state"], refused["error"]["detail"]) == ("FAILED", "Slurm did not start the step.")
    assert "--overlap" in refused["error"]["hint"]
    marks("go").touch()
    ended = await bench.desk.finished(second["key"])
    assert (ended["state"], ended["reason"]) == ("COMPLETED", "")


async def test_a_step_is_started_once_and_waits_for_an_allocation_that_pends(
    bench: Bench, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a step whose request has an unknown result."""
    job = await bench.allocate("-p", "arandu", "--hold")
    asked = bench.asked("sh", "-c", "echo once")
    transport = bench.desk.core.cluster(bench.desk.id).client.transport
    real = transport.start_detached

    async def unheard(*words: Any, **more: Any) -> Any:
        hold = (await real(*words, **more)).lock
        if hold is not None:
            hold.release()
        raise TransportError("the connection broke", may_run=True)

    monkeypatch.setattr(transport, "start_detached", unheard)
    with pytest.raises(SubmissionUnknown, match=r"not known whether the step was requested.*: the connection broke"):
        await bench.desk.start_step(job["key"], asked)
    monkeypatch.setattr(transport, "start_detached", real)
    steps = await asyncio.gather(*(bench.desk.start_step(job["key"], asked) for _ in range(3)))
    assert {step["key"] for step in steps} == {asked["key"]}
    assert steps[0]["state"] == "PENDING"
    number = (await bench.desk.job(job["key"]))["id"]
    subprocess.run(["scontrol", "release", number], env=cluster.env(), check=True)
    await bench.desk.finished(asked["key"])
    again = await bench.desk.start_step(job["key"], asked)
    assert (again["state"], again["id"]) == ("COMPLETED", f"{number}.0")
    assert await bench.desk.text(asked["key"]) == "once\n"


async def test_nobody_comes_back_and_it_ends_but_not_under_a_step(bench: Bench, marks: Callable[[str], Path]) -> None:
    job = await bench.allocate("-p", "arandu", lease=2.0)
    script = f"#!/bin/sh\ntouch {marks('up')}\nuntil [ -e {marks('go')} ]; do sleep 0.1; done\n"
    step = await bench.start(job, text=script)
    await _until(marks("up").exists)
    lease = Path(bench.desk.root, job["key"], "lease")
    written = lease.read_text()
    begun = time.monotonic()
    await _until(lambda: time.monotonic() > begun + 3)  # longer than the lease
    assert (await bench.desk.until(job["key"], lambda job: job["state"] != "PENDING"))["state"] == "RUNNING"
    marks("go").touch()
    assert (await bench.desk.finished(step["key"]))["state"] == "COMPLETED"
    assert lease.read_text() == written  # without a follower of the allocation
    ended = await bench.desk.until(job["key"], lambda job: job["finished"])
    assert (ended["state"], ended["exit_code"]) == ("COMPLETED", 0)
    assert "This allocation was not used for 2 s" in await bench.desk.text(job["key"], "stderr")
    with pytest.raises(JobError, match="has ended"):
        await bench.start(job, "true")


async def test_an_end_that_two_tasks_read_at_once_stays_as_it_was(bench: Bench) -> None:
    """The task that reads second finds the step finished; it does not call the step cancelled with its allocation."""
    job = await bench.allocate("-p", "arandu")
    step = await bench.start(job, "true")
    await _until(Path(bench.desk.root, step["key"], "end.json").exists)
    await bench.desk.finished(step["key"])
    cluster = bench.desk.core.cluster(bench.desk.id)
    entry = cluster.tracker.find(step["key"])
    assert entry is not None
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(job["key"])
    await bench.desk.finished(job["key"])
    await cluster.steps._follow(entry)  # as a task that began before the end was read
    assert (await bench.desk.job(step["key"]))["state"] == "COMPLETED"
    assert await cluster.tracker._ended_by_marker(entry), "no further question to Slurm about it"


async def test_who_follows_it_keeps_it_and_what_it_takes_with_it_is_told(bench: Bench) -> None:
    job = await bench.allocate("-p", "arandu", lease=5.0)
    following = asyncio.create_task(bench.desk.finished(job["key"]))
    lease = Path(bench.desk.root, job["key"], "lease")
    await _until(lease.exists)
    first = float(lease.read_text())
    await _until(lambda: float(lease.read_text()) > first + 6)  # longer than the lease
    assert (await bench.desk.job(job["key"]))["state"] == "RUNNING"
    step = await bench.start(job, "sleep", "1000")
    await bench.desk.until(step["key"], lambda job: job["state"] == "RUNNING")
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(job["key"])
    assert (await following)["state"] == "CANCELLED"
    ended = await bench.desk.finished(step["key"])
    assert (ended["state"], ended["error"]["detail"]) == ("CANCELLED", "The allocation ended.")


async def test_what_a_killed_kernel_asked_for_is_given_back_unless_it_is_used_or_kept(
    bench: Bench, marks: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_GRACE_PERIOD_S", 1.0)
    desk = bench.desk
    with subprocess.Popen(["sleep", "1000"]) as kernel:
        forgotten, used, kept, pending = [
            await bench.allocate("-p", "arandu", "--time=10", *options, keep=keep, process=kernel.pid)
            for keep, options in ((False, []), (False, []), (True, []), (False, ["--hold"]))
        ]
        mine = await bench.allocate("-p", "arandu", process=os.getpid())
        step = await bench.start(used, text=f"#!/bin/sh\nuntil [ -e {marks('go')} ]; do sleep 0.1; done\n")
        idle = {**bench.asked(text="1"), "kind": "process", "text": ""}  # an unused process
        await desk.start_step(forgotten["key"], idle)
        for job in (forgotten, step, kept):
            await desk.until(job["key"], lambda job: job["state"] == "RUNNING")
        assert {job["released"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=True)} == {None}
        kernel.kill()
    async with desk.core.bus.subscribe():  # a subscriber keeps the allocation
        for job in (forgotten, pending):
            over = await desk.until(job["key"], lambda job: job["finished"])
            assert (over["state"], over["released"]) == ("CANCELLED", "forgotten")
    record = json.loads(Path(desk.root, forgotten["key"], "job.json").read_text())
    assert record["released"] == "forgotten"
    marks("go").touch()
    ended = await desk.finished(step["key"])
    assert ended["state"] == "COMPLETED", (ended, await desk.text(step["key"], "stderr"))
    for job in (used, kept, mine):
        assert (await desk.job(job["key"]))["state"] == "RUNNING"
    asked = await desk.core.cluster(desk.id).actions.cancel(used["key"])
    assert asked["released"] == "asked"


async def test_an_allocation_is_kept_without_its_kernel_and_given_to_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_GRACE_PERIOD_S", 1.0)
    desk, cluster = bench.desk, bench.desk.core.cluster(bench.desk.id)
    with subprocess.Popen(["sleep", "1000"]) as kernel, subprocess.Popen(["sleep", "1000"]) as other:
        kept, taken, forgotten = [
            await bench.allocate("-p", "arandu", "--time=10", "--mem=100M", process=kernel.pid) for _ in range(3)
        ]
        for job in (kept, taken):
            told = await cluster.keep_allocation(job["key"], {"keep": True, "notebook": "/home/ana/a.ipynb"})
            assert (told["keep"], told["kept_for"]) == (True, "/home/ana/a.ipynb")
        told = await cluster.keep_allocation(taken["key"], {"keep": False}, other.pid)
        assert (told["keep"], told["kept_for"]) == (False, None)
        kernel.kill()
        kernel.wait()  # otherwise the system still knows the process
        async with desk.core.bus.subscribe():
            over = await desk.until(forgotten["key"], lambda job: job["finished"])
            assert over["released"] == "forgotten"
            for job in (kept, taken):
                assert not (await desk.job(job["key"]))["finished"]
            other.kill()
            other.wait()
            await desk.until(taken["key"], lambda job: job["released"] == "forgotten")
    record = json.loads(Path(desk.root, kept["key"], "job.json").read_text())
    assert record["lease"]["keep"] is True
    assert record["lease"]["notebook"] == "/home/ana/a.ipynb"
    once = await bench.allocate("-p", "arandu", once=True)
    for key, error in ((once["key"], UsageError), (taken["key"], JobError)):
        with pytest.raises(error):
            await cluster.keep_allocation(key, {"keep": True})
    assert not (await desk.job(kept["key"]))["finished"]


async def test_another_agent_finds_steps_again_and_those_that_went_on_without_it(
    open_desk: Any, cluster: Any, tmp_path: Path, marks: Callable[[str], Path]
) -> None:
    root = str(tmp_path / "jobs")
    async with open_desk(cluster, tmp_path, job_root=root) as desk:
        before = Bench(desk)
        job = await before.allocate("-p", "arandu")
        script = f"#!/bin/sh\necho one\ntouch {marks('up')}\nuntil [ -e {marks('go')} ]; do sleep 0.1; done\necho two\n"
        step = await before.start(job, text=script)
        await _until(marks("up").exists)
    marks("go").touch()
    async with open_desk(cluster, tmp_path, job_root=root) as desk:
        after = Bench(desk)
        done = await desk.finished(step["key"])
        assert (done["state"], await desk.text(step["key"])) == ("COMPLETED", "one\ntwo\n")
        assert done["id"].endswith(".0")
        assert (await after.ran(job, "echo", "three"))[1] == "three\n"
        await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_a_step_whose_signs_are_lost_is_found_to_run_and_to_have_ended(
    bench: Bench, marks: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: RunnerEvents) -> None:
        """Remove no file: another agent has consumed the signs."""

    monkeypatch.setattr(RunnerEvents, "read", nothing)
    monkeypatch.setattr(steps, "_CHECK_INTERVAL_S", 0.5)
    job = await bench.allocate("-p", "arandu")
    step = await bench.start(job, text=f"#!/bin/sh\nuntil [ -e {marks('go')} ]; do sleep 0.1; done\nexit 3\n")
    running = await bench.desk.until(step["key"], lambda job: job["state"] == "RUNNING")
    assert running["id"].endswith(".0")
    marks("go").touch()
    ended = await bench.desk.finished(step["key"])
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 3)


async def test_two_agents_that_are_asked_for_the_same_step_start_it_once(
    open_desk: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "jobs")
    for name in "ab":
        (tmp_path / name).mkdir(mode=0o755)
    async with (
        open_desk(cluster, tmp_path / "a", job_root=root) as one,
        open_desk(cluster, tmp_path / "b", job_root=root) as two,
    ):
        job = await Bench(one).allocate("-p", "arandu")
        asked = Bench(one).asked("echo", "once")
        shelf = two.core.cluster(two.id).scan
        await shelf.get(job["key"])
        first = await one.start_step(job["key"], asked)
        real, blind = shelf.get, [asked["key"]]

        async def get(key: str, indexed: Any = None) -> Any:
            return None if key in blind and not blind.remove(key) else await real(key, indexed)

        monkeypatch.setattr(shelf, "get", get)  # reads just before the other agent creates the folder
        second = await two.start_step(job["key"], asked)
        assert second["key"] == first["key"]
        assert (await two.finished(first["key"]))["state"] == "COMPLETED"
        assert await two.text(first["key"]) == "once\n"
        await one.core.cluster(one.id).actions.cancel(job["key"])


async def test_a_full_disk_does_not_end_an_allocation_that_is_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await bench.allocate("-p", "arandu", lease=10.0)
    following = asyncio.create_task(bench.desk.finished(job["key"]))
    lease = Path(bench.desk.root, job["key"], "lease")
    await _until(lease.exists)
    transport = bench.desk.core.cluster(bench.desk.id).client.transport
    real, written = transport.write, []

    async def write(path: str, data: bytes, mode: int = 0o600) -> None:
        if path == str(lease):
            written.append(lease.stat().st_mtime)
            raise TransportError("No space left on device")
        await real(path, data, mode)

    monkeypatch.setattr(transport, "write", write)
    content = lease.read_text()
    await _until(lambda: written and written[-1] > written[0] + 12)  # longer than the lease
    assert lease.read_text() == content
    assert not following.done()
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(job["key"])
    assert (await following)["state"] == "CANCELLED"


async def test_a_python_cell_finds_its_checkpoints_and_leaves_no_token_behind(bench: Bench) -> None:
    job = await bench.allocate("-p", "arandu", "-n2")
    cell = (
        "import os\nfrom jupyter_slurm_job import checkpoint_dir, interrupted\n"
        "print(checkpoint_dir(), interrupted(), os.environ['HF_TOKEN'])"
    )
    asked = bench.asked(text=cell)
    asked["context"]["env"] = {**asked["context"]["env"], "HF_TOKEN": "hf-secret"}
    step = await bench.desk.start_step(job["key"], asked)
    done = await bench.desk.finished(step["key"])
    folder = Path(bench.desk.root, step["key"])
    assert done["state"] == "COMPLETED", await bench.desk.text(step["key"], "stderr")
    assert await bench.desk.text(step["key"]) == f"{folder}/checkpoint False hf-secret\n" * 2
    await _until(lambda: "hf-secret" not in (folder / "step.json").read_text())
    assert json.loads((folder / "step.json").read_text())["options"]
    with pytest.raises(UsageError, match="no usage report of its own"):
        await bench.desk.core.cluster(bench.desk.id).results.report(step["key"])


async def test_what_cannot_be_is_refused(bench: Bench) -> None:
    with pytest.raises(OptionError, match="--array"):
        await bench.allocate("-p", "arandu", "--array=1-2")
    job = await bench.allocate("-p", "arandu", "--hold")
    with pytest.raises(OptionError, match="terminal"):
        await bench.start(job, "true", options=("--pty",))
    with pytest.raises(UsageError, match="no command"):
        await bench.start(job)
    plain = await bench.desk.submit("#!/bin/sh\ntrue\n", "--hold")
    bench.held.append(plain["key"])
    with pytest.raises(UsageError, match="not an allocation"):
        await bench.start(plain, "true")
    record = json.loads(Path(bench.desk.root, job["key"], "job.json").read_text())
    assert record["kind"] == "allocation"
    assert "--no-requeue" in record["argv"]


def _spoilt(bench: Bench, step: dict[str, Any], job: dict[str, Any], number: int, **changes: Any) -> str:
    """Request a copy of a step with other content, as after a full disk or by another version."""
    root, own = Path(bench.desk.root), step["key"]
    key = f"{own[:-2]}{(int(own[-2:], 16) + 1 + number) % 256:02x}"
    (root / key).mkdir(mode=0o700)
    record = json.loads((root / step["key"] / "job.json").read_text().replace(step["key"], key))
    (root / key / "job.json").write_text(json.dumps({**record, "step": {**record["step"], "id": None}}))
    asked = json.loads((root / step["key"] / "step.json").read_text())
    (root / key / "step.json").write_text(json.dumps({**asked, **changes}))
    if not changes:
        (root / key / "stdout").mkdir()
    (root / job["key"] / "steps" / key).mkdir()
    return key


async def test_a_request_that_cannot_be_met_ends_that_step_and_nothing_else(
    bench: Bench, marks: Callable[[str], Path]
) -> None:
    job = await bench.allocate("-p", "arandu")
    script = f"#!/bin/sh\ntouch {marks('up')}\nuntil [ -e {marks('go')} ]; do sleep 0.1; done\necho well\n"
    step = await bench.start(job, text=script)
    try:
        await _until(marks("up").exists)
    except TimeoutError:
        pytest.fail(str((await bench.desk.job(step["key"]), await bench.desk.text(step["key"], "stderr"))))
    for number, (said, changes) in enumerate(
        {"TypeError": {"options": None}, "ValueError": {"env": {"A\0": "b"}}, "IsADirectoryError": {}}.items()
    ):
        key = _spoilt(bench, step, job, number, **changes)
        ended = Path(bench.desk.root, key, "end.json")
        await _until(ended.exists)
        assert json.loads(ended.read_text())["exit_code"] == 127
        assert (await bench.desk.finished(key))["state"] == "FAILED"
        assert f"srun could not be started: {said}" in await bench.desk.text(key, "stderr")
        assert f"step {key}: srun could not be started: {said}" in await bench.desk.text(job["key"], "stderr")
    requests = Path(bench.desk.root, job["key"], "steps")
    (requests / step["key"]).mkdir()  # requested again, as by a restarted agent
    await _until(lambda: not list(requests.iterdir()))
    marks("go").touch()
    assert (await bench.desk.finished(step["key"]))["state"] == "COMPLETED"
    assert await bench.desk.text(step["key"]) == "well\n"


def test_a_step_that_cannot_be_read_is_given_up_with_an_end(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    ours, unreadable, foreign = (f"20260101-000000-0000000{n}" for n in range(3))
    record = {"key": ours, "events": str(tmp_path / "events"), "lease": {"seconds": 1}}
    for key, content in ((ours, record), (unreadable, {**record, "step": {"allocation": ours}}), (foreign, record)):
        (tmp_path / ours / "steps" / key).mkdir(parents=True)
        (tmp_path / key).mkdir(exist_ok=True)
        (tmp_path / key / "job.json").write_text(json.dumps(content))
    (tmp_path / ours / "steps" / ours).rmdir()
    (tmp_path / unreadable / "step.json").write_text("[[")
    hold = Path(__file__).parents[3] / "jupyter_slurm" / "runner" / "allocation" / "hold.py"
    code = (
        "import importlib.util, sys\nspec = importlib.util.spec_from_file_location('hold', sys.argv[2])\n"
        "hold = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(hold)\n"
        "hold._MAX_VISIBILITY_DELAY_S = 0.1\nhold.main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / ours), str(hold)], capture_output=True, text=True, timeout=60
    )
    assert ran.stderr.count("cannot be read") == 2
    assert "was not used" in ran.stderr
    assert json.loads((tmp_path / unreadable / "end.json").read_text())["exit_code"] == 127
    assert (tmp_path / "events" / f"{unreadable}.ended").exists()
    assert not (tmp_path / foreign / "end.json").exists()
    assert not list((tmp_path / ours / "steps").iterdir())


async def test_an_end_that_cannot_be_read_for_a_moment_is_no_cancellation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await bench.allocate("-p", "arandu")
    cluster = bench.desk.core.cluster(bench.desk.id)
    step = await bench.start(job, "sleep", "1")
    entry = cluster.tracker.find(step["key"])
    assert entry is not None
    marker, read_end = Path(bench.desk.root, step["key"], "end.json"), cluster.tracker.read_end
    tries = 0

    async def fail_at_first(one: Any) -> bool:
        nonlocal tries
        tries += one is entry
        return tries > 3 and await read_end(one)

    monkeypatch.setattr(cluster.tracker, "read_end", fail_at_first)
    await _until(marker.exists)
    await cluster.actions.cancel(job["key"])
    async with asyncio.timeout(60):
        while not entry.is_finished:
            await cluster.steps.tend()
            await asyncio.sleep(0.1)
    assert (await bench.desk.job(step["key"]))["state"] == "COMPLETED"
