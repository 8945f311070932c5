"""Queries of the domain layer to a real Slurm with jobs of misleading names."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.environment_variables import QUERY_ENV, SCRUBBED_FORMATS
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries import cluster, job_history, queue, tables
from jupyter_slurm.domain.queries import job_detail as detail
from jupyter_slurm.domain.queries.output_paths import expand_pattern
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.embedded.control import ClusterControl

pytestmark = pytest.mark.slurm

FAKE = (
    "JobId=99 JobName=fake\n   UserId=root(0) GroupId=root(0) MCS_label=N/A\n   JobState=COMPLETED Reason=None "
    "Dependency=(null)\n   StdOut=/etc/passwd"
)
TEXTS = [
    b"a|b,c;d~e\x1f\x1e\tf = g\\n %j '\"",
    b"first\n\n" + FAKE.encode(),
    b"x\n99|COMPLETED|None\n99~0123456789abcdef~COMPLETED~0123456789abcdef;",
    b"caf\xe9 \xff\xfe \xc3(",
    "schrödinger ☃ \u202e".encode(),
    bytes(range(1, 127)),
    b"(null)x",
    b" leading and trailing ",
]


class Slurm:
    """A cluster, queried as the services do."""

    def __init__(self, control: ClusterControl, user: str | None = None) -> None:
        self.control, self.user = control, user

    def run(self, argv: list[str | bytes], stdin: bytes = b"", cwd: Path | None = None) -> bytes:
        env = {name: value for name, value in self.control.env().items() if name not in SCRUBBED_FORMATS}
        options: dict[str, Any] = {}
        if self.user:
            entry = pwd.getpwnam(self.user)
            options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": entry.pw_dir}
        if cwd:
            options["cwd"] = cwd
        done = subprocess.run(argv, input=stdin, env={**env, **QUERY_ENV}, capture_output=True, check=False, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *options: str | bytes, script: bytes = b"#!/bin/sh\nexit 0\n", cwd: Path | None = None) -> int:
        return int(self.run(["sbatch", "--parsable", *options], stdin=script, cwd=cwd).split(b";")[0])

    def ask(self, question: Callable[[str], list[str]], parse: Callable[[bytes, str], Any]) -> Any:
        mark = secrets.token_hex(8)
        return parse(self.run(list(question(mark))), mark)

    def poll(self) -> dict[str, JobRecord]:
        return {str(record.id): record for record in self.ask(queue.poll_argv, queue.parse_poll)}

    def detail(self, number: int) -> JobRecord:
        (record,) = self.ask(lambda mark: detail.detail_argv(JobId(number), mark), detail.parse_detail)
        return record  # type: ignore[no-any-return]


@pytest.fixture(params=["22.05", "26.05"])
def slurm(request: pytest.FixtureRequest, cluster_for: Callable[[str], EmbeddedCluster]) -> Slurm:
    return Slurm(cluster_for(request.param))


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_any_text_comes_back_and_disturbs_nothing(slurm: Slurm, text: bytes) -> None:
    number = slurm.submit("--hold", b"--job-name=" + text, b"--comment=" + text)
    expected = text.decode("utf-8", "surrogateescape")
    record = slurm.detail(number)
    assert (record.name, record.comment) == (expected, expected)
    assert (record.state.name, record.reason) == ("PENDING", "JobHeldUser")
    polled = slurm.poll()[str(number)]
    assert (polled.state, polled.submit_time, polled.partition) == (record.state, record.submit_time, record.partition)
    table = slurm.ask(
        lambda mark: tables.tabular_argv("squeue", ["-j", str(number)], mark) or [],
        lambda output, mark: tables.parse_table("squeue", output, mark),
    )
    assert [row[table.columns.index("NAME")] for row in table.rows] == [expected]
    slurm.run(["scancel", str(number)])


def test_a_job_is_found_by_the_path_of_its_script(slurm: Slurm, short_tmp: Path) -> None:
    script = short_tmp / "my ~ job\n;.sh"
    script.write_text("#!/bin/sh\nexit 0\n")
    number = int(slurm.run(["sbatch", "--parsable", "--hold", "-o/dev/null", str(script), "a b", "--x"]).split(b";")[0])
    records = slurm.ask(queue.lookup_argv, queue.parse_lookup)
    found = [record for record in records if queue.runs_script(record, str(script))]
    assert [record.id.job for record in found] == [number]
    assert found[0].submit_time == slurm.poll()[str(number)].submit_time


@pytest.mark.parametrize(
    ("script", "state", "end", "words"),
    [
        (b"exit 0", "COMPLETED", (0, 0), "has completed"),
        (b"exit 3", "FAILED", (3, 0), "exit code 3"),
        (b"no-such-command", "FAILED", (127, 0), "not found"),
        (b"kill -9 $$", "FAILED", (0, 9), "SIGKILL"),
    ],
)
def test_ends(
    slurm: Slurm, wait_for: Callable[..., Any], script: bytes, state: str, end: tuple[int, int], words: str
) -> None:
    number = slurm.submit("-o/dev/null", script=b"#!/bin/sh\n" + script)
    record = wait_for(lambda: (job := slurm.poll()[str(number)]).state.is_finished and job, "the job's end")
    assert (record.state.name, (record.exit_code, record.signal)) == (state, end)
    assert words in explain(record.reason, record)[0]
    same = slurm.detail(number)
    assert (same.state, same.exit_code, same.signal) == (record.state, record.exit_code, record.signal)


def test_an_array_of_many_ranges(slurm: Slurm) -> None:
    tasks = [*range(0, 400, 3), *range(500, 600), 997]
    number = slurm.submit("--hold", f"--array={','.join(map(str, tasks))}%7")
    waiting = slurm.poll()[str(number)].tasks
    assert waiting is not None
    assert (sorted(waiting.tasks()), waiting.limit, waiting.truncated) == (tasks, 7, False)


def test_components_of_a_heterogeneous_job(slurm: Slurm) -> None:
    number = int(slurm.run(["sbatch", "--parsable", "--hold", "--wrap=true", ":", "-c2", "--wrap=true"]).split(b";")[0])
    records = slurm.poll()
    assert {f"{number}+0", f"{number}+1"} < set(records)
    assert str(number) not in records
    assert records[f"{number}+1"].raw_id == number + 1


PATTERNS = [
    "a%j", "b%5j-%A-%a", "c%%j%12j", "d%u-%x-%s", "e%n%t%J", "g%b%r", "h\\%j", "i\\\\%j", "n%%%j%", "%3u_%02x", "sub/../o%j", "z%0j",
]  # fmt: skip


def test_output_goes_where_the_pattern_says(slurm: Slurm, wait_for: Callable[..., Any], short_tmp: Path) -> None:
    folder = short_tmp / f"out-{slurm.control.installation.version[0]}"
    (folder / "sub").mkdir(parents=True)
    numbers = {
        slurm.submit(
            "--job-name=my name", "-o", pattern, script=b"#!/bin/sh\necho $SLURM_JOB_ID\n", cwd=folder
        ): pattern
        for pattern in PATTERNS
    }
    array = slurm.submit(
        "--array=7-13:6", "-o", "arr-%A-%a-%3a-%b-%j", script=b"#!/bin/sh\necho $SLURM_JOB_ID\n", cwd=folder
    )
    default = slurm.submit("--array=3", script=b"#!/bin/sh\necho $SLURM_JOB_ID\n", cwd=folder)
    wanted = {*map(str, numbers), f"{array}_7", f"{array}_13", f"{default}_3"}

    def ended() -> dict[str, JobRecord]:
        records = {number: record for number, record in slurm.poll().items() if number in wanted}
        return records if wanted == {number for number, record in records.items() if record.state.is_finished} else {}

    records = wait_for(ended, "the jobs' ends")
    me = pwd.getpwuid(os.geteuid()).pw_name
    for number, record in records.items():
        pattern = numbers.get(record.id.job) or ("arr-%A-%a-%3a-%b-%j" if record.id.job == array else "slurm-%A_%a.out")
        path = expand_pattern(
            pattern,
            job=record.id,
            name="my name",
            user=me,
            work_dir=str(folder),
            raw_id=record.raw_id,
            version=slurm.control.installation.version,
        )
        assert Path(path).read_text() == f"{record.raw_id}\n", (number, pattern)


def test_nodes_partitions_and_configuration(slurm: Slurm) -> None:
    nodes = {node.name: node for node in slurm.ask(cluster.nodes_argv, cluster.parse_nodes)}
    assert set(nodes) == {"dgx01", *(f"c4aiscw{number}" for number in range(1, 5))}
    assert [str(gres) for gres in nodes["dgx01"].gres] == ["gpu:a100:8"]
    partitions = {p.name: p for p in cluster.parse_partitions(slurm.run(list(cluster.partitions_argv())))}
    assert {"arandu", "devwork"} <= set(partitions)
    assert sorted(cluster.expand_hosts(partitions["devwork"].nodes)) == [f"c4aiscw{number}" for number in range(1, 5)]
    config = cluster.parse_config(slurm.run(list(cluster.config_argv())))
    assert cluster.parse_version(config["SLURM_VERSION"]) == slurm.control.installation.version
    assert config["ClusterName"]


def _calls(control: ClusterControl, user: str) -> tuple[dict[str, int], int]:
    """Return the number of requests of each type at the controller, and the number of this user's requests."""
    text = control.run("sdiag").stdout
    kinds = {
        kind: int(count) for kind, count in re.findall(r"^\s+(\w+)\s+\(\s*\d+\)\s+count:(\d+)", text, re.MULTILINE)
    }
    mine = re.search(rf"^\s+{re.escape(user)}\s+\(\s*\d+\)\s+count:(\d+)", text, re.MULTILINE)
    return kinds, int(mine[1]) if mine else 0


