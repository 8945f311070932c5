"""Tests of tables and texts of commands in a notebook and a terminal."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.lib.pretty import pretty

import jupyter_slurm
from jupyter_slurm.client.clusters.resources import Resources
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.render.table import CommandText, Table

HOSTILE = [
    "<script>alert(1)</script>",
    "a\nb",
    "\x1b[31mred",
    'x" onmouseover="1',
    "\u202egnp.exe",
    "tab\there",
    "&amp;",
]


def test_columns_rows_and_slices() -> None:
    table = Table(["JOBID", "NAME"], [["1", "a"], ["2", "b"], ["3", "c"]])
    assert len(table) == 3
    assert table["JOBID"] == ["1", "2", "3"]
    assert table[-1] == {"JOBID": "3", "NAME": "c"}
    assert list(table[1:]) == [{"JOBID": "2", "NAME": "b"}, {"JOBID": "3", "NAME": "c"}]
    assert isinstance(table[:1], Table)
    with pytest.raises(KeyError, match="JOBID, NAME"):
        table["ID"]


def test_text_is_aligned_also_with_wide_characters() -> None:
    lines = repr(Table(["NAME", "ST"], [["日本", "R"], ["abc", "PD"]])).split("\n")
    assert lines == ["NAME  ST", "日本  R", "abc   PD"]


def test_an_empty_table_says_so() -> None:
    assert repr(Table(["JOBID"], [])).endswith("(no rows)")
    assert "(no rows)" in Table(["JOBID"], [])._repr_html_()


def test_a_long_table_shows_both_ends() -> None:
    table = Table(["N"], [[str(i)] for i in range(1000)])
    for shown in (repr(table), table._repr_html_()):
        assert "600 more rows" in shown
        assert "999" in shown
        assert "500" not in shown


@given(st.lists(st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=20), min_size=1, max_size=4))
def test_nothing_in_a_cell_becomes_markup_or_a_line(read_html: Callable[[str], Any], values: list[str]) -> None:
    table = Table(values, [values])
    html = read_html(table._repr_html_())
    assert html.tags == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert html.attributes == {"style"}
    assert len(repr(table).split("\n")) == 2
    table._repr_html_().encode("utf-8")
    repr(table).encode("utf-8")


def test_pandas_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="%pip install pandas"):
        Table(["A"], [["1"]]).to_pandas()


def test_pandas_gets_the_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Table(["A", "B"], [["1", "2"]]).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["B"].tolist() == ["2"]


def test_a_text_shows_as_text() -> None:
    text = CommandText("JobId=1\nName=\x1b[31mx\n")
    assert pretty(text) == "JobId=1\nName=\\x1b[31mx"
    assert repr(text) == repr(str(text))
    assert text == "JobId=1\nName=\x1b[31mx\n"


def test_a_long_list_of_jobs_shows_active_ones_and_the_latest_of_the_ended() -> None:
    states = ["RUNNING" if number % 50 == 0 else "COMPLETED" for number in range(150)]
    told = [
        defaultdict(lambda: None, id=str(number), name="x", state=state, finished=state != "RUNNING")
        for number, state in enumerate(states, 1000)
    ]
    listed: JobList[Any] = JobList(SimpleNamespace(_data=data) for data in told)  # type: ignore[misc]
    shown = repr(listed)
    assert shown.count("RUNNING") == 3
    assert shown.count("COMPLETED") == 40
    assert "… 107 more jobs have ended. Call .table() on the list to show all." in shown
    assert "107 more jobs" in listed._repr_html_()
    assert len(listed.table()) == len(listed) == 150


def test_a_list_of_jobs_says_why_there_may_be_more() -> None:
    listed = JobList([], trouble="The queue cannot be read: <b>\x1b[31m")
    assert repr(listed).splitlines()[-1] == "The queue cannot be read: <b>\\x1b[31m"
    assert "The queue cannot be read: &lt;b&gt;\\x1b[31m</div>" in listed._repr_html_()
    assert "queue" not in repr(JobList()) + JobList()._repr_html_()


def test_a_report_keeps_its_title() -> None:
    table = Table(["A"], [["1"], ["2"]], title="Top <10> Users\nUsage reported in CPU Minutes")
    assert repr(table[:1]) == "Top <10> Users\nUsage reported in CPU Minutes\nA\n1"
    assert '<caption style="text-align:left">Top &lt;10&gt; Users<br>Usage' in table._repr_html_()
    assert "caption" not in Table(["A"], [])._repr_html_()


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_free_is_text_whatever_an_administrator_wrote(hostile: str) -> None:
    node = {"name": "n1", "state": "IDLE", "flags": ["DRAIN"], "partitions": ["p"], "cpus": 4, "cpus_used": 0}
    node |= {"load": None, "memory": 2048, "memory_used": 0, "reason": hostile}
    gpus = [{"type": hostile, "total": 2, "used": 0, "free": 0, "most": 2}]
    told = {"asked_at": 1e9, "unknown_since": 1e9 + 60, "said": hostile, "use": None, "limits": None, "partitions": []}
    found = Resources({**told, "gpus": gpus, "nodes": [{**node, "gpus": gpus}]})
    for shown in (repr(found), repr(found.nodes)):
        assert not {"\x1b", "\u202e"} & set(shown)
    for shown in (found._repr_html_(), found.nodes._repr_html_()):
        assert "<script" not in shown
        assert '" onmouseover' not in shown
    assert "Not updated since" in repr(found)
    assert found.gpus["FREE"] == [0]


def test_the_columns_of_all_tables_are_in_capitals_as_those_of_squeue() -> None:
    """Columns with names of values, such as those of a sweep, keep these names."""
    root, found = Path(jupyter_slurm.__file__).parent, list[str]()
    for path in [*root.glob("client/**/*.py"), *root.glob("cli/**/*.py"), *root.glob("magics/**/*.py")]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Table" and isinstance(call.args[0], ast.List):
                names = [name.value for name in call.args[0].elts if isinstance(name, ast.Constant)]
                found += names if len(names) == len(call.args[0].elts) else []
    assert len(found) > 30
    assert [name for name in found if name != name.upper()] == []
