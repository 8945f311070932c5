"""A job's use according to accounting."""

from __future__ import annotations

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.job_usage import Usage, parse_usage, sacct_usage_argv

MARK = "0123456789abcdef"


def answer(*rows: dict[str, str]) -> bytes:
    argv = sacct_usage_argv(JobId(7), 1_700_000_000, MARK)
    names = argv[-1].removeprefix("--format=").split(",")
    end = next(word for word in argv if word.startswith("--delimiter=")).removeprefix("--delimiter=")
    return "".join("".join(row.get(name, "") + end for name in names) + "\n" for row in rows).encode()


WHOLE = {"JobID": "7", "TotalCPU": "00:05.000", "ElapsedRaw": "6", "AllocCPUS": "1"}


def test_the_peak_is_that_of_the_largest_step() -> None:
    steps = [
        {"JobID": f"7.{step}", "TRESUsageInTot": f"cpu=00:00:05,mem={peak},vmem=1G"}
        for step, peak in (("batch", "5K"), ("0", "7168"), ("1", "900"))  # plain numbers are bytes
    ]
    found = parse_usage(answer(WHOLE, *steps), MARK)
    assert found is not None
    assert (found.cpu, found.memory, found.elapsed) == (5.0, 7 << 10, 6)


def test_a_job_that_was_never_looked_at_has_no_peak() -> None:
    found = parse_usage(answer(WHOLE, {"JobID": "7.batch", "TRESUsageInTot": "cpu=00:00:05,mem=0"}), MARK)
    assert found is not None
    assert found.memory is None


def test_gpus_are_counted_only_where_slurm_counts_them() -> None:
    counted, uncounted = Usage(tres="cpu=2,mem=1G,gres/gpu=1"), Usage(tres="cpu=2,mem=1G")
    assert (counted.as_dict()["gpus_asked"], uncounted.as_dict()["gpus_asked"]) == (1, None)
