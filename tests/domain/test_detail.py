"""What scontrol says of a job, whose text can be made to look like anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.detail import job_argv, parse_job
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord

RECORD = """\
JobId=8 JobName={name}
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=4294901754 Nice=0 Account=cs QOS=normal
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=3:0
   RunTime=00:00:00 TimeLimit=7-00:00:00 TimeMin=N/A
   SubmitTime=1795233557 EligibleTime=1795233557
   StartTime=1795233557 EndTime=1795233558 Deadline=N/A
   Partition=arandu AllocNode:Sid=localhost:3576
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=dgx01
   NumNodes=1-1 NumCPUs=4 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=4,mem=100M,node=1,billing=1
   Command={command}
   WorkDir=/home/alice
   Comment={comment} 
   StdErr=/home/alice/slurm-8.out
   StdIn=/dev/null
   StdOut=/home/alice/slurm-8.out
   Power=
   

"""  # noqa: W291, W293 - as scontrol prints it


def answer(
    name: str = "train", command: str = "/home/alice/job.sh a b", comment: str = "note", state: str = "FAILED"
) -> bytes:
    return RECORD.format(name=name, command=command, comment=comment, state=state).encode("utf-8", "surrogateescape")


def read(output: bytes) -> JobRecord:
    (record,) = parse_job(output, JobId(8))
    return record


def test_a_plain_job() -> None:
    record = read(answer())
    assert record == JobRecord(
        id=JobId(8),
        state=record.state,
        raw_id=8,
        reason="NonZeroExitCode",
        partition="arandu",
        account="cs",
        qos="normal",
        user="alice",
        name="train",
        comment="note",
        submit_time=1795233557,
        start_time=1795233557,
        end_time=1795233558,
        time_limit=604800,
        nodes="dgx01",
        node_count=1,
        cpus=4,
        tres="cpu=4,mem=100M,node=1,billing=1",
        exit_code=3,
        signal=0,
        restarts=2,
        stdout="/home/alice/slurm-8.out",
        stderr="/home/alice/slurm-8.out",
        work_dir="/home/alice",
        command="/home/alice/job.sh a b",
    )
    assert record.state.name == "FAILED"


def test_a_comment_with_another_record_in_it_is_a_comment() -> None:
    comment = "first\n\nJobId=99 JobName=fake\n   JobState=COMPLETED"
    record = read(answer(comment=comment))
    assert (record.comment, record.state.name, record.stdout) == (comment, "FAILED", "/home/alice/slurm-8.out")


def test_a_record_of_the_same_job_in_a_comment_makes_what_differs_unknown() -> None:
    fake = RECORD.format(name="fake", command="/bin/true", comment="", state="COMPLETED").strip()
    record = read(answer(comment=f"first\n\n{fake}"))
    assert record.id == JobId(8)
    assert (record.state.name, record.name, record.command) == ("UNKNOWN", None, None)
    assert (record.user, record.exit_code) == ("alice", 3), "in which both agree"


def test_lines_of_slurm_in_a_name_make_what_differs_unknown() -> None:
    name = "x\n   UserId=root(0) GroupId=root(0) MCS_label=N/A\n   JobState=COMPLETED Reason=None Dependency=(null)"
    record = read(answer(name=name))
    assert (record.user, record.state.name, record.name) == ("", "UNKNOWN", None)
    assert record.partition == "arandu"


# Pieces of Slurm's own text, to be put together at random.
pieces = st.lists(
    st.text(max_size=5)
    | st.sampled_from(["\n", "\n   ", "\n\n", "JobId=8 JobName=", "UserId=root(0) GroupId=", "JobState=COMPLETED Reason=None Dependency=", "Comment=", "Command=", "StdOut=/etc/passwd", "StdErr=", "WorkDir=/", "Requeue=0 Restarts=9 ExitCode=0:0", "NodeList=evil", "Partition=x AllocNode:Sid="]),
    max_size=12,
).map("".join)  # fmt: skip


@given(pieces, pieces, pieces)
def test_a_field_is_right_or_unknown(name: str, command: str, comment: str) -> None:
    output = answer(name, command, comment).decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape")
    for record in parse_job(output, JobId(8)):
        assert record.id == JobId(8)
        assert record.state.name in ("FAILED", "UNKNOWN")
        assert record.user in ("alice", "")
        assert record.partition in ("arandu", "")
        assert record.nodes in ("dgx01", "")
        assert record.exit_code in (3, None)
        assert record.restarts in (2, None)


def test_arrays_and_components() -> None:
    text = answer().decode()
    waiting = text.replace("JobId=8 ", "JobId=8 ArrayJobId=8 ArrayTaskId=2,4-12:2%3 ").replace("FAILED", "PENDING")
    task = text.replace("JobId=8 ", "JobId=9 ArrayJobId=8 ArrayTaskId=1 ")
    first, second = parse_job((waiting + task).encode(), JobId(8))
    assert (str(first.id), str(first.tasks), first.stdout, first.exit_code) == ("8", "2,4-12:2%3", None, None)
    assert (str(second.id), second.raw_id) == ("8_1", 9)
    component = text.replace("JobId=8 ", "JobId=10 HetJobId=8 HetJobOffset=1 ")
    (third,) = parse_job(component.encode(), JobId(8))
    assert (str(third.id), third.raw_id) == ("8+1", 10)
    throttled = text.replace("JobId=8 ", "JobId=8 ArrayJobId=8 ArrayTaskId=1-3 ArrayTaskThrottle=2 ")
    assert str(parse_job(throttled.encode())[0].tasks) == "1-3%2"


def test_what_is_asked() -> None:
    assert job_argv(JobId.parse("12_3.batch"))[-3:] == ["show", "job", "12_3"]