@pytest.mark.root
@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        (queue.poll_argv, {"REQUEST_JOB_USER_INFO", "REQUEST_PARTITION_INFO"}),
        (queue.lookup_argv, {"REQUEST_JOB_USER_INFO", "REQUEST_PARTITION_INFO"}),
        (queue.files_argv, {"REQUEST_JOB_USER_INFO", "REQUEST_PARTITION_INFO"}),
        (cluster.nodes_argv, {"REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO"}),
        (lambda _: cluster.partitions_argv(), {"REQUEST_PARTITION_INFO"}),
        (lambda _: cluster.config_argv(), {"REQUEST_BUILD_INFO", "REQUEST_PING"}),
    ],
    ids=["poll", "lookup", "names", "nodes", "partitions", "config"],
)
def test_what_a_question_costs_the_controller(
    cluster: EmbeddedCluster, alice: str, question: Callable[[str], list[str]], kinds: set[str]
) -> None:
    slurm = Slurm(cluster, alice)
    slurm.submit("--hold", "-o/dev/null")
    before, asked = _calls(cluster, alice)
    slurm.run(list(question(secrets.token_hex(8))))
    after, asked_then = _calls(cluster, alice)
    assert asked_then - asked == len(kinds)
    assert all(after[kind] > before.get(kind, 0) for kind in kinds)


