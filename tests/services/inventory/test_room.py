"""Tests of free space and quotas, with programs that print what the tools for quotas print on file systems with some."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.here_only("the tools are asked by the client; over SSH, a notebook asks the real df"),
]

QUOTA = """#!/bin/sh
[ "$1" = -wp ] || exit
echo x >>"{log}"
set -- $(df -Pk "$HOME" | tail -n 1)
echo "Disk quotas for user ana (uid 1001):"
echo "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace"
echo "$1 31000000* 30000000 31457280 1700000000 9 0 100 0"
printf 'files:/other 5 0 10 0 1 0 0 0\\n<b>\\0\\377 1 2 3'
"""
LFS = """#!/bin/sh
[ "$1" = project ] && {{ echo "    7 P $3"; exit; }}
case " $* " in *" -p 7 "*) echo "$5  [100]* 0 1100 - 20 0 0 -" ;; *) exit 1 ;; esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the log of a program in place of quota(1); there is one in place of lfs(1), too."""
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    for name, text in (("quota", QUOTA), ("lfs", LFS)):
        (tools / name).write_text(text.format(log=log))
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return log


async def test_disks_quotas_and_reports(
    cluster: EmbeddedCluster, tmp_path: Path, open_desk: Any, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "usage.txt").write_bytes(b"ana  28.1 GB of 30 GB \xff\n" + b"x" * 100_000)
    monkeypatch.setenv("LAB", str(tmp_path / "lab"))
    (tmp_path / "lab").mkdir()
    storage = {
        "shared": "$LAB/ana",
        "usage_file": str(tmp_path / "usage.txt"),
        "usage_command": ["printf", "%s|", "a b", "$(echo c)"],
    }
    async with open_desk(cluster, tmp_path, storage=storage) as desk:
        room = desk.core.cluster(desk.id).inventory.room
        told, same = await asyncio.gather(*(room.to_api(wait=60, is_newer=False) for _ in range(2)))
        assert same == told
        assert log.read_text() == "x\n", "two viewers, one query"
        spaces = {(one["tool"], one["owner"]): one for one in told["spaces"] if one["folder"]}
        disk, quota, project = spaces["disk", ""], spaces["quota", "user ana"], spaces["Lustre", "project 7"]
        assert disk["folder"] == quota["folder"] == os.path.expanduser("~")
        assert (quota["used"], quota["limit"], quota["free"]) == (31000000 << 10, 31457280 << 10, 457280 << 10)
        assert (quota["files"], quota["files_limit"]) == (9, 100)
        assert (project["used"], project["free"]) == (100 << 10, 1000 << 10)
        other = told["spaces"][-1]
        assert (other["folder"], other["file_system"], other["free"]) == (None, "files:/other", 5 << 10)
        file, command = told["reports"]
        assert (file["name"], len(file["text"])) == (storage["usage_file"], 16384)
        assert file["text"].startswith("ana  28.1 GB of 30 GB \ufffd\n")
        assert command["text"] == "a b|$(echo c)|", "no shell reads its words"

        large = Path(desk.root) / "stage"
        large.parent.mkdir(parents=True, exist_ok=True)
        large.write_bytes(os.urandom(3_000_000))
        told = await room.to_api(wait=60, is_newer=True)
        assert log.read_text() == "x\nx\n"
        (jobs,) = [one for one in told["kept"] if one["kind"] == "jobs"]
        assert jobs["folder"] == desk.root
        assert jobs["used"] > 2_900_000


async def test_a_job_is_warned_when_little_space_is_left(
    cluster: EmbeddedCluster, tmp_path: Path, open_desk: Any, log: Path
) -> None:
    async with open_desk(cluster, tmp_path) as desk:
        job = await desk.submit("#!/bin/sh\ntrue", "-p", "arandu")
        assert not [text for text in job["warnings"] if "Little space" in text], (
            "nothing is known yet, and the job starts"
        )
        room = desk.core.cluster(desk.id).inventory.room
        async with asyncio.timeout(60):
            while not room.shortage_notice():
                await asyncio.sleep(0.05)
        job = await desk.submit("#!/bin/sh\ntrue", "-p", "arandu")
        (text,) = [text for text in job["warnings"] if "Little space" in text]
        assert text.startswith(
            f"Little space: only 1 MB left of the quota of its project in {os.path.expanduser('~')} (checked "
        )
        assert log.read_text() == "x\n", "asked once for both jobs"


async def test_a_report_that_is_missing_is_named(cluster: EmbeddedCluster, tmp_path: Path, open_desk: Any) -> None:
    storage = {"usage_file": str(tmp_path / "gone"), "usage_command": ["no-such-tool"], "shared": "$NOT_SET/x"}
    async with open_desk(cluster, tmp_path, storage=storage) as desk:
        told = await desk.core.cluster(desk.id).inventory.room.to_api(wait=60, is_newer=False)
    assert told["spaces"]
    file, command = (one["text"] for one in told["reports"])
    assert "gone" in file
    assert "no-such-tool" in command
