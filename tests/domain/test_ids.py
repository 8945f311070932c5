"""IDs of jobs, tasks, components and steps."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.ids import JobId, TaskRange, parse_queue_id, tracked_tasks
from jupyter_slurm.errors import ParseError

numbers = st.integers(0, 0xFFFFFFFC)
steps = st.sampled_from([None, "0", "17", "batch", "extern", "interactive", "TBD", "3+1"])
ids = st.builds(JobId, st.integers(1, 0xFFFFFFFC), numbers, st.none(), steps) | st.builds(
    JobId, st.integers(1, 0xFFFFFFFC), st.none(), st.none() | numbers, steps
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", JobId(12)),
        ("12_3", JobId(12, task=3)),
        ("12_0", JobId(12, task=0)),
        ("12+1", JobId(12, het=1)),
        ("12.batch", JobId(12, step="batch")),
        ("12_3.0", JobId(12, task=3, step="0")),
        ("12+1.extern", JobId(12, het=1, step="extern")),
        ("12.0+1", JobId(12, step="0+1")),
    ],
)
def test_forms(text: str, expected: JobId) -> None:
    assert JobId.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "12_",
        "12_[1]",
        "12.",
        " 12",
        "12\n",
        "a",
        "12_3+1",
        "99999999999",
        "4294967295",
        "12_4294967294",
        "１２",
    ],
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ParseError):
        JobId.parse(text)


@given(ids)
def test_round_trip(job: JobId) -> None:
    assert JobId.parse(str(job)) == job


@given(st.lists(ids))
def test_ids_can_be_sorted(jobs: list[JobId]) -> None:
    assert [job.job for job in sorted(jobs)] == sorted(job.job for job in jobs)


def test_order_is_that_of_the_numbers() -> None:
    texts = ["9", "10", "10.batch", "10.0", "10.2", "10.10", "10_2", "10_10", "10+1"]
    assert [str(job) for job in sorted(map(JobId.parse, texts))] == [
        "9", "10", "10.batch", "10.0", "10.2", "10.10", "10+1", "10_2", "10_10",
    ]  # fmt: skip


def test_the_allocation_of_a_step() -> None:
    assert JobId.parse("12_3.batch").allocation == JobId(12, task=3)


@given(st.text())
def test_only_parse_errors(text: str) -> None:
    for parse in (JobId.parse, TaskRange.parse, parse_queue_id):
        try:
            parse(text)
        except ParseError:
            continue


def test_tasks_of_a_row() -> None:
    job, tasks = parse_queue_id("12_[2,4-12:2%3]")
    assert tasks is not None
    assert (job, str(tasks), tasks.limit, tasks.count()) == (JobId(12), "2,4-12:2%3", 3, 6)
    assert list(tasks.tasks()) == [2, 4, 6, 8, 10, 12]
    assert 6 in tasks
    assert 7 not in tasks
    assert 14 not in tasks


def test_a_list_that_slurm_cut() -> None:
    tasks = TaskRange.parse("1,3,5-...")
    assert (tasks.ranges, tasks.truncated) == (((1, 1, 1), (3, 3, 1)), True)
    assert TaskRange.parse(str(tasks)) == tasks


def test_expansion_bombs_are_counted_and_not_expanded() -> None:
    _, tasks = parse_queue_id("1_[0-99999999]")
    assert tasks is not None
    assert tasks.count() == 100_000_000
    assert 99_999_999 in tasks
    with pytest.raises(ParseError):
        tasks.tasks()
    with pytest.raises(ParseError):
        TaskRange.parse("1," * 1_000_000)


def test_many_ranges_are_searched_at_once() -> None:
    tasks = TaskRange.parse(",".join(str(task) for task in range(1, 40_000, 2)))
    begun = time.process_time()
    assert [task for task in range(0, 40_000, 2) if task in tasks] == []
    assert time.process_time() - begun < 1.0
    with pytest.raises(ParseError, match="20002 ranges"):
        TaskRange.parse(",".join(str(task) for task in range(1, 40_004, 2)))
    with pytest.raises(ParseError, match="parts"):
        TaskRange.parse("0-4294967000").split(2)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 5)), min_size=1, max_size=6))
def test_a_task_is_in_a_list_that_names_it(ranges: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}:{step}" for first, more, step in ranges)
    tasks = TaskRange.requested(text)
    every = set(tasks.tasks())
    assert every == {task for first, more, step in ranges for task in range(first, first + more + 1, step)}
    assert tasks.count() == len(every)
    assert {task for task in range(-2, 130) if task in tasks} == every
    assert tasks.listed(range(0, 130, 3)) == tasks.listed(range(0, 50, 3)) | {t for t in every if t % 3 == 0 and t > 49}
    blocks = tasks.split(7).values()
    joined = TaskRange.joined(blocks)
    assert {task for task in range(130) if task in joined} == {t for t in range(130) if any(t in one for one in blocks)}


def test_rows_of_an_answer_are_searched_together() -> None:
    joined = TaskRange.joined([TaskRange.parse("20-29:3"), TaskRange.parse("2,4-8%3"), TaskRange.parse("5-...")])
    assert joined.listed(range(40)) == {2, 4, 5, 6, 7, 8, 20, 23, 26, 29}
    assert 5 not in TaskRange.joined([])
    assert TaskRange.joined([TaskRange.parse("0-9"), TaskRange.parse("0-99")] * 20_000).listed([50, 200]) == {50}


def test_tasks_that_are_too_many_are_not_tracked() -> None:
    assert str(tracked_tasks("4,0-2%2")) == "4,0-2%2"
    assert [tracked_tasks(text) for text in ("0-200000", "0-4294967000", "x", "0-2000000,0-2000000:2")] == [None] * 4


@pytest.mark.parametrize("text", ["", "%3", "1-", "5-2", "1-9:0", "1%", "1%x", "a", "1;2", "0-4294967296"])
def test_what_is_no_list_of_tasks(text: str) -> None:
    with pytest.raises(ParseError):
        TaskRange.parse(text)


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=200), st.none() | st.integers(1, 99))
def test_ranges_round_trip(members: set[int], limit: int | None) -> None:
    text = ",".join(str(number) for number in sorted(members)) + ("" if limit is None else f"%{limit}")
    tasks = TaskRange.parse(text)
    assert (set(tasks.tasks()), tasks.limit, tasks.count()) == (members, limit, len(members))
    assert TaskRange.parse(str(tasks)) == tasks


def test_tasks_by_blocks_of_indices() -> None:
    tasks = TaskRange.parse("0-9:3,5,12-12,40-100:30%2")
    blocks = tasks.split(4)
    assert {number: str(block) for number, block in blocks.items()} == {
        0: "0-3:3%2",
        1: "6,5%2",
        2: "9%2",
        3: "12%2",
        10: "40%2",
        17: "70%2",
        25: "100%2",
    }
    assert sorted(task for block in blocks.values() for task in block.tasks()) == sorted(tasks.tasks())
    assert str(blocks[1].shifted(-4)) == "2,1%2"
    assert len(TaskRange.parse("0-4000000000:1000000000").split(4)) == 5


@pytest.mark.slurm
def test_requested_tasks_are_those_of_slurm(cluster: Any) -> None:
    env = {**os.environ, **cluster.env(), "SLURM_BITSTR_LEN": "0"}
    for text in REQUESTED:
        argv = ["sbatch", "--parsable", "--hold", f"--array={text}", "--wrap=true"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        try:
            found = TaskRange.requested(text)
        except ParseError:
            found = None
        assert (done.returncode == 0) == (found is not None), (text, done.stderr)
        if found is not None:
            number = done.stdout.strip()
            shown = subprocess.run(
                ["squeue", "-h", "-o", "%i", f"--jobs={number}"], env=env, capture_output=True, text=True, check=True
            ).stdout.strip()
            subprocess.run(["scancel", number], env=env, check=True)
            _, tasks = parse_queue_id(shown)
            assert tasks is not None, text
            assert (list(found.tasks()), found.limit) == (list(tasks.tasks()), tasks.limit), text
            assert found.count() == len(set(found.tasks())), text


REQUESTED = (
    *("[0-3]", "0-[3]", "[0-3]%2", "[0-3%2]", "[0,2]", "00-3", " 0-3", "0-3, 5", "+1", "0-3,2-5", "0x2", "0-3%", "1%0"),
    *("%2", "0-3%2,5", "0-6:2", "[0-6]:2", "[0-6:2]", "1,5", "0-3,,", ",1", "[[1]]", "[1],[3-4]", "0--3", "2-2:3"),
    *("0-3% 2", "0-3%2x", "0-3]", "1 2", "3%4%5", "0 -3", "0- 3", "0-4:+2", "1]-3", "3-1", "0-3:0", "a"),
)


def test_interleaved_ranges_keep_their_steps_and_contain_their_tasks() -> None:
    assert str(TaskRange.requested("1-99:2,2-10:4")) == "1-99:2,2-10:4"
    tasks = TaskRange.parse("0-10:2,1-11:2,20-30:5,23-23")
    assert [task for task in range(40) if task in tasks] == [*range(12), 20, 23, 25, 30]
