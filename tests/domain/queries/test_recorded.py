"""Recorded answers of Slurm 22.05, 24.11 and 26.05 (tests/data/slurm, made by its record.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.queries import cluster, job_detail, job_history, output_paths, queue, tables
from jupyter_slurm.domain.records import JobRecord

DATA = Path(__file__).parents[2] / "data" / "slurm"


@dataclass
class Recording:
    """The answers of one version."""

    version: str
    index: dict[str, Any]

    @property
    def mark(self) -> str:
        return str(self.index["mark"])

    def answer(self, name: str) -> bytes:
        return (DATA / self.version / f"{name}.out").read_bytes()

    def id(self, key: str) -> int:
        return int(self.index["jobs"][key]["id"])

    def poll(self) -> dict[str, JobRecord]:
        return {str(record.id): record for record in queue.parse_poll(self.answer("poll"), self.mark)}

    def of(self, key: str) -> JobRecord:
        return self.poll()[str(self.id(key))]


@pytest.fixture(params=["22.05", "24.11", "26.05"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return Recording(request.param, json.loads((DATA / request.param / "index.json").read_text()))


def test_every_question_was_answered(recording: Recording) -> None:
    assert recording.version in recording.index["version"]
    assert {name for name, question in recording.index["questions"].items() if question["exit_code"]} == set()


STATES = {
    "timeout": "TIMEOUT",
    "arguments": "FAILED",
    "completed": "COMPLETED",
    "killed": "FAILED",
    "hidden": "COMPLETED",
    "running": "RUNNING",
    "suspended": "SUSPENDED",
    "cancelled": "CANCELLED",
    "requeued": "PENDING",
    "held": "PENDING",
    "later": "PENDING",
    "drained": "PENDING",
    "never": "PENDING",
}


def test_states(recording: Recording) -> None:
    assert {key: recording.of(key).state.name for key in STATES} == STATES


def test_ends(recording: Recording) -> None:
    def end(key: str) -> tuple[int | None, int | None]:
        return recording.of(key).exit_code, recording.of(key).signal

    assert end("arguments") == (3, 0)
    assert end("completed") == (0, 0)
    assert end("killed") == (0, 9)
    assert end("running") == (None, None)
    # Up to 22.05 a job whose output directory is missing fails; later versions create the directory.
    assert end("no-folder") == ((0, 53) if recording.version == "22.05" else (0, 0))
    assert recording.of("timeout").signal == 15


def test_reasons(recording: Recording) -> None:
    assert recording.of("held").reason == "JobHeldUser"
    assert recording.of("later").reason == recording.of("requeued").reason == "BeginTime"
    assert recording.of("dependency").reason == "Dependency"
    assert recording.of("never").reason == "DependencyNeverSatisfied"
    assert recording.of("drained").reason.startswith("Nodes required for job are DOWN, DRAINED or reserved")
    assert recording.of("drained-node").reason.startswith("ReqNodeNotAvail, ")
    assert recording.of("running").reason == ""
    for record in recording.poll().values():
        words, step = explain(record.reason, record)
        waits_or_failed = record.state.is_pending or (record.state.is_finished and record.state.name != "COMPLETED")
        assert bool(words) or not waits_or_failed
        assert words != record.reason or not waits_or_failed, f"not explained: {record.reason}"
        assert step or record.state.name in ("CANCELLED", "COMPLETED", "RUNNING", "SUSPENDED")


def test_times_and_places(recording: Recording) -> None:
    running, held = recording.of("running"), recording.of("held")
    assert (running.nodes, running.node_count, running.cpus, running.time_limit) == ("dgx01", 1, 4, 7200)
    assert (running.partition, running.account, running.qos) == ("arandu", "cs", "normal")
    assert running.submit_time is not None
    assert running.start_time is not None
    assert running.submit_time <= running.start_time
    assert running.end_time == running.start_time + 7200
    assert (held.nodes, held.start_time, held.end_time) == ("", None, None)
    assert recording.of("requeued").restarts == 1
    assert recording.of("timeout").time_limit == 60
    assert recording.of("drained").time_limit is None


def test_arrays_and_components(recording: Recording) -> None:
    poll = recording.poll()
    running, down, odd, het = (recording.id(key) for key in ("array-running", "array-down", "array-odd", "het"))
    assert str(poll[str(running)].tasks) == "7,10,13,16,19%2"
    assert {task for task in (1, 4, 7) if f"{running}_{task}" in poll} == {1, 4}
    assert poll[f"{running}_4"].raw_id not in (running, None)
    tasks = poll[str(down)].tasks
    assert tasks is not None
    assert (list(tasks.tasks()), tasks.limit) == ([2, 4, 6, 8, 10, 12], 3)
    tasks = poll[str(odd)].tasks
    assert tasks is not None
    assert (tasks.count(), tasks.truncated) == (200, False)
    assert {number for number in poll if number.startswith(f"{het}+")} == {f"{het}+0", f"{het}+1"}
    assert {poll[f"{recording.id('array-done')}_{task}"].state.name for task in (3, 4, 5)} == {"COMPLETED"}


def test_every_job_is_in_the_poll_once(recording: Recording) -> None:
    records = queue.parse_poll(recording.answer("poll"), recording.mark)
    keys = [(record.id, record.tasks) for record in records]
    assert len(keys) == len(set(keys))
    assert {job["id"] for job in recording.index["jobs"].values()} == {record.id.job for record in records}


def test_a_job_is_found_by_its_script(recording: Recording) -> None:
    found = queue.parse_lookup(recording.answer("lookup"), recording.mark)
    of_script = {record.id.job for record in found if record.command == "/rec/home/sleep.sh"}
    assert of_script == {
        recording.id(key) for key in ("timeout", "running", "suspended", "cancelled", "requeued", "array-running")
    }
    assert all(record.submit_time for record in found)


def test_names_and_comments_come_back_as_they_were_given(recording: Recording) -> None:
    for key, job in recording.index["jobs"].items():
        for record in job_detail.parse_detail(recording.answer(f"detail-{key}"), recording.mark):
            assert record.id.job == job["id"]
            assert record.name == job["name"] or job["name"] is None
            assert record.comment == job["comment"]
            assert (record.user, record.work_dir) == ("alice", "/rec/home")


def test_names_in_accounting(recording: Recording) -> None:
    records = job_history.parse_sacct(recording.answer("sacct"), recording.mark)
    by_id = {record.id.job: record for record in records}
    for key, job in recording.index["jobs"].items():
        record = by_id[job["id"]]
        if job["name"] is not None and key != "bytes":
            # Slurm writes a backquote for a double quote into accounting, and question marks for characters that its
            # database cannot store. The tables of MariaDB 10.11 are Latin-1.
            assert record.name == job["name"].replace('"', "`").encode("latin-1", "replace").decode("latin-1")
        assert record.user == "alice"
        assert record.partition == recording.poll().get(str(job["id"]), record).partition
    assert (by_id[recording.id("cancelled")].state.name, by_id[recording.id("cancelled")].state.by) == (
        "CANCELLED",
        61001,
    )
    assert (by_id[recording.id("killed")].exit_code, by_id[recording.id("killed")].signal) == (0, 9)
    assert by_id[recording.id("timeout")].time_limit == 60
    assert by_id[recording.id("running")].tres.count("gres/gpu=2") == 1


def test_a_forger_gains_nothing(recording: Recording) -> None:
    (record,) = job_detail.parse_detail(recording.answer("detail-record"), recording.mark)
    assert (record.state.name, record.user) == ("FAILED", "alice")
    assert output_paths.record_path(record.stdout, record) == f"/rec/home/slurm-{record.id}.out"


def test_output_paths(recording: Recording) -> None:
    (record,) = job_detail.parse_detail(recording.answer("detail-pattern"), recording.mark)
    paths = [output_paths.record_path(pattern, record) for pattern in (record.stdout, record.stderr)]
    assert paths == [f"/rec/home/ok.sh-{record.id.job:05}-%.out", "/rec/home/alice.err"]
    array = recording.id("array-done")
    records = job_detail.parse_detail(recording.answer("detail-array-done"), recording.mark)
    assert {output_paths.record_path(record.stdout, record) for record in records} == {
        f"/rec/home/slurm-{array}_{task}.out" for task in (3, 4, 5)
    }


def test_nodes(recording: Recording) -> None:
    nodes = {node.name: node for node in cluster.parse_nodes(recording.answer("nodes"), recording.mark)}
    assert set(nodes) == {"dgx01", "c4aiscw1", "c4aiscw2"}
    dgx, drained = nodes["dgx01"], nodes["c4aiscw2"]
    assert (dgx.cpus, dgx.memory, dgx.features, dgx.partitions) == (64, 64000 << 20, ("dgx", "a100"), ("arandu",))
    assert [str(gres) for gres in dgx.gres] == ["gpu:a100:8"]
    assert [(gres.count, gres.indices) for gres in dgx.gres_used] == [(2, (0, 1))]
    assert dgx.memory_used >= 4 << 30
    assert dgx.cpus_used >= 4
    assert dgx.is_up
    assert (drained.reason, drained.is_up, "DRAIN" in drained.flags) == ('bad disk, "GPU 3" NodeName=x', False, True)
    assert set(drained.partitions) == {"devwork", "drained"}
    assert (dgx.hostname, dgx.address, dgx.reason) == ("c4aiscm1", "127.0.0.1", "")


def test_partitions_and_configuration(recording: Recording) -> None:
    partitions = {partition.name: partition for partition in cluster.parse_partitions(recording.answer("partitions"))}
    assert set(partitions) == {"arandu", "devwork", "drained", "hidden", "down"}
    arandu, devwork = partitions["arandu"], partitions["devwork"]
    assert (arandu.is_default, arandu.max_time, arandu.nodes, arandu.cpus) == (True, 604800, "dgx01", 64)
    assert arandu.tres["gres/gpu"] == 8
    assert (devwork.max_time, devwork.default_time, devwork.node_count) == (3600, 1800, 2)
    assert (partitions["hidden"].is_hidden, partitions["hidden"].max_time, partitions["down"].state) == (
        True,
        None,
        "DOWN",
    )
    config = cluster.parse_config(recording.answer("config"))
    assert (config["ClusterName"], config["MaxArraySize"], config["SlurmctldPort"]) == ("arandu", "20001", "6817")
    assert config["MinJobAge"] == "300 sec"
    assert cluster.parse_version(config["SLURM_VERSION"]) == cluster.parse_version(recording.version)
    assert cluster.parse_version(recording.index["version"]) == cluster.parse_version(recording.version)


def _table_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "22.05").glob("table-*.out") if not path.stem.endswith(".plain"))


@pytest.mark.parametrize("name", _table_names())
def test_tables_have_the_columns_and_rows_of_the_command(recording: Recording, name: str) -> None:
    argv = recording.index["questions"][name]["argv"]
    table = tables.parse_table(argv[0], recording.answer(name), recording.mark)
    plain = recording.answer(f"{name}.plain").decode("utf-8", "replace")
    heads = next(line for line in plain.splitlines() if table.columns[0] in line and table.columns[-1][:8] in line)
    shown = heads.split()
    joined = "".join(table.columns).replace(" ", "")
    if name not in ("table-sprio_-l", "table-sinfo_-l"):
        # A head too long for its column is truncated in the plain list, so compare by prefixes.
        position = 0
        for word in shown:
            position = joined.find(word.rstrip("+"), position)
            assert position >= 0, (shown, table.columns)
    assert all(len(row) == len(table.columns) for row in table.rows)
    if "squeue" in name and not any(char in name for char in ("s", "r") if f"_-{char}" in name):
        jobs = {record.id.job for record in queue.parse_poll(recording.answer("poll"), recording.mark)}
        assert {int(row[0].split("_")[0].split("+")[0]) for row in table.rows} <= jobs


def test_names_in_tables(recording: Recording) -> None:
    table = tables.parse_table("squeue", recording.answer("table-squeue_-t_all"), recording.mark)
    names = {row[table.columns.index("NAME")] for row in table.rows}
    assert {job["name"] for job in recording.index["jobs"].values() if job["name"] is not None} <= names | {None}
    table = tables.parse_table("sacct", recording.answer("table-sacct"), recording.mark)
    assert recording.index["jobs"]["lines"]["name"] in {row[table.columns.index("JobName")] for row in table.rows}
