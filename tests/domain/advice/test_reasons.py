"""Explanations of reasons and ends of jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.advice.endings import SIGNALS
from jupyter_slurm.domain.advice.reasons import KNOWN_REASONS, explain, explain_wait_of_others, memory_step
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import FINAL_STATES, JobState

# All limits of job_state_reason.c of Slurm 26.05, and the words with their own texts.
LIMITS = """
    QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit
    QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit
    QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit
    QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied AssocGrpCpuLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit
    AssocGrpJobsLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpSubmitJobsLimit AssocGrpWallLimit AssocMaxJobsLimit
    AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit
    AssocMaxSubmitJobLimit AssocGrpUnknown AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes AssocMaxUnknownPerJob
    AssocMaxUnknownPerNode AssocMaxUnknownMinutesPerJob AssocMaxCpuPerNode AssocGrpMemMinutes AssocGrpMemRunMinutes
    AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxMemMinutesPerJob AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
    AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxGRESMinutesPerJob AssocGrpLicense AssocMaxLicensePerJob AssocGrpBB
    AssocGrpBilling AssocMaxBillingPerNode AssocMaxBBMinutesPerJob QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes
    QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser QOSMaxMemoryMinutesPerJob QOSMinMemory QOSMinNode QOSMinGRES
    QOSMaxGRESPerUser QOSMaxGRESPerNode QOSMaxNodeMinutesPerJob QOSGrpEnergy QOSMinBilling MaxCpuPerAccount
    MaxGRESPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount MaxMemoryPerAccount MaxGRESRunMinsPerAccount
    MaxCpuRunMinsPerUser MaxNodeRunMinsPerUser MaxBillingRunMinsPerAccount
"""
WORDS = """
    PowerNotAvail PowerReserved Prolog Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive JobHeldAdmin
    JobHeldUser NvidiaImexChannels BeginTime Licenses AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
    Reservation ReqNodeNotAvail SchedDefer NodeDown BadConstraints SystemFailure JobLaunchFailure NonZeroExitCode RaisedSignal
    TimeLimit InactiveLimit InvalidAccount InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning
    QOSNotAllowed AccountNotAllowed DependencyNeverSatisfied JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources
    BurstBufferStageIn BurstBufferOperation DeadLine PartitionConfig AccountingPolicy FedJobLock OutOfMemory MaxMemPerLimit
    ReservationDeleted ReservationInvalid Constraints MaxPoweredUpNodes MpiPortsBusy WaitingForScheduling FrontEndDown
