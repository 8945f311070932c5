"""Usage from accounting: which jobs count."""

from __future__ import annotations

from jupyter_slurm.domain.queries.accounting_usage import parse_accounted, summed
from jupyter_slurm.domain.queries.output_frames import field_end

MARK = "0123456789abcdef"
HAD = "billing=1,cpu=2,mem=1G,node=1"


def answer(*rows: tuple[str, ...]) -> bytes:
    """Return the answer of sacct with these rows."""
    return "".join("".join(field + field_end(MARK) for field in row) + "\n" for row in rows).encode()


def row(job: str, state: str, tres: str, seconds: str, start: str) -> tuple[str, ...]:
    return (job, "ana", "phys", "gpu", "normal", state, tres, seconds, start, start, "name")


def test_a_job_of_less_than_a_second_counts_and_one_that_never_ran_does_not():
    jobs = parse_accounted(
        answer(
            row("1", "COMPLETED", HAD, "0", "1700000000"),
            row("2", "FAILED", HAD, "0", "1700000000"),
            row("3", "COMPLETED", HAD, "5", "1700000000"),
            row("4", "PENDING", "", "0", "Unknown"),
            row("5", "CANCELLED by 0", "", "0", "1700000000"),
            row("6", "PENDING", HAD, "0", "1700000000"),
        ),
        MARK,
    )
    assert [(job.id, job.seconds) for job in jobs] == [("1", 0), ("2", 0), ("3", 5)]
    (total,) = summed(jobs)
    assert (total["jobs"], total["cpu_seconds"]) == (3, 10)
