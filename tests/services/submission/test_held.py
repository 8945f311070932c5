"""A held job says why it waits as soon as it is submitted."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slurm


@pytest.mark.here_only("the reason is that of the request, which is alike over each way")
@pytest.mark.parametrize(("text", "options"), [("print(1)", ["-H"]), ("#!/bin/sh\n#SBATCH --hold\ntrue\n", [])])
async def test_a_held_job_says_so_at_once(desk, text, options):
    job = await desk.submit(text, *options)
    try:
        assert (job["state"], job["reason"], job["reason_text"]) == ("PENDING", "JobHeldUser", "It is held.")
        assert f"release {job['id']}" in job["next_step"]
    finally:
        await desk.core.cluster(desk.id).actions.cancel(job["key"])
