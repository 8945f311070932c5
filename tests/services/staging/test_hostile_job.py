"""Tests with a hostile job: its folder decides neither what leaves this computer, nor what runs on it."""

from __future__ import annotations

from pathlib import Path

import hostile_job
import pytest

from jupyter_slurm.client.render.staging_card import stage_notes

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko", "openssh")]


async def test_a_hostile_job_gets_no_secret_and_places_nothing_that_runs_by_itself(desk, tmp_path):
    folder = tmp_path / "project"
    hostile_job.fill(folder)
    (tmp_path / "secret").touch()
    staged = {"stage": {"folders": [{"source": str(folder)}], "delete": True}}
    job = await desk.submit(hostile_job.CELL, **staged)
    copy = Path(job["stage"]["folders"][0]["dest"])
    assert hostile_job.leaked(copy) == []
    assert [one for one in job["warnings"] if "[conda] *env, own env" in one]
    over = await desk.finished(job["key"])
    assert (over["state"], over["stage"]["state"], over["stage"]["error"]) == ("COMPLETED", "back", None)
    hostile_job.check_untouched(folder)

    told = over["stage"]
    assert set(told["held"]) <= set(hostile_job.HELD)
    assert len(told["held"]) == min(len(hostile_job.HELD), 20)
    assert set(told["left"]) == {"private.txt", "deep/private.txt"}, "files that were never sent are not replaced"
    assert {"new env", "absolute", "deep/up", "of git", ".rsync-filter", "deep/.rsync-filter"} <= set(told["refused"])
    notes = " ".join(stage_notes(over))
    assert f"`jupyter slurm bring {job['id']} --also FILE`" in notes
    assert "\x1b" not in notes

    # The next job sends what the user decides: the files of the job have changed nothing.
    (folder / "program.py").write_text("print('its next version')\n")
    await desk.finished((await desk.submit("1", **staged))["key"])
    assert (copy / "program.py").read_text() == "print('its next version')\n"
    assert (copy / ".rsync-filter").read_text() == "- private.txt\n"
    assert hostile_job.leaked(copy) == []
    hostile_job.check_untouched(folder)

    # Only files that the user has named are copied.
    cluster = desk.core.cluster(desk.id)
    accepted = [".envrc", "line\nbreak", ".git/config", "deep/up"]
    await cluster.staging.copy_back(await cluster.jobs.find(job["key"]), accepted)
    assert (folder / ".envrc").read_text() == (folder / "line\nbreak").read_text() == "evil"
    hostile_job.check_untouched(folder, accepted[:2])
