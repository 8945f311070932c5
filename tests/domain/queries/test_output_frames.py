"""Protection of Slurm's answers against users' texts: names with separators, newlines, rows and whole answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries import cluster, job_detail, job_history, output_frames, queue
from jupyter_slurm.errors import ParseError

MARK, OTHER = "0123456789abcdef", "fedcba9876543210"
END, LAST = output_frames.field_end(MARK), output_frames.record_end(MARK)

# Possible texts of users: any text, imitated rows with another mark, and bytes that are not UTF-8. The mark is drawn
# after the jobs got their names, so no name contains it.
evil = st.sampled_from(
    [
        "\n",
        "~",
        "|",
        ";",
        ",",
        "\x1f",
        "\0",
        "~~",
        output_frames.field_end(OTHER),
        output_frames.record_end(OTHER),
        "\n99~COMPLETED~",
        "\r",
        " ",
    ]
)
texts = st.lists(st.text(max_size=8) | evil, max_size=8).map("".join).filter(lambda text: MARK not in text)
raw_texts = (texts.map(lambda text: text.encode("utf-8", "replace")) | st.binary(max_size=20)).filter(
    lambda raw: MARK.encode() not in raw
)


def framed(rows: list[list[bytes]]) -> bytes:
    """Print as squeue does: each field, its end, and a newline after the row."""
    return b"".join(END.encode().join(row) + LAST.encode() + b"\n" for row in rows)


def head(number: int, fields: tuple[str, ...], **known: str) -> list[bytes]:
    known = {
        "jobarrayid": str(number),
        "jobid": str(number),
        "state": "RUNNING",
        "exit_code": "0",
        "submittime": "7",
        **known,
    }
    return [known.get(field, "").encode() for field in fields]


@given(st.lists(raw_texts, max_size=5))
def test_a_name_with_any_bytes_stays_in_its_field(names: list[bytes]) -> None:
    rows = [dict(zip(queue.POLL_FIELDS, head(n, queue.POLL_FIELDS), strict=True)) for n in range(1, 1 + len(names))]
    output = framed([[*{**row, "name": name}.values()] for row, name in zip(rows, names, strict=True)])
    records = queue.parse_poll(output, MARK)
    assert [record.id.job for record in records] == list(range(1, len(names) + 1))
    assert [record.name for record in records] == [name.decode("utf-8", "surrogateescape") for name in names]


@given(st.lists(raw_texts, max_size=5))
def test_a_command_with_any_bytes_stays_in_its_field(commands: list[bytes]) -> None:
    fields = ("jobarrayid", "jobid", "state", "submittime", "exit_code", "command")
    output = framed([[*head(number, fields)[:-1], command] for number, command in enumerate(commands, 1)])
    records = queue.parse_lookup(output, MARK)
    assert [record.id.job for record in records] == list(range(1, len(commands) + 1))
    assert all(record.state.name == "RUNNING" for record in records)
    expected = [command.decode("utf-8", "surrogateescape") for command in commands]
    assert [record.command or "" for record in records] == [
        "" if text in ("(null)", "N/A", "n/a", "None") else text for text in expected
    ]


@given(st.lists(st.tuples(raw_texts, raw_texts, raw_texts), max_size=4))
def test_names_and_comments_with_any_bytes_stay_in_their_fields(jobs: list[tuple[bytes, bytes, bytes]]) -> None:
    rows = []
    for number, (name, comment, command) in enumerate(jobs, 1):
        row = dict(zip(job_detail._DETAIL_FIELDS, head(number, job_detail._DETAIL_FIELDS), strict=True))
        rows.append(list({**row, "name": name, "comment": comment, "command": command}.values()))
    records = job_detail.parse_detail(framed(rows), MARK)
    assert [record.name for record in records] == [name.decode("utf-8", "surrogateescape") for name, _, _ in jobs]
    assert all(record.state.name == "RUNNING" and record.user == "" for record in records)


@given(st.lists(st.tuples(raw_texts, raw_texts), max_size=4))
def test_accounting_with_any_bytes(jobs: list[tuple[bytes, bytes]]) -> None:
    known = {"JobID": b"", "State": b"COMPLETED", "ExitCode": b"0:0"}
    output = b""
    for number, (name, comment) in enumerate(jobs, 1):
        row = {field: known.get(field, b"") for field in job_history._FIELDS}
        row |= {"JobID": str(number).encode(), "JobName": name, "Comment": comment}
        output += b"".join(value + END.encode() for value in row.values()) + b"\n"
    records = job_history.parse_sacct(output, MARK)
    assert [record.name for record in records] == [name.decode("utf-8", "surrogateescape") for name, _ in jobs]
    assert [record.id.job for record in records] == list(range(1, len(jobs) + 1))


@given(st.binary(), st.integers(0, 3))
def test_random_bytes_raise_nothing_but_parse_errors(noise: bytes, frames: int) -> None:
    output = noise + END.encode() * frames + noise + LAST.encode()
    for parse in (
        queue.parse_poll,
        queue.parse_lookup,
        job_detail.parse_detail,
        job_history.parse_sacct,
        cluster.parse_nodes,
    ):
        try:
            parse(output, MARK)
        except ParseError:
            continue
    cluster.parse_partitions(output)
    cluster.parse_config(output)


def test_a_torn_answer_is_an_error() -> None:
    output = framed([head(number, queue.POLL_FIELDS) for number in (1, 2)])
    assert len(queue.parse_poll(output, MARK)) == 2
    for cut in range(output.index(b"\n2") + 30, len(output) - len(LAST) - 1, 7):
        with pytest.raises(ParseError):
            queue.parse_poll(output[:cut], MARK)
    with pytest.raises(ParseError):
        queue.parse_poll(output.replace(END.encode(), b"", 1), MARK)


def test_lines_around_the_answer_are_not_part_of_it() -> None:
    output = b"Welcome to c4aiscm1\n" + framed([head(12, queue.POLL_FIELDS)]) + b"\nBye\n"
    assert [record.id for record in queue.parse_poll(output, MARK)] == [JobId(12)]


def test_an_empty_queue() -> None:
    assert queue.parse_poll(b"", MARK) == []
    assert job_history.parse_sacct(b"", MARK) == []


def test_a_row_whose_id_is_not_understood_does_not_hide_the_others() -> None:
    rows = [
        head(1, queue.POLL_FIELDS),
        head(2, queue.POLL_FIELDS, jobarrayid="s541M7Y7TCMA00"),
        head(3, queue.POLL_FIELDS),
    ]
    assert [record.id.job for record in queue.parse_poll(framed(rows), MARK)] == [1, 3]


@pytest.mark.parametrize("mark", ["", "short", "0123456789ABCDEF", "0123456789abcde\n", "0123456~9abcdef0", "x" * 16])
def test_marks_are_checked(mark: str) -> None:
    for ask in (queue.poll_argv, queue.lookup_argv, cluster.nodes_argv):
        with pytest.raises(ValueError, match="mark"):
            ask(mark)


def test_sacct_is_never_asked_for_all_jobs() -> None:
    with pytest.raises(ValueError, match="no job"):
        job_history.sacct_argv([], 0, MARK)
    assert "--starttime=uts1795233529" in job_history.sacct_argv([JobId(1)], 1795233529, MARK)
    assert "--jobs=1,2_3" in job_history.sacct_argv([JobId(1, step="batch"), JobId(2, task=3)], 0, MARK)


def test_the_poller_asks_for_the_name_and_no_other_free_text() -> None:
    argv = queue.poll_argv(MARK)
    assert {"--me", "--local", "--all", "--states=all", "--noheader"} < set(argv)
    asked = {field.partition(":")[0] for field in argv[-1].removeprefix("--Format=").split(",")}
    assert asked == set(queue.POLL_FIELDS)
    assert not asked & {"comment", "command", "workdir", "stdout", "admin_comment", "system_comment", "wckey"}