"""


def job(state: str = "PENDING", **fields: object) -> JobRecord:
    return JobRecord(id=JobId(12, task=3), state=JobState.parse(state), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", [*LIMITS.split(), *WORDS.split()])
def test_every_reason_of_slurm_has_words_and_a_next_step(reason: str) -> None:
    words, step = explain(reason, job())
    assert words[0].isupper()
    assert words.endswith((".", ")"))
    assert reason not in words
    assert step


def test_the_table_has_no_reason_that_is_unknown_here() -> None:
    assert {reason for reason in KNOWN_REASONS if " " not in reason} == set(WORDS.split())


@pytest.mark.parametrize(
    ("reason", "words", "step"),
    [
        ("(Priority)", "come first", "shorter --time"),
        ("JobHeldUser", "held", "scontrol release 12_3"),
        ("PartitionTimeLimit", "longer than", "jobid=12_3 timelimit="),
        ("QOSMaxGRESPerUser", "GPUs", "ended"),
        ("QOSMaxWallDurationPerJobLimit", "more running time for one job than the QOS allows", "jobid=12_3 timelimit="),
        ("AssocGrpCPUMinutesLimit", "no more time left", "shorter --time"),
        ("QOSGrpCPUMinutesLimit", "The QOS has no more time left", "shorter --time"),
        ("ReqNodeNotAvail, UnavailableNodes:dgx[01-02]", "(Nodes: dgx[01-02])", "without naming nodes"),
        ("ReqNodeNotAvail, May be reserved for other job", "not available", "reservation"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "down",
            "sinfo -R",
        ),
        ("Nodes_required_for_job_are_DOWN,_DRAINED".replace("_", " "), "down", "sinfo -R"),
        ("JobArrayTaskLimit,Resources", "at a time", "arraytaskthrottle"),
        ("None,Dependency", "waits for other jobs", "ended as requested"),
        ("launch failed requeued held", "held", "scontrol release 12_3"),
        ("BeginTime", "requeue", "automatically"),
    ],
)
def test_particular_reasons(reason: str, words: str, step: str) -> None:
    said, todo = explain(reason, job())
    assert words in said
    assert step in todo


def test_memory_is_advised_only_where_it_is_the_cause() -> None:
    assert "mem" not in " ".join(explain("Resources", job(tres="cpu=1,mem=10000M,node=1,gres/gpu=1")))
    for reason in ("QOSMaxMemoryPerUser", "AssocGrpMemLimit", "MaxMemPerLimit"):
        assert "--mem" in explain(reason, job())[1]
    assert memory_step(1000 << 30, "64G").endswith(
        "(this job requests 1000G): cancel it, and request what it needs with --mem, for example --mem=64G."
    )
    assert "64G" not in memory_step(16 << 30, "64G"), "more memory would wait longer"


def test_a_limit_of_gpus_that_may_be_none_is_told_as_one_of_two() -> None:
    words, step = explain("QOSMaxGRESPerUser", job(tres="cpu=1,mem=10000M,node=1,gres/gpu=1"))
    assert "limit of the QOS for GPUs or other generic resources for one user is reached, or it waits" in words
    for sure in ("QOSMaxGRESPerJob", "AssocGrpGRES", "QOSMaxCpuPerUserLimit"):
        assert "or it waits" not in explain(sure, job())[0]
    assert "--mem" not in step


@pytest.mark.parametrize("reason", ["", "None", "(null)", "(None)"])
def test_nothing_to_say(reason: str) -> None:
    assert explain(reason, job("RUNNING")) == ("", "")


@pytest.mark.parametrize("reason", ["SomethingNew", "Out of coffee, again", "QOSMaxCoffeePerUser"])
def test_an_unknown_reason_is_kept(reason: str) -> None:
    assert explain(reason, job())[0] == reason


@pytest.mark.parametrize(
    ("record", "words", "step"),
    [
        (job("TIMEOUT", time_limit=3600), "time limit of 1:00:00", "`resume`"),
        (job("OUT_OF_MEMORY"), "more memory", "--mem"),
        (job("NODE_FAIL"), "node", "`resume`"),
        (job("PREEMPTED"), "higher priority", "--requeue"),
        (job("PREEMPTED"), "higher priority", "`resume`"),
        (job("FAILED", exit_code=1, signal=0), "exit code 1", "output"),
        (job("FAILED", exit_code=126, signal=0), "could not be run", "chmod +x"),
        (job("FAILED", exit_code=127, signal=0), "not found", "module"),
        (job("FAILED", exit_code=137, signal=0), "SIGKILL", "--mem"),
        (job("FAILED", exit_code=139, signal=0), "SIGSEGV", "memory"),
        (job("FAILED", exit_code=0, signal=9), "SIGKILL", "--mem"),
        (
            job("FAILED", exit_code=0, signal=53, stdout="/x/y.out"),
            "could not be opened (/x/y.out)",
            "Create the directory",
        ),
        (job("FAILED", exit_code=0, signal=64), "signal 64", "output"),
        (job("FAILED"), "failed", "output"),
        (job("CANCELLED by 1000"), "user 1000", ""),
        (job("CANCELLED"), "cancelled", ""),
        (job("REVOKED"), "federation", "squeue"),
        (job("COMPLETED"), "has completed", ""),
    ],
)
def test_ends(record: JobRecord, words: str, step: str) -> None:
    said, todo = explain("NonZeroExitCode", record)
    assert words in said
    assert step in todo


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [("CANCELLED", "DependencyNeverSatisfied", "depends on"), ("FAILED", "BadConstraints", "No node")],
)
def test_what_never_started_is_told_by_its_reason(state: str, reason: str, words: str) -> None:
    said, todo = explain(reason, job(state, exit_code=0, signal=0))
    assert words in said
    assert "never started" in said
    assert "output" not in todo
    assert explain(reason, job(state, exit_code=0, signal=1)) == (said, todo)  # as for a job that sbatch has refused
    assert explain(reason, job("FAILED", exit_code=3))[0] == "The job ended with exit code 3."
    assert explain(reason, replace(job("FAILED", signal=1), nodes="n1"))[0] == "The job was ended by SIGHUP."


@given(
    st.sampled_from(sorted(FINAL_STATES)),
    st.none() | st.integers(0, 255),
    st.none() | st.integers(0, 127),
    st.text(),
)
def test_every_end_can_be_explained(state: str, exit_code: int | None, signal: int | None, reason: str) -> None:
    words, _ = explain(reason, job(state, exit_code=exit_code, signal=signal))
    assert words


@given(st.text())
def test_explaining_never_raises(reason: str) -> None:
    explain(reason)
    explain(reason, job())


def test_signals_are_those_of_linux() -> None:
    import signal

    assert {number: signal.Signals(number).name for number in SIGNALS} == SIGNALS


def test_the_reader_is_not_the_user_of_another_users_job() -> None:
    reasons = [*KNOWN_REASONS, "AssocGrpCpuLimit", "QOSMaxJobsPerUserLimit", "Priority,Resources"]
    said = {reason: explain_wait_of_others(reason) for reason in reasons}
    assert all(said.values())
    assert not [text for text in said.values() if re.search(r"\byou", text, re.IGNORECASE)]
    assert said["JobHeldUser"] == explain("JobHeldUser")[0]
    assert said["AssociationJobLimit"] == "The account has the maximum number of jobs."
    assert said["JobArrayTaskLimit"] == "The number of tasks that its user allowed at a time is running."
    assert explain_wait_of_others("") == ""


def test_the_panel_translates_sentences_that_are_said(request: pytest.FixtureRequest) -> None:
    source = Path(request.config.rootpath, "labextension/src/common/reason_texts.ts").read_text(encoding="utf-8")
    patterns = re.findall(r"/\^(.+)\$/", source)
    assert len(patterns) > 10
    ends = [JobRecord(JobId(7), JobState(name)) for name in FINAL_STATES]
    ends += [replace(ends[0], state=JobState("TIMEOUT"), time_limit=1800)]
    ends += [replace(ends[0], state=JobState("FAILED"), exit_code=code) for code in (0, 1, 137)]
    ends += [replace(ends[0], state=JobState("FAILED"), signal=9, nodes="c1")]
    waits = JobRecord(JobId(7), JobState("PENDING"))
    said = {*(explain("", end)[0] for end in ends), *(explain(reason, waits)[0] for reason in KNOWN_REASONS)}
    assert "The number of tasks that you allowed at a time is running." in said
    for pattern in patterns:
        assert any(re.fullmatch(pattern, text) for text in said), pattern
