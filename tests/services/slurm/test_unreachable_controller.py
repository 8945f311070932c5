"""Tests of the distinction between a refusal and a missing answer."""

import os

import pytest

from jupyter_slurm.services.slurm.unreachable_controller import is_silence
from jupyter_slurm.services.submission.sbatch_execution import SbatchAnswer


@pytest.mark.parametrize(
    ("argv", "said", "silent"),
    [
        (["squeue"], "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        (["scancel", "1"], "scancel: error: Kill job error on job id 1: Socket timed out on send/recv operation", True),
        (["sacct"], "sacct: error: Problem talking to the database: Connection refused", True),
        (
            ["squeue", "-t", "Connection refused"],
            "squeue: error: Invalid job state specified: Connection refused",
            False,
        ),
        (
            ["squeue", "-pConnection refused"],
            "squeue: error: Connection refused\nslurm_load_jobs error: Unable to contact slurm controller",
            True,
        ),
        (["squeue", "\udcff"], "squeue: error: Unrecognized option: \udcff", False),
    ],
)
def test_words_of_the_command_line_are_not_the_commands_own(argv, said, silent):
    assert is_silence(os.fsencode(said), argv) is silent


@pytest.mark.parametrize(
    ("said", "clear"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", True),
        *(
            (f"sbatch: error: Batch job submission failed: {said}", False)
            for said in (
                "Unexpected missing socket error",
                "Message send failure",
                "Message receive failure",
                "Communication shutdown failure",
                "Insane message length",
                "Header lengths are longer than data received",
                "Controller is in standby mode, try a different controller",
                "Slurm backup controller in standby mode",
                "Connection rejected by handler",
                "Connection timed out establishing",
                "Rate limit exceeded, please retry momentarily",
                "Zero Bytes were transmitted or received",
                "Unable to create job record, try again",
            )
        ),
        # The header and the environment are repeated too.
        ("sbatch: error: bad: Socket timed out\nsbatch: error: Batch job submission failed: Invalid qos", True),
        ("sbatch: error: Batch job submission failed: Connection refused\nsee https://wiki/Socket timed out", False),
        ("site wrapper: Socket timed out", False),
        ("sbatch: error: Invalid --time specification", True),
    ],
)
def test_the_line_of_the_failure_decides(said, clear):
    assert SbatchAnswer(1, b"", said.encode(), None).is_clear is clear
