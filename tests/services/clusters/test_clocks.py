"""Tests with an agent whose computer has another time than the cluster."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_slurm.runner.container import image_notes
from jupyter_slurm.services.slurm.cluster_clock import earliest_on_cluster

pytestmark = pytest.mark.slurm

MONTH_S = 31 * 86_400.0


@pytest.mark.parametrize("shift", [MONTH_S, -MONTH_S], ids=["ahead", "behind"])
async def test_a_wrong_clock_erases_nothing_that_is_fresh(open_desk, cluster, tmp_path, shift):
    project = tmp_path / "project"
    project.mkdir()
    async with open_desk(cluster, tmp_path, clock=lambda: time.time() + shift, retention_days=7) as desk:
        staged = {"stage": {"folders": [{"source": str(project)}]}}
        job = await desk.submit("print(1)", **staged)
        over = await desk.finished(job["key"])
        await desk.until(job["key"], lambda told: told["stage"]["state"] == "back")
        root = Path(over["folder"]).parent
        draft = root / f".{'0' * 16}.tmp"
        draft.touch()
        # Of a job whose end is not known, the agent has only the time of the submission, by its own clock.
        entry = desk.core.cluster(desk.id).tracker.find(job["key"])
        entry.end_time, entry.submit_time = None, time.time() + shift
        for days in (None, 7, 0.01):
            assert (await desk.core.housekeeping.clean(older_than_days=days))["removed"] == []
        assert os.path.exists(over["folder"])
        assert draft.exists()

        # What is old by the clock of the cluster goes.
        os.utime(draft, (time.time() - 2 * MONTH_S,) * 2)
        assert (await desk.core.housekeeping.clean())["removed"] == [str(draft)]
        assert not [path for path in root.glob(".*.tmp") if path.is_file()], "the probe of the time is gone"
        entry.end_time = entry.submit_time = time.time() - MONTH_S
        assert over["folder"] in (await desk.core.housekeeping.clean(older_than_days=20))["removed"]


def test_a_lock_of_an_image_is_held_whatever_the_clock_of_the_node_says(tmp_path, monkeypatch):
    lock = tmp_path / "x.sif.lock"
    lock.touch()
    for shift in (3600.0, -3600.0):
        monkeypatch.setattr(image_notes.time, "time", lambda shift=shift: time.monotonic() + shift)
        assert image_notes._is_renewed(str(lock))
    os.utime(lock, (1e9, 1e9))
    assert not image_notes._is_renewed(str(lock))
    assert [path.name for path in tmp_path.iterdir()] == [lock.name]


@pytest.mark.here_only("the clock of a host is read alike over each way")
@pytest.mark.parametrize("shift", [MONTH_S, -MONTH_S])
async def test_accounting_is_asked_since_a_time_of_the_cluster(desk, shift):
    """A question that begins a month later would miss the job, which would then count as not submitted."""
    transport = desk.core.cluster(desk.id).tracker.client.transport
    now = time.time()
    begun = await earliest_on_cluster(transport, now + shift - 90, now + shift)
    assert begun <= now - 90 + 1
