"""GPUs of running jobs: those that a job has, and for several descriptions of the same GPUs each GPU once."""

from __future__ import annotations

import pytest

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.all_jobs import parse_running, running_argv
from jupyter_slurm.domain.queries.job_detail import parse_waiting, waiting_argv
from jupyter_slurm.domain.queries.limits import parse_use, use_argv

MARK = "0123456789abcdef"


def answer(argv: list[str], **known: str) -> bytes:
    """Return a row for a query: the fields in the order of the query, those not given empty."""
    (form,) = [word.partition("=")[2] for word in argv if word.startswith("--Format=")]
    names = [field.partition(":")[0] for field in form.split(",")]
    fields = [known.get(name.replace("-", "_"), "N/A") for name in names]
    return (f"~{MARK}~".join(fields) + f"~{MARK};\n").encode()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # --exclusive --gpus-per-node=1 on a node with 8 GPUs
        ({"tres_alloc": "cpu=64,node=1,gres/gpu=8,gres/gpu:a100=8", "tres_per_node": "gres/gpu:1"}, {"a100": 8}),
        # --gpus=7
        ({"tres_alloc": "cpu=7,node=1,gres/gpu=7,gres/gpu:a100=7", "tres_per_job": "gres/gpu:7"}, {"a100": 7}),
        ({"tres_alloc": "gres/gpu=3,gres/gpu:a100=2", "tres_per_job": "gres/gpu:3"}, {"a100": 2, "": 1}),
        ({"tres_alloc": "gres/gpu=2,gres/gpu:a=1,gres/gpu:b=1", "tres_per_job": "gres/gpu:2"}, {"a": 1, "b": 1}),
        # accounting without types
        ({"tres_alloc": "gres/gpu=2", "tres_per_job": "gres/gpu:a100:2"}, {"a100": 2}),
        ({"tres_alloc": "gres/gpu=8", "tres_per_node": "gres/gpu:a100:1"}, {"": 8}),
        # no accounting
        ({"tres_alloc": "cpu=2,node=2", "numnodes": "2", "tres_per_node": "gres/gpu:a100:4"}, {"a100": 8}),
        ({"tres_alloc": "cpu=2,node=1"}, {}),
    ],
)
def test_a_running_job_has_the_allocated_gpus(fields: dict[str, str], expected: dict[str, int]) -> None:
    (job,) = parse_running(answer(running_argv(MARK), jobarrayid="7", timelimit="10", **fields), MARK)
    assert job.gpus == expected


def test_a_waiting_job_requests_the_gpus_of_its_options() -> None:
    fields = {"state": "PENDING", "tres_alloc": "gres/gpu=8,gres/gpu:a100=8", "tres_per_node": "gres/gpu:1"}
    request = parse_waiting(answer(waiting_argv(JobId(7), MARK), **fields), MARK)
    assert request is not None
    assert request.gpus == {"": 1}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # --gpus=4 --gpus-per-task=1 -n4
        ({"tres_per_job": "gres/gpu:4", "tres_per_task": "gres/gpu:1", "numtasks": "4"}, {"gres/gpu": 4}),
        # --gpus=4 --gpus-per-node=2 -N2
        ({"tres_per_job": "gres/gpu:4", "tres_per_node": "gres/gpu:2", "numnodes": "2"}, {"gres/gpu": 4}),
        # --gpus-per-node=a100:2 --gpus-per-task=1 -N2 -n4
        (
            {"tres_per_node": "gres/gpu:a100:2", "tres_per_task": "gres/gpu:1", "numnodes": "2", "numtasks": "4"},
            {"gres/gpu": 4, "gres/gpu:a100": 4},
        ),
        ({"tres_per_node": "gres/gpu:a:1,gres/gpu:b:2"}, {"gres/gpu": 3, "gres/gpu:a": 1, "gres/gpu:b": 2}),
        ({"tres_per_task": "gres/gpu:2", "numtasks": "3"}, {"gres/gpu": 6}),
        ({}, {}),
    ],
)
def test_each_requested_gpu_is_in_use_once(fields: dict[str, str], expected: dict[str, int]) -> None:
    use = parse_use(answer(use_argv(MARK), jobid="7", tres_alloc="cpu=4", **fields), MARK)
    assert use == {"jobs": 1, "cpu": 4, **expected}
