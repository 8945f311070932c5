"""Tests of transfers, by the real rsync and tar: here and over SSH."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from stream_cuts import cut_once

from jupyter_slurm.errors import CommandError
from jupyter_slurm.services.transfers.cluster_side import ClusterSide
from jupyter_slurm.services.transfers.local_side import LocalSide
from jupyter_slurm.services.transfers.sides import Destination, Group

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]

ODD = ["a b", "new\nline", "\udcff\udcfe", "-n", "ü", "$(touch x)", "*", "~", "js:x"]


def fill(folder: Path) -> dict[str, bytes]:
    """Make a folder with odd names, links, a loop of links and an empty folder; return the files by path."""
    files = {f"sub/deep/{name}": name.encode("utf-8", "surrogateescape") for name in ODD}
    files |= {"top": b"x" * 300_000, "sub/empty": b""}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "nothing").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "sub/up").symlink_to("..")
    (folder / "out").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    return files


def check(folder: Path, files: dict[str, bytes]) -> None:
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert os.access(folder / "run", os.X_OK)
    assert (folder / "nothing").is_dir()
    assert os.readlink(folder / "loop") == "loop"
    assert os.readlink(folder / "sub/up") == ".."
    assert not os.path.lexists(folder / "out")
    assert not os.path.lexists(folder / "fifo")
    assert [name for name in os.listdir(folder.parent) if "partial" in name] == []


async def transfer(desk: Any, kind: str, sources: list[Path], dest: Any, **more: Any) -> dict[str, Any]:
    asked = {"kind": kind, "sources": [str(source) for source in sources], "dest": str(dest), **more}
    transfers = desk.core.transfers
    found = await transfers.start(desk.id, asked)
    async with asyncio.timeout(240):
        while found["state"] == "running":
            await asyncio.sleep(0.02)
            found = transfers.transfer_to_api(found["id"])
    return dict(found)


@pytest.fixture(params=["rsync", "tar"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Carry files by rsync, or as if a side had none."""
    if request.param == "tar":
        monkeypatch.setattr("jupyter_slurm.transport.rsync.shutil.which", lambda name: None)
    return str(request.param)


@pytest.mark.usefixtures("carrier")
@pytest.mark.each_case
async def test_a_folder_goes_to_the_cluster_and_back(desk: Any, tmp_path: Path) -> None:
    files = fill(tmp_path / "near/project")
    sent = await transfer(desk, "put", [tmp_path / "near/project"], f"{tmp_path}/far/")
    assert (sent["error"], sent["state"]) == (None, "finished")
    assert (sent["files"], sent["bytes"]) == (len(files) + 1, sum(map(len, files.values())) + 10)
    assert "out" in sent["warnings"][0]
    check(tmp_path / "far/project", files)

    (tmp_path / "back").mkdir()
    got = await transfer(desk, "get", [tmp_path / "far/project"], tmp_path / "back/again")
    assert (got["error"], got["state"]) == (None, "finished")
    check(tmp_path / "back/again", files)


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.usefixtures("carrier")
async def test_files_that_differ_are_named_and_only_replaced_on_request(desk: Any, tmp_path: Path) -> None:
    near, far = tmp_path / "near/data", tmp_path / "far/data"
    for folder in (near, far):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub/same").write_text("same")
        os.utime(folder / "sub/same", (1e9, 1e9))
        (folder / "sub/other").write_text(f"of {folder.parent.name}")
    (near / "sub/new").write_text("new")
    for kind, source, dest in (("put", near, far), ("get", far, near)):
        refused = await transfer(desk, kind, [source], dest.parent)
        assert (refused["state"], refused["error"]["title"]) == ("failed", "CommandError")
        assert "data/sub/other" in refused["error"]["detail"]
        assert "same" not in refused["error"]["detail"]
        assert (dest / "sub/other").read_text() == f"of {dest.parent.name}"
        assert os.listdir(dest.parent) == ["data"]

    done = await transfer(desk, "put", [near], far.parent, overwrite=True)
    assert (done["error"], done["files"], done["unchanged"]) == (None, 2, 1)
    assert ((far / "sub/other").read_text(), (far / "sub/new").read_text()) == ("of near", "new")
    same = await transfer(desk, "get", [far], near.parent)
    assert (same["error"], same["files"], same["unchanged"]) == (None, 0, 3)

    (far / "sub/same").unlink()
    (far / "sub/same").mkdir()
    blocked = await transfer(desk, "put", [near], far.parent, overwrite=True)
    assert "directory in place of a file" in blocked["error"]["detail"]
    assert "does not exist" in (await transfer(desk, "get", [far / "none"], near))["error"]["detail"]


