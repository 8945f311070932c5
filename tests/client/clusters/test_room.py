"""Tests of free space and quotas as a table, in text and HTML."""

from __future__ import annotations

from typing import Any

from jupyter_slurm.client.clusters.room import Room

SPACE = {
    "folder": "/home/ana",
    "file_system": "/dev/x",
    "tool": "disk",
    "owner": "",
    "files": None,
    "files_limit": None,
}


def room(**more: Any) -> Room:
    spaces = [
        {**SPACE, "used": 3 << 40, "limit": 4 << 40, "free": 1 << 40},
        {**SPACE, "tool": "quota", "owner": "user <b>", "used": 5 << 30, "limit": 6 << 30, "free": 1 << 30, "files": 7},
        {
            **SPACE,
            "folder": None,
            "tool": "GPFS",
            "owner": "group \x1b[31m",
            "used": 1 << 20,
            "limit": None,
            "free": None,
        },
    ]
    spaces[1]["files_limit"] = 9
    known: Any = {"asked_at": 0.0, "unknown_since": None, "said": "", "spaces": spaces, "reports": [], "kept": []}
    return Room({**known, **more})


def test_each_disk_and_quota_has_a_row() -> None:
    assert room().table.rows == [
        ["/home/ana", "3.0 TiB", "4.0 TiB", "1.0 TiB", "", "disk, shared by all users"],
        ["/home/ana", "5.0 GiB", "6.0 GiB", "1.0 GiB", "7 of 9", "quota of user <b>"],
        ["/dev/x", "1.0 MiB", "", "", "", "GPFS quota of group \x1b[31m"],
    ]


def test_nothing_of_a_cluster_acts_on_the_reader() -> None:
    shown = room(
        reports=[{"name": "/srv/u", "text": "<script>\x1b]0;x\x07"}],
        kept=[
            {"kind": "jobs", "folder": "/<i>\x1b", "used": 2 << 20},
            {"kind": "new", "folder": "/new-kind", "used": 1},
        ],
        unknown_since=1.0,
        said="<u>\x1b",
    )
    text, html = repr(shown), shown._repr_html_()
    assert "\x1b" not in text
    assert not [tag for tag in ("<script", "<i>", "<u>", "<b>") if tag in html]
    assert "2.0 MiB. `jupyter slurm clean` removes those of finished jobs." in text
    assert "Not updated since" in text
    assert "/new-kind" not in text, "a kind of a later version is left out"


def test_without_an_answer_a_line_says_so() -> None:
    assert repr(room(spaces=[])).startswith("The login node shows no free space.")
