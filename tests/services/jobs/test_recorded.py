"""Tests of recorded job directories of an earlier version: they are read as the earlier code read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import jupyter_slurm.services.jobdir
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.record_writer import describe_end
from jupyter_slurm.services.jobs.serialize import job_dict

RECORDED = sorted((Path(__file__).parents[2] / "data" / "job_directories").glob("*.json"))

# Known to the agent that watched the job, and not to its directory: the tasks, and what the queue has shown.
_NOT_ON_DISK = {"tasks", "next_step", "reason_text", "time_limit"}


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return one recorded job: ``folder``, ``job.json``, ``job`` and ``record`` of the API."""
    content: dict[str, Any] = json.loads(request.param.read_text("utf-8"))
    return content


def test_a_recorded_job_is_shown_as_before(recorded: dict[str, Any]) -> None:
    assert len(RECORDED) == 4
    folder = JobFolder(recorded["folder"])
    job = TrackedJob(recorded["job"]["cluster"], folder=folder)
    job.recall(JobRecordFile.from_json(recorded["job.json"]), now=0.0)
    shown: dict[str, Any] = json.loads(json.dumps(job_dict(job)))
    assert shown.keys() >= recorded["job"].keys()
    assert {name: shown[name] for name in recorded["job"].keys() - _NOT_ON_DISK} == {
        name: value for name, value in recorded["job"].items() if name not in _NOT_ON_DISK
    }


def test_a_recorded_file_is_written_as_it_was_and_keeps_unknown_fields(recorded: dict[str, Any]) -> None:
    content = {**recorded["job.json"], "of_a_later_version": {"a": [1, None]}}
    assert JobRecordFile.from_json(content).to_json() == content
    schema = Path(jupyter_slurm.services.jobdir.__file__).with_name("job.schema.json")
    jsonschema.validate(content, json.loads(schema.read_text("utf-8")))


def test_how_often_a_job_was_requeued_outlives_the_agent(recorded: dict[str, Any]) -> None:
    """Otherwise, results that were copied back after the second run are copied once more, or never."""
    record = JobRecordFile.from_json(recorded["job.json"])
    job = TrackedJob("far", folder=JobFolder(recorded["folder"]))
    job.recall(record, now=0.0)
    job.restarts = 2
    written = replace(record, end=describe_end(job))
    schema = Path(jupyter_slurm.services.jobdir.__file__).with_name("job.schema.json")
    jsonschema.validate(written.to_json(), json.loads(schema.read_text("utf-8")))
    again = TrackedJob("far", folder=JobFolder(recorded["folder"]))
    again.recall(JobRecordFile.from_json(written.to_json()), now=0.0)
    assert again.restarts == 2
    assert again.latest is None or again.latest.restarts == 2