@pytest.mark.root
def test_one_job_costs_no_list_of_all_jobs(cluster: EmbeddedCluster, alice: str) -> None:
    slurm = Slurm(cluster, alice)
    number = slurm.submit("--hold", "-o/dev/null")
    before, _ = _calls(cluster, alice)
    slurm.detail(number)
    after, _ = _calls(cluster, alice)
    assert after["REQUEST_JOB_INFO_SINGLE"] - before.get("REQUEST_JOB_INFO_SINGLE", 0) == 1
    assert after.get("REQUEST_JOB_INFO", 0) == before.get("REQUEST_JOB_INFO", 0)
    assert after.get("REQUEST_FED_INFO", 0) == before.get("REQUEST_FED_INFO", 0)


@pytest.mark.root
def test_the_poll_shows_ones_own_jobs_only_and_those_in_hidden_partitions(
    cluster: EmbeddedCluster, alice: str, bob: str
) -> None:
    mine, theirs = (
        Slurm(cluster, alice).submit("--hold", "-o/dev/null"),
        Slurm(cluster, bob).submit("--hold", "-o/dev/null"),
    )
    cluster.run("scontrol", "update", "PartitionName=devwork", "Hidden=YES")
    try:
        seen = Slurm(cluster, alice).poll()
        assert str(mine) in seen
        assert str(theirs) not in seen
    finally:
        cluster.run("scontrol", "update", "PartitionName=devwork", "Hidden=NO")


def test_accounting_remembers(accounting_cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> None:
    slurm = Slurm(accounting_cluster)
    text = b"x\n99|COMPLETED~\xc3\xa9"
    number = slurm.submit("-o/dev/null", b"--job-name=" + text, script=b"#!/bin/sh\nexit 3\n")

    def ended() -> JobRecord | None:
        since = slurm.poll()[str(number)].submit_time or 0
        records = slurm.ask(
            lambda mark: job_history.sacct_argv([JobId(number)], since - 60, mark), job_history.parse_sacct
        )
        # A job that ends at once is first recorded as "allocation".
        return next((record for record in records if record.state.is_finished and record.name != "allocation"), None)

    record = wait_for(ended, "the job in accounting")
    assert (record.id, record.state.name, record.exit_code, record.name) == (JobId(number), "FAILED", 3, text.decode())
    assert record.submit_time == slurm.poll()[str(number)].submit_time


@pytest.mark.parametrize(
    "line",
    [
        "squeue", "squeue -l", "squeue --start", "squeue -s", "sinfo", "sinfo -l", "sinfo -s", "sinfo -N", "sinfo -Nl", "sinfo -R",
        "sacct -a", "sacct -al", "sprio", "sprio -l", "sshare -a", "sacctmgr show qos", "sacctmgr list associations",
        "sreport cluster utilization", "sreport user top",
    ],
)  # fmt: skip
def test_tables_of_a_live_cluster(accounting_cluster: EmbeddedCluster, line: str) -> None:
    slurm = Slurm(accounting_cluster)
    command, *args = line.split()
    table = slurm.ask(
        lambda mark: tables.tabular_argv(command, args, mark) or [],
        lambda output, mark: tables.parse_table(command, output, mark),
    )
    plain = slurm.run([*line.split()]).decode("utf-8", "surrogateescape")
    assert table.columns[0] in plain
    assert all(len(row) == len(table.columns) for row in table.rows)
    if command == "sacct":
        numbers = {
            row[table.columns.index("JobID")] for row in table.rows
        }  # not counted in lines: names may contain newlines
        assert all(re.match(r"\d", number) and number.partition(".")[0] in plain for number in numbers)
    elif command != "sreport":
        # As many rows as the command shows lines below its head (and the rule of sacct and sacctmgr).
        lines = [text for text in plain.splitlines() if text.strip() and not set(text) <= {"-", " "}]
        above = next(index for index, text in enumerate(lines) if table.columns[0] in text)
        assert len(table.rows) == len(lines) - above - 1
