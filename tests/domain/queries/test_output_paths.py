"""Output files of a batch job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.output_paths import default_pattern, expand_pattern, symbols

OLD, NEW = (22, 5), (26, 5)


def path(pattern: str, task: int | None = None, version: tuple[int, int] | None = None) -> str:
    return expand_pattern(
        pattern,
        job=JobId(128, task),
        name="my name",
        user="alice",
        node="dgx01",
        work_dir="/w",
        raw_id=None if task is None else 131,
        restarts=2,
        version=version,
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("out", "/w/out"),
        ("/abs/%j", "/abs/128"),
        ("job%J.out", "/w/job128.out"),
        ("job%4j.out", "/w/job0128.out"),
        ("%2j", "/w/128"),
        ("%12j", "/w/0000000128"),
        ("%0j", "/w/128"),
        ("%A_%a", "/w/128_4294967294"),
        ("%x-%u-%N", "/w/my name-alice-dgx01"),
        ("%10x", "/w/my name"),
        ("%n%t%2t", "/w/0000"),
        ("%s", "/w/batch"),
        ("%%j", "/w/%j"),
        ("%%%j", "/w/%128"),
        ("a%q", "/w/a%q"),
        ("a/../%j", "/w/a/../128"),
        ("/a/%j\\%j", "/a/%j%j"),
        ("", "/w/"),
    ],
)
def test_patterns(pattern: str, expected: str) -> None:
    assert path(pattern) == path(pattern, version=OLD) == expected


def test_array_tasks() -> None:
    assert path("%A_%a", 7) == "/w/128_7"
    assert path("%A-%3a-%j", 7) == "/w/128-007-131"
    assert path(default_pattern(array=True), 7) == "/w/slurm-128_7.out"
    assert path(default_pattern(array=False)) == "/w/slurm-128.out"


def test_symbols_of_later_versions() -> None:
    assert (path("%b", 13), path("%b", 13, OLD), path("%b", 13, (24, 11))) == ("/w/3", "/w/%b", "/w/3")
    assert (path("%r"), path("%2r", version=NEW), path("%r", version=(25, 5))) == ("/w/2", "/w/02", "/w/%r")


def test_quirks_that_the_nodes_have_too() -> None:
    assert (path("a%", version=OLD), path("a%", version=NEW)) == ("/w/a%", "/w/a")
    assert (path("a%5q%5", version=OLD), path("a%5q", version=NEW)) == ("/w/a5q5", "/w/a%5q")


def test_backslashes_switch_symbols_off() -> None:
    assert path("a\\%j", version=NEW) == "/w/a%j"
    assert path("/a\\\\%j", version=OLD) == "/a\\%j"
    assert path("/a\\\\%j", version=NEW) == "/a%j"
    assert path("a\\%j", version=OLD) == "/w/a%j"
    assert (symbols("a%%b-%A_%5a.%j"), symbols("a\\%j"), symbols("a%")) == ({"A", "a", "j"}, set(), set())


@given(st.text(), st.sampled_from([None, OLD, NEW]), st.none() | st.integers(0, 9))
def test_any_pattern_has_a_path(pattern: str, version: tuple[int, int] | None, task: int | None) -> None:
    expanded = path(pattern, task, version)
    assert expanded.startswith("/")
    if not {"%", "\\"} & {*pattern}:
        assert expanded == (pattern if pattern.startswith("/") else f"/w/{pattern}")
