"""Command lines that are not passed through: those that never end, or that wait for an answer."""

from __future__ import annotations

import shlex

import pytest

from jupyter_slurm.domain.options.commands import check_ends, is_repeatable
from jupyter_slurm.domain.queries.job_actions import refusals
from jupyter_slurm.errors import UsageError


@pytest.mark.parametrize(
    "argv", [["sbatch", "job.sh"], ["sbatch"], ["sbatch", "--nonsense"], ["sbatch", "x", "--test-only"]]
)
def test_sbatch_is_passed_through_for_an_estimate_only(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="--test-only"):
        check_ends(argv)
    check_ends(["sbatch", "-p", "a", "--test-only", "--", "job.sh"])


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("squeue -i 1", "jobs()"),
        ("squeue --me -hi1", "jobs()"),
        ("squeue --iter=5", "jobs()"),
        ("sinfo --iterate 2 -N", "again"),
        ("scancel -i 12", "Leave it out"),
        ("scontrol", "show job"),
        ("scontrol -o", "show job"),
        ("scontrol wait_job 12", "state"),
        ("sacctmgr", "show qos"),
        ("sacctmgr modify account x set description=y", "-i modify"),
        ("sacctmgr -n MOD account x set description=y", "-i MOD"),
        ("sreport", "utilization"),
    ],
)
def test_endless_commands_and_dialogues_are_refused(line: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_ends(shlex.split(line))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "squeue --me",
        "squeue -n -i",
        "squeue --help -i 1",
        "sinfo --version",
        "squeue --no-such-option -i 1",
        "sstat -i 12",
        "sdiag -i",
        "scontrol show job 12",
        "scontrol write batch_script 12 -",
        "scontrol --version",
        "sacctmgr show associations user=x",
        "sacctmgr -i modify account x set description=y",
        "sacctmgr --immediate delete account x",
        "sreport user top",
    ],
)
def test_others_pass(line: str) -> None:
    check_ends(shlex.split(line))


def test_what_only_asks_may_be_asked_again():
    assert is_repeatable(["squeue", "--me"])
    assert is_repeatable(["sbatch", "--help"])
    assert not is_repeatable(["sbatch", "job.sh"])
    assert not is_repeatable(["sbatch", "--wrap", "--help"])
    assert not is_repeatable(["scontrol", "hold", "1"])


def test_what_was_refused_is_read_for_each_job():
    ids = ["12", "13", "14_3", "15", "99"]
    said = (
        "Job is pending execution for job 12\n13_[0-2]: Job has already finished\n13_3: No error\n"
        "Invalid job id specified for job 99\nslurm_suspend error: No error\n"
    )
    refused = {"12": "Job is pending execution", "13": "Job has already finished", "99": "Invalid job id specified"}
    assert refusals("requeue", ids, said) == refused
    said = (
        "scancel: Terminating job 12\nscancel: error: Kill job error on job id 14_3: Access/permission denied\n"
        "scancel: error: Kill job error on job id 15: Job/step already completing or completed\n"
    )
    assert refusals("cancel", ids, said) == {"14_3": "Access/permission denied"}