async def test_a_refused_transfer_leaves_nothing_at_the_destination(desk: Any, tmp_path: Path) -> None:
    for folder in ("one", "two", "far"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text(f"{folder}/x" * (2 if folder == "far" else 1))
    same = await transfer(desk, "put", [tmp_path / "one/x", tmp_path / "two/x"], f"{tmp_path}/new/")
    assert "same name" in same["error"]["detail"]
    assert not (tmp_path / "new").exists()
    assert "same name" in (await transfer(desk, "put", same["sources"], f"{tmp_path}/far/"))["error"]["detail"]
    exists = await transfer(desk, "put", [tmp_path / "one/x"], f"{tmp_path}/far/")
    assert "other files of these names: x" in exists["error"]["detail"]
    assert os.listdir(tmp_path / "far") == ["x"]


@pytest.mark.here_only("both sides behave alike")
async def test_more_sources_than_a_command_line_holds(desk: Any, tmp_path: Path) -> None:
    """As ``put *`` in a folder of images has them; some of them are there already.

    A command line has a quarter of the stack (execve(2)): 512 KiB here.
    """
    for folder in ("near", "far"):
        (tmp_path / folder).mkdir()
    names = [f"{number:06}".ljust(250, "-") for number in range(1200)]
    for number, name in enumerate(names):
        (tmp_path / "near" / name).touch()
        if number % 100 == 0:
            (tmp_path / "far" / name).write_text("other")
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (2 << 20, hard))
    try:
        sources = [tmp_path / "near" / name for name in names]
        sent = await transfer(desk, "put", sources, tmp_path / "far", overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    assert (sent["error"], sent["files"]) == (None, 1200)
    assert sorted(os.listdir(tmp_path / "far")) == names
    assert not any(path.stat().st_size for path in (tmp_path / "far").iterdir())


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.parametrize("kind", ["put", "put by tar", "get", "get by tar", "copy", "copy by a job"])
async def test_what_is_private_stays_private(
    desk: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a directory that the destination has already."""
    source, dest = tmp_path / "one/project", tmp_path / "two"
    modes = {"": 0o755, "open": 0o755, "closed": 0o700, "closed/in": 0o750}
    files = {"secret": 0o600, "run": 0o700, "open/text": 0o644, "closed/text": 0o644, "closed/in/text": 0o640}
    dest.mkdir()
    options = [f"--export=ALL,PATH={_without_rsync(tmp_path)}"]
    more = {"job": {"options": options, "context": {"env": desk.env}}} if "job" in kind else {}
    if "tar" in kind:
        monkeypatch.setattr("jupyter_slurm.transport.rsync.shutil.which", lambda name: None)
    for round_number in range(2):  # the second time, everything is new in a directory that is there
        for name in modes:
            (source / f"{round_number}" / name).mkdir(parents=True)
            (source / f"{round_number}" / name).chmod(modes[name])
        for name, mode in files.items():
            (source / f"{round_number}" / name).write_text(name)
            (source / f"{round_number}" / name).chmod(mode)
        done = await transfer(desk, kind.split(" ")[0], [source], dest, **more)
        assert (done["error"], done["files"]) == (None, len(files))
        made = dest / "project" / f"{round_number}"
        assert {name: (made / name).stat().st_mode & 0o777 for name in (*modes, *files)} == {**modes, **files}


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.root
@pytest.mark.usefixtures("carrier")
@pytest.mark.parametrize("kind", ["put", "get", "copy"])
async def test_another_user_neither_reads_what_is_received_nor_prepares_its_place(
    desk: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory where everybody may write, as /tmp."""
    (tmp_path / "file").write_text("content")
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    shared.chmod(0o1777)
    stranger: dict[str, Any] = {"user": 12345, "group": 12345, "extra_groups": [], "capture_output": True}
    asked = (desk, kind, [tmp_path / "file"], shared / "made")
    seen = []

    def look(name: str) -> None:
        for words in (("ls", name), ("cat", f"{name}/0/file"), ("mv", name, "x"), ("touch", f"{name}/0/file")):
            seen.append(subprocess.run(words, cwd=shared, check=False, **stranger).returncode)

    for side in (ClusterSide, LocalSide):
        finish = side.finish

        async def looked(self: Any, dest: Any, *args: Any, finish: Any = finish, **more: Any) -> Any:
            look(os.path.basename(dest.partial))
            return await finish(self, dest, *args, **more)

        monkeypatch.setattr(side, "finish", looked)
    try:
        done = await transfer(*asked)
        assert (done["error"], (shared / "made").read_text()) == (None, "content")
        assert len(seen) == 4
        assert 0 not in seen
        (shared / "made").unlink()
        partial = f".jupyter-slurm-partial-{done['id']}"
        for words in (("mkdir", "-m", "777", partial), ("ln", "-s", "/tmp", partial), ("touch", partial)):
            subprocess.run(words, cwd=shared, check=True, **stranger)
            refused = await transfer(*asked)
            assert "File exists" in refused["error"]["detail"], refused
            assert os.listdir(shared) == [partial]
            subprocess.run(["rm", "-rf", shared / partial], check=True)
    finally:
        shutil.rmtree(shared)


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.usefixtures("carrier")
@pytest.mark.parametrize("kind", ["put", "get", "copy"])
async def test_links_to_one_source_and_links_with_names_of_others(desk: Any, tmp_path: Path, kind: str) -> None:
    """Each source is copied under its own name, as ``latest`` and ``previous`` beside numbered runs."""
    (tmp_path / "links").mkdir()
    (tmp_path / "to").mkdir()
    for name, content in (("one", "1"), ("two", "2"), ("three", "3")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "x").write_text(content)
    targets = {"latest": "three", "newest": "three", "one": "two", "two": "one", "three": "three"}
    for name, target in targets.items():
        (tmp_path / "links" / name).symlink_to(tmp_path / "runs" / target)
    sources = [tmp_path / "links" / name for name in targets]
    done = await transfer(desk, kind, sources, tmp_path / "to")
    assert (done["error"], done["files"]) == (None, 5)
    found = {name: (tmp_path / "to" / name / "x").read_text() for name in os.listdir(tmp_path / "to")}
    assert found == {"latest": "3", "newest": "3", "one": "2", "two": "1", "three": "3"}


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.usefixtures("carrier")
async def test_a_stopped_transfer_continues_where_it_was(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = tmp_path / "near/big"
    big.mkdir(parents=True)
    for number in range(20):
        (big / f"{number}").write_bytes(os.urandom(1 << 20))
    transfers, carried = desk.core.transfers, cut_once(desk, monkeypatch, 10 << 20)
    broken = await transfer(desk, "put", [big], f"{tmp_path}/far/")
    assert (broken["state"], broken["error"]["title"]) == ("failed", "TransportError")
    assert not (tmp_path / "far/big").exists()
    before = sum(carried)
    done = await transfer(desk, "put", [big], f"{tmp_path}/far/")
    assert (done["error"], done["state"]) == (None, "finished")
    assert sum(carried) - before < 15 << 20
    for number in range(20):
        assert (tmp_path / f"far/big/{number}").read_bytes() == (big / f"{number}").read_bytes()
    assert transfers.held == 0


async def test_transfers_at_once_wait_for_a_session_of_the_login_node(desk: Any, tmp_path: Path) -> None:
    """MaxSessions is 2, and commands have one."""
    (tmp_path / "one").mkdir()
    for number in range(4):
        (tmp_path / "one" / str(number)).write_bytes(os.urandom(1 << 20))
    copies = (transfer(desk, "put", [tmp_path / "one"], f"{tmp_path}/to{number}/") for number in range(4))
    done = await asyncio.gather(*copies)
    assert [(one["error"], one["files"], one["waits"]) for one in done] == [(None, 4, None)] * 4
    assert desk.core.transfers.held == 0


@pytest.mark.root
@pytest.mark.here_only("a side of its own")
async def test_a_transfer_that_does_not_fit_is_refused_before_anything_is_sent(desk: Any, tmp_path: Path) -> None:
    full = Path("/dev/shm") / tmp_path.name
    (tmp_path / "big").write_bytes(b"x" * (4 << 20))
    full.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", full], check=True)
        for kind in ("put", "get"):
            done = await transfer(desk, kind, [tmp_path / "big"], full)
            assert "4.2 MB would be copied" in done["error"]["detail"]
            assert "only 1.0 MB are free" in done["error"]["detail"]
            assert (done["bytes"], os.listdir(full)) == (0, [])
    finally:
        subprocess.run(["umount", full], check=False)
        full.rmdir()


@pytest.mark.here_only("the cluster itself lies")
async def test_a_cluster_that_sends_other_files_changes_nothing(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tar lists and packs what it wants: neither a parent, nor a link, nor another name is written."""
    monkeypatch.setattr("jupyter_slurm.transport.rsync.shutil.which", lambda name: None)
    far, near = tmp_path / "far", tmp_path / "near"
    (far / "asked").mkdir(parents=True)
    (far / "asked/file").write_text("asked")
    near.mkdir()
    for name, kind, target in (
        ("asked/other", tarfile.REGTYPE, ""),
        ("../evil", tarfile.REGTYPE, ""),
        ("/tmp/evil", tarfile.REGTYPE, ""),
        ("asked/file", tarfile.SYMTYPE, "/etc/passwd"),
        ("asked/file", tarfile.LNKTYPE, "/etc/passwd"),
        ("asked/file", tarfile.CHRTYPE, ""),
        ("asked", tarfile.SYMTYPE, ".."),
    ):
        with tarfile.open(tmp_path / "evil.tar", "w") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
        lie = f'cd "$1"; echo; cat {tmp_path}/evil.tar; printf %s "$2"'
        monkeypatch.setattr("jupyter_slurm.transport.archive._PACK", lie)
        got = await transfer(desk, "get", [far / "asked"], near)
        assert got["state"] == "failed", name
        assert "not asked for" in got["error"]["detail"]
        assert not [one for one in os.listdir(near) if not one.startswith(".jupyter-slurm-partial-")]


@pytest.mark.here_only("the cluster itself lies")
@pytest.mark.parametrize(
    ("listed", "state"),
    [
        ("f 1 1.0 ./other", "finished"),
        ("f -1 1.0 ./file", "failed"),
        ("f 1 1e9 ./file", "failed"),
        ("welcome", "failed"),
    ],
)
async def test_a_list_of_anything(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, state: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "far").mkdir()
    monkeypatch.setattr("jupyter_slurm.services.transfers.cluster_side._LIST", f"printf '{listed}\\0\\0'")
    sent = await transfer(desk, "put", [tmp_path / "file"], tmp_path / "far")
    assert sent["state"] == state, sent["error"]
    if sent["error"]:
        assert "could not be read" in sent["error"]["detail"]


@pytest.mark.here_only("the cluster itself lies")
@pytest.mark.usefixtures("carrier")
async def test_a_file_without_end_is_not_received(desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("services.transfers.carriers", "transport.archive"):
        monkeypatch.setattr(f"jupyter_slurm.{module}._GROWTH_BYTES", 1 << 20)
    (tmp_path / "near").mkdir()
    (tmp_path / "big").write_bytes(os.urandom(5 << 20))
    listed = "tr '\\0' '\\n' | grep -qx ./big && printf 'f 1 1.0 ./big\\0\\0'"
    monkeypatch.setattr("jupyter_slurm.services.transfers.cluster_side._LIST", listed)
    got = await transfer(desk, "get", [tmp_path / "big"], tmp_path / "near")
    assert (got["state"], got["error"]["title"]) == ("failed", "CommandError"), got["error"]
    assert not (tmp_path / "near/big").exists()
    assert sum(path.stat().st_size for path in (tmp_path / "near").rglob("*") if path.is_file()) < 2 << 20


async def test_received_files_with_other_names_or_links_are_not_moved(tmp_path: Path) -> None:
    """An old rsync may accept them from a hostile sender."""
    place = Destination(str(tmp_path), str(tmp_path / "partial"), None, is_resumed=False)
    group = Group("/far", {"asked": "asked"}, str(tmp_path / "partial/0"))
    for path, target in (("0/asked/link", "../../../etc"), ("0/asked/link", "/etc"), ("0/other", "asked")):
        shutil.rmtree(tmp_path / "partial", ignore_errors=True)
        (tmp_path / "partial/0/asked").mkdir(parents=True)
        (tmp_path / "partial" / path).symlink_to(target)
        with pytest.raises(CommandError, match="not asked for"):
            await LocalSide().finish(place, [group], overwrite=True)
        assert not (tmp_path / "asked").exists()


@pytest.mark.here_only("the cluster itself lies")
@pytest.mark.parametrize("real", ["/etc/..", "/.", "/", "etc", "", "/etc/passwd\\0/etc/shadow"])
async def test_a_source_whose_name_is_a_lie(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: str
) -> None:
    monkeypatch.setattr("jupyter_slurm.services.transfers.cluster_side._RESOLVE", f"printf '{real}\\0'")
    got = await transfer(desk, "get", [tmp_path], tmp_path / "near")
    assert got["state"] == "failed"
    assert got["error"]["title"] in ("UsageError", "ParseError")
    assert not (tmp_path / "near").exists()


async def test_a_link_at_the_destination_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "partial/0/asked/sub").mkdir(parents=True)
    (tmp_path / "partial/0/asked/sub/file").write_text("evil")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "asked").mkdir()
    (tmp_path / "asked/sub").symlink_to(tmp_path / "elsewhere")
    place = Destination(str(tmp_path), str(tmp_path / "partial"), None, is_resumed=False)
    group = Group("/far", {"asked": "asked"}, str(tmp_path / "partial/0"))
    assert await LocalSide().finish(place, [group], overwrite=True) == ["asked/sub"]
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.here_only("the files of both sides are on this computer")
async def test_a_folder_that_becomes_a_link_while_it_is_sent_is_not_followed(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carrier: str
) -> None:
    """It is swapped between the list and the copy: what the link leads to is not sent."""
    near, far = tmp_path / "near/data", tmp_path / "far"
    (near / "sub").mkdir(parents=True)
    (near / "sub/secret").write_text("plain")
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret").write_text("other")
    far.mkdir()
    make = ClusterSide.make

    async def swap(side: ClusterSide, groups: Any) -> None:
        await make(side, groups)
        (near / "sub").rename(tmp_path / "old")
        (near / "sub").symlink_to(tmp_path / "private")

    monkeypatch.setattr(ClusterSide, "make", swap)
    await transfer(desk, "put", [near], f"{far}/")
    arrived = [path for path in far.rglob("*") if path.is_file()]
    assert [path.read_text() for path in arrived if path.read_text() == "other"] == []


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.parametrize("place", ["login", "job with rsync", "job with cp"])
async def test_a_copy_within_a_cluster_has_what_a_transfer_has(desk: Any, tmp_path: Path, place: str) -> None:
    files = fill(tmp_path / "one/project")
    (tmp_path / "two").mkdir()
    options = [f"--export=ALL,PATH={_without_rsync(tmp_path)}"] if place.endswith("cp") else []
    job = None if place == "login" else {"options": options, "context": {"env": desk.env}}
    done = await transfer(desk, "copy", [tmp_path / "one/project"], f"{tmp_path}/two/", job=job)
    assert (done["error"], done["state"], done["files"]) == (None, "finished", len(files) + 1)
    assert done["bytes"] == done["total"]
    assert done["warnings"] == ["Not copied (links that lead out, or devices): project/fifo."]
    assert os.readlink(tmp_path / "two/project/out") == "/etc/passwd", "within a cluster a link may lead anywhere"
    (tmp_path / "two/project/out").unlink()
    check(tmp_path / "two/project", files)
    assert (tmp_path / "cp-has-run").exists() == place.endswith("cp")


def _without_rsync(folder: Path) -> Path:
    """Return a folder of links to programs, of which none is rsync."""
    (folder / "bin").mkdir()
    for name in ("python3", "sh"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    (folder / "bin/cp").write_text(f'#!/bin/sh\n: > {folder}/cp-has-run\nexec {shutil.which("cp")} "$@"\n')
    (folder / "bin/cp").chmod(0o755)
    return folder / "bin"


@pytest.mark.here_only("both sides behave alike")
async def test_a_stopped_copy_cancels_its_job_and_the_next_one_continues(desk: Any, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/x").write_text("x")
    transfers, asked = desk.core.transfers, {"kind": "copy", "sources": [f"{tmp_path}/one"], "dest": f"{tmp_path}/two"}
    job = {"options": ["--hold"], "context": {"env": desk.env}}
    found = await transfers.start(desk.id, {**asked, "job": job})
    async with asyncio.timeout(60):
        while not (found["job"] and found["waits"]):
            await asyncio.sleep(0.05)
            found = transfers.transfer_to_api(found["id"])
    entry = desk.core.cluster(desk.id).tracker.find(found["job"])
    assert (entry.record.name, found["state"]) == ("copy", "running")
    assert (await transfers.stop_transfer(found["id"]))["state"] == "stopped"
    assert entry.state.name == "CANCELLED"

    held = await transfers.start(desk.id, {**asked, "job": job})
    async with asyncio.timeout(60):
        while not (held["job"] and held["waits"]) or held["job"] == found["job"]:
            await asyncio.sleep(0.05)
            held = transfers.transfer_to_api(held["id"])
    await transfers.stop()  # the agent ends; its job goes on
    cluster = desk.core.cluster(desk.id)
    assert not cluster.tracker.find(held["job"]).is_finished
    again = await transfers.start(desk.id, {**asked, "job": {**job, "options": []}})
    await cluster.client.act(["scontrol", "release", held["job"]])
    async with asyncio.timeout(60):
        while again["state"] == "running":
            await asyncio.sleep(0.05)
            again = transfers.transfer_to_api(again["id"])
    assert (again["error"], again["job"]) == (None, held["job"])
    assert (tmp_path / "two/x").read_text() == "x"


@pytest.mark.here_only("both sides behave alike")
async def test_a_copy_stops_also_while_its_job_changes(desk: Any, tmp_path: Path) -> None:
    """A cancellation that meets news of the job at the same moment must not be lost."""
    (tmp_path / "x").write_text("x")
    transfers, tracker = desk.core.transfers, desk.core.cluster(desk.id).tracker
    for turns in range(4):
        job = {"options": ["--hold"], "context": {"env": desk.env}}
        asked = {"kind": "copy", "sources": [f"{tmp_path}/x"], "dest": f"{tmp_path}/{turns}", "job": job}
        found = await transfers.start(desk.id, asked)
        async with asyncio.timeout(60):
            while not (found["job"] and found["waits"]):
                await asyncio.sleep(0.05)
                found = transfers.transfer_to_api(found["id"])
        tracker.publish(tracker.find(found["job"]))
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(transfers.stop_transfer(found["id"]))
        assert await asyncio.wait([stopping], timeout=60) == ({stopping}, set()), f"{turns} turns of the loop later"
        assert stopping.result()["state"] == "stopped"


@pytest.mark.root
@pytest.mark.here_only("both sides behave alike")
@pytest.mark.usefixtures("carrier")
@pytest.mark.parametrize("kind", ["put", "get", "copy", "copy by a job"])
async def test_a_full_disk_is_named_and_the_copy_continues(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As with a quota, ``df`` does not know that the room is used up."""
    for side in (ClusterSide, LocalSide):
        monkeypatch.setattr(side, "check_room", lambda *args: asyncio.sleep(0))
    (tmp_path / "one").mkdir()
    for name in ("x", "y", "z"):
        (tmp_path / "one" / name).write_bytes(os.urandom(60_000))
    (tmp_path / "full").mkdir()
    more = {"job": {"options": [], "context": {"env": desk.env}}} if "job" in kind else {}
    asked = (desk, kind.split(" ")[0], [tmp_path / "one"], f"{tmp_path}/full/")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", tmp_path / "full"], check=True)
        failed = await transfer(*asked, **more)
        assert (failed["state"], failed["error"]["title"]) == ("failed", "JobFailed" if more else "CommandError")
        assert "No space left on device" in failed["error"]["detail"]
        assert not (tmp_path / "full/one").exists()
        subprocess.run(["mount", "-o", "remount,size=1m", tmp_path / "full"], check=True)
        done = await transfer(*asked, **more)
        assert done["error"] is None
        for path in (tmp_path / "one").iterdir():
            assert (tmp_path / "full/one" / path.name).read_bytes() == path.read_bytes()
        assert os.listdir(tmp_path / "full") == ["one"]
    finally:
        subprocess.run(["umount", tmp_path / "full"], check=False)


async def test_files_pass_through_this_computer_to_another_cluster(desk: Any, cluster: Any, tmp_path: Path) -> None:
    """The second cluster is that of this computer; both have the same file system here."""
    if not desk.way.is_remote:
        return  # there is one cluster only
    near = await desk.core.clusters.register(str(cluster.slurm_conf), cluster.env().get("PATH", os.defpath))
    files = fill(tmp_path / "one/project")
    done = await transfer(desk, "copy", [tmp_path / "one/project"], f"{tmp_path}/two/", to_cluster=near["id"])
    assert (done["error"], done["state"], done["files"]) == (None, "finished", len(files) + 1)
    check(tmp_path / "two/project", files)
    assert list((tmp_path / "state/transfers").iterdir()) == []
