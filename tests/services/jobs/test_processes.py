"""Tests of processes for cells in allocations: on a real cluster, over each transport."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.errors import JobError, OptionError, UsageError

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko", "openssh")]


class Bench:
    """A test desk with an allocation and its processes."""

    def __init__(self, desk: Any) -> None:
        self.desk = desk
        self.job: dict[str, Any] = {}

    async def allocate(self, lease: float = 600.0) -> None:
        self.job = await self.desk.submit(
            "",
            "-p",
            "arandu",
            "-n2",
            kind="allocation",
            python=sys.executable,
            lease={"seconds": lease, "once": False},
        )

    async def step(self, text: str = "", *, kind: str = "python", **more: Any) -> dict[str, Any]:
        asked = {**self.desk.asked("1"), "kind": kind, "text": text, "python": sys.executable, **more}
        del asked["dry_run"]
        return dict(await self.desk.start_step(self.job["key"], asked))

    async def process(self, **more: Any) -> str:
        return str((await self.step(kind="process", **more))["key"])

    async def ran(self, process: str, text: str) -> tuple[dict[str, Any], str]:
        cell = await self.step(text, process=process)
        return await self.desk.finished(cell["key"]), await self.desk.text(cell["key"])

    async def until_exists(self, path: Path) -> None:
        async with asyncio.timeout(60):
            while not path.exists():
                await asyncio.sleep(0.05)

    def folder(self, step: dict[str, Any]) -> Path:
        return Path(self.desk.root, step["key"])


@pytest.fixture
async def bench(desk: Any) -> Any:
    bench = Bench(desk)
    yield bench
    await desk.core.cluster(desk.id).actions.cancel(bench.job["key"])


@pytest.fixture
def marks(tmp_path: Path) -> Callable[[str], Path]:
    tmp_path.chmod(0o755)
    return lambda name: tmp_path / name


async def test_there_is_one_and_its_cells_run_in_their_order(bench: Bench, marks: Callable[[str], Path]) -> None:
    await bench.allocate()
    first, second = await asyncio.gather(bench.process(), bench.process())  # two notebooks at once
    wait = f"import pathlib, time\nseen = []\nwhile not pathlib.Path({str(marks('go'))!r}).exists(): time.sleep(0.05)"
    cells = [await bench.step(wait, process=first)]
    cells += [await bench.step(f"seen.append({n})", process=(first, second)[n % 2]) for n in range(6)]
    marks("go").touch()
    done, out = await bench.ran(second, "import os\nprint(seen, os.environ['SLURM_NTASKS'])")
    assert (done["state"], out) == ("COMPLETED", "[0, 1, 2, 3, 4, 5] 1\n")
    left, _ = await bench.ran(second, "import sys\nsys.exit(127)")  # otherwise the exit code of a missing Python
    assert (left["state"], left["exit_code"], "The node seems to have no" in left["reason_text"]) == (
        "FAILED",
        127,
        False,
    )
    ids = {(await bench.desk.finished(cell["key"]))["id"] for cell in cells}
    assert ids == {done["id"]}  # that of the only process
    states = [(await bench.desk.job(key))["state"] for key in (first, second)]
    assert sorted(states) == ["COMPLETED", "RUNNING"]
    with pytest.raises(UsageError, match="is not a process of this allocation"):
        await bench.step("1", process=cells[0]["key"])
    with pytest.raises(OptionError, match="one task"):
        await bench.process(options=["--ntasks=4"])
    record = json.loads((bench.folder(cells[1]) / "step.json").read_text())
    assert record["env"] is None


@pytest.mark.here_only("what the holder does on its node is the same either way")
async def test_its_end_ends_its_cells_and_says_why(bench: Bench, marks: Callable[[str], Path]) -> None:
    await bench.allocate()
    process = await bench.process()
    up = marks("up")
    running = await bench.step(
        f"import pathlib, time\npathlib.Path({str(up)!r}).touch()\ntime.sleep(1000)", process=process
    )
    waiting = await bench.step("1", process=process)
    await bench.until_exists(up)
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(process)
    ended = await bench.desk.finished(running["key"])
    assert (ended["state"], ended["error"]["detail"]) == (
        "FAILED",
        "The process ended while it ran: all variables of the process are gone (it was asked to end).",
    )
    ended = await bench.desk.finished(waiting["key"])
    assert (ended["state"], ended["error"]["detail"]) == (
        "CANCELLED",
        "The process ended before it began (it was asked to end).",
    )
    assert (await bench.desk.finished(process))["state"] == "CANCELLED"
    with pytest.raises(JobError, match="has ended"):
        await bench.step("1", process=process)
    # A late cell, before the agent knows that the process has ended.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jupyter_slurm.services.allocations.steps.find_owner", lambda *_: None)
        late = await bench.step("1", process=process)
    ended = await bench.desk.finished(late["key"])
    assert ended["error"]["detail"] == "The process ended before it began (it was asked to end)."
    refused = await bench.process(options=["--cpus-per-task=999"])
    assert (await bench.desk.finished(refused))["state"] == "FAILED"
    with pytest.raises(JobError, match=r"did not start \(srun: error: Unable to create step") as told:
        await bench.step("1", process=refused)
    assert "Ask for fewer tasks or CPUs" in told.value.hint
    up = marks("up again")
    sleeps = f"import pathlib, time\npathlib.Path({str(up)!r}).touch()\ntime.sleep(1000)"
    cell = await bench.step(sleeps, process=await bench.process())
    await bench.until_exists(up)
    await bench.desk.core.cluster(bench.desk.id).actions.cancel(bench.job["key"])
    ended = await bench.desk.finished(cell["key"])
    assert (ended["state"], ended["error"]["detail"]) == ("CANCELLED", "The allocation ended.")


@pytest.mark.here_only("what the holder does on its node is the same either way")
async def test_an_idle_process_does_not_keep_the_allocation_and_a_cell_does(
    bench: Bench, marks: Callable[[str], Path]
) -> None:
    await bench.allocate(lease=3.0)
    process = await bench.process()
    up, go = marks("up"), marks("go")
    cell = await bench.step(
        f"import pathlib, time\nbegun = time.monotonic()\npathlib.Path({str(up)!r}).touch()\n"
        f"while time.monotonic() < begun + 3.5 or not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)",
        process=process,
    )
    await bench.until_exists(up)
    go.touch()
    assert (await bench.desk.finished(cell["key"]))["state"] == "COMPLETED"  # longer than the lease
    assert (await bench.desk.finished(process))["state"] == "CANCELLED"
    ended = await bench.desk.until(bench.job["key"], lambda job: job["finished"])
    assert ended["state"] == "COMPLETED"
    assert "This allocation was not used for 3 s" in await bench.desk.text(bench.job["key"], "stderr")
