"""Command lines with tables, and the parsing of their output."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.queries.output_frames import field_end, record_end
from jupyter_slurm.domain.queries.tables import FORMAT_VARIABLES, parse_table, tabular_argv
from jupyter_slurm.errors import ParseError

MARK = "0123456789abcdef"
COMMANDS = [
    "squeue",
    "sinfo",
    "sacct",
    "sprio",
    "sshare",
    "sacctmgr",
    "sreport",
    "sstat",
    "scontrol",
    "sdiag",
    "scancel",
    "no",
]


def argv(line: str) -> list[str] | None:
    command, *args = shlex.split(line)
    return tabular_argv(command, args, MARK)


@pytest.mark.parametrize(
    "line",
    [
        "squeue -o %i",
        "squeue -o%i",
        "squeue -ao %i",
        "squeue --format=%i",
        "squeue --forma %i",
        "squeue -O jobid",
        "squeue --Form jobid",
        "squeue --json",
        "squeue --js",
        "squeue --yaml=v0.0.42",
        "squeue --help",
        "squeue --us",
        "squeue --usage",
        "squeue -V",
        "squeue --version",
        "squeue -h",
        "squeue --noh",
        "squeue -i 5",
        "squeue -v",
        "squeue -M a,b",
        "squeue --only-job-state",
        "squeue -ls",
        "squeue -l --start",
        "squeue --no-such-option",
        "squeue -u",
        "squeue --f",
        "sinfo -o %n",
        "sinfo -T",
        "sinfo --json",
        "sacct -o JobID",
        "sacct --fields=JobID",
        "sacct -P",
        "sacct -n",
        "sacct --delim=x",
        "sacct -B -j 1",
        "sacct --env-vars",
        "sacct -e",
        "sacct -c",
        "sprio -o %i",
        "sshare -p",
        "sshare -o Account",
        "sacctmgr show config",
        "sacctmgr show stats",
        "sacctmgr show runawayjobs",
        "sacctmgr show",
        "sacctmgr list",
        "sacctmgr add user x",
        "sacctmgr delete user x",
        "sacctmgr dump file",
        "sacctmgr show user format=user",
        "sacctmgr show user Form=user",
        "sacctmgr show user f=user",
        "sacctmgr -n show user",
        "sacctmgr show user -P",
        "sreport user top format=login",
        "sreport help",
        "sreport -n cluster utilization",
        "sstat -o JobID -j 1",
        "sstat -e",
        "sstat --usage",
        "sstat -i -j 1",
        "scontrol show job 1",
        "sdiag",
        "scancel 1",
        "no-such-command",
    ],
)
def test_shown_as_it_is(line: str) -> None:
    assert argv(line) is None


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("squeue", []),
        ("squeue -u alice,bob -t R,PD", ["-u", "alice,bob", "-t", "R,PD"]),
        ("squeue --me -r", ["--me", "-r"]),
        ("squeue -lat all", ["-lat", "all"]),
        ("squeue -j 1", ["-j", "1"]),
        ("squeue --name 'a b'", ["--name", "a b"]),
        ("squeue -n -o", ["-n", "-o"]),
        ("squeue --start", ["--start"]),
        ("squeue -s", ["-s"]),
        ("sinfo -p arandu -N", ["-p=arandu", "-N"]),
        ("sinfo -n -h", ["-n=-h"]),
        ("sinfo -- -o", ["--", "-o"]),
        ("sacct -S now-1hour -X", ["-S", "now-1hour", "-X"]),
        ("sacct -bX", ["-bX"]),
        ("sacct -l", ["-l"]),
        ("sprio -u alice", []),
        ("sshare -al", ["-al"]),
        ("sacctmgr -i sho qos where name=normal", ["-i", "sho", "qos", "where", "name=normal"]),
        ("sacctmgr list associations tree fairshare=1", ["list", "associations", "tree", "fairshare=1"]),
        (
            "sreport -t hours cluster Utilization start=2026-01-01",
            ["-t", "hours", "cluster", "Utilization", "start=2026-01-01"],
        ),
        ("sstat -j 1", ["-j", "1"]),
        ("sstat -aj 1.batch", ["-aj", "1.batch"]),
        ("sstat -a 1", ["-a", "1"]),
        ("sstat 1.batch", ["1.batch"]),
    ],
)
def test_shown_as_a_table(line: str, kept: list[str]) -> None:
    asked = argv(line)
    assert asked is not None
    assert asked[0] == line.split()[0]
    if asked[0] not in ("sinfo", "sprio"):
        assert asked[len(asked) - len(kept) :] == kept


def test_long_lists_of_sinfo_and_sprio_are_asked_for_by_their_columns() -> None:
    for line in ("sinfo -Nl", "sinfo --long -R", "sinfo --lon", "sprio -lu alice"):
        asked = argv(line)
        assert asked is not None
        assert not {"-l", "--long", "-Nl", "--lon", "-lu"} & set(asked)
    assert argv("sinfo -Nlp arandu") == [*(argv("sinfo -Nl") or []), "--partition=arandu"]


def test_every_step_of_a_batch_job_is_asked_for() -> None:
    assert argv("sstat -j 1") == ["sstat", "--parsable2", "--allsteps", "-j", "1"]
    assert argv("sstat -a -j 1") == ["sstat", "--parsable2", "-a", "-j", "1"]


@given(
    st.sampled_from(COMMANDS),
    st.lists(st.text() | st.sampled_from(["-o", "-l", "--", "-", "--me", "show", "user", "-a", "--x="])),
)
def test_deciding_never_raises(command: str, args: list[str]) -> None:
    asked = tabular_argv(command, args, MARK)
    assert asked is None or asked[0] == command


cells = st.text().filter(lambda text: MARK not in text)
heads = st.lists(st.text("ABC()_", min_size=1), min_size=2, max_size=5)


@given(st.data(), heads)
def test_framed_tables_keep_every_cell(data: st.DataObject, columns: list[str]) -> None:
    first = cells.filter(lambda text: "\n" not in text)  # an ID, a partition: no free text
    rows = data.draw(st.lists(st.tuples(first, *[cells] * (len(columns) - 1))))
    text = "".join(field_end(MARK).join(row) + record_end(MARK) + "\n" for row in [columns, *rows])
    table = parse_table("squeue", ("Sat Nov 21 03:00:00 2026\n" + text).encode("utf-8", "surrogatepass"), MARK)
    assert table.columns == columns
    assert [row[1:] for row in table.rows] == [
        [cell.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for cell in row[1:]] for row in rows
    ]


@given(st.data(), heads)
def test_accounting_tables_keep_every_cell(data: st.DataObject, columns: list[str]) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers().map(str), *[cells] * (len(columns) - 1))))
    text = "".join("".join(cell + field_end(MARK) for cell in row) + "\n" for row in [columns, *rows])
    table = parse_table("sacct", text.encode("utf-8", "surrogatepass"), MARK)
    assert (table.columns, len(table.rows)) == (columns, len(rows))
    assert [row[0] for row in table.rows] == [row[0] for row in rows]


def test_reports_have_a_title() -> None:
    rule = "-" * 80
    text = (
        f"{rule}\nTop 10 Users 2026-11-20\nUsage reported in CPU Minutes\n{rule}\nCluster|Login|Used\narandu|alice|3\n"
    )
    table = parse_table("sreport", text.encode(), MARK)
    assert (table.columns, table.rows) == (["Cluster", "Login", "Used"], [["arandu", "alice", "3"]])
    assert table.title == "Top 10 Users 2026-11-20\nUsage reported in CPU Minutes"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("sacctmgr", "Account|Descr\na|b|c\n"),
        ("sacctmgr", "Account|Descr\na|b\nsecond line\n"),
        ("sacctmgr", ""),
        ("sreport", ("-" * 80 + "\nx\n") * 4),
        ("squeue", "JOBID\n12\n"),
        ("sacct", "JobID\n12\n"),
        ("squeue", f"A{field_end(MARK)}B{record_end(MARK)}\n1{field_end(MARK)}"),
        ("squeue", f"A{field_end(MARK)}B{record_end(MARK)}\n1{record_end(MARK)}"),
    ],
)
def test_what_cannot_be_told_apart_is_an_error(command: str, text: str) -> None:
    with pytest.raises(ParseError):
        parse_table(command, text.encode(), MARK)


@given(
    st.sampled_from(COMMANDS),
    st.binary(),
    st.sampled_from([b"", field_end(MARK).encode(), record_end(MARK).encode(), b"|"]),
)
def test_random_bytes_raise_only_parse_errors(command: str, noise: bytes, end: bytes) -> None:
    try:
        parse_table(command, noise + end + noise + end, MARK)
    except ParseError:
        return


def test_formats_by_variables_are_known() -> None:
    assert FORMAT_VARIABLES["squeue"] == ("SQUEUE_FORMAT", "SQUEUE_FORMAT2")
