"""Tests of transfers that continue after their source has changed, and of links that lead out of a folder."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from stream_cuts import cut_once

from jupyter_slurm.services.transfers.transfer import Transfer, TransferRequest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.here_only("both sides behave alike")]

MIB = 1 << 20


async def transfer(desk: Any, kind: str, sources: list[Path], dest: Any, **more: Any) -> dict[str, Any]:
    asked = {"kind": kind, "sources": [str(source) for source in sources], "dest": str(dest), **more}
    found = await desk.core.transfers.start(desk.id, asked)
    async with asyncio.timeout(240):
        while found["state"] == "running":
            await asyncio.sleep(0.02)
            found = desk.core.transfers.transfer_to_api(found["id"])
    return dict(found)


@pytest.fixture(params=["rsync", "tar"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Carry files by rsync, or as if a side had none."""
    if request.param == "tar":
        monkeypatch.setattr("jupyter_slurm.transport.rsync.shutil.which", lambda name: None)
    return str(request.param)


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Return everything below a folder: the content of files, the target of links."""
    found: dict[str, bytes | str | None] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def fill(source: Path) -> None:
    """Make small files, of odd names too, and a big one that is the last in every order."""
    for name in ("a/x", "a/new\nline", "a/\udcff", "a/-n", "kept"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("first")
    (source / "a/out").symlink_to("x")
    (source / "z").mkdir()
    for number in range(10):
        (source / f"z/{number}").write_bytes(os.urandom(MIB))


@pytest.mark.parametrize("kind", ["put", "get"])
async def test_a_transfer_continues_without_what_its_source_has_lost(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, carrier: str
) -> None:
    source, dest = tmp_path / "near/big", tmp_path / "far"
    fill(source)
    carried = cut_once(desk, monkeypatch, 13 * MIB // 2)
    broken = await transfer(desk, kind, [source], f"{dest}/")
    assert (broken["state"], broken["error"]["title"]) == ("failed", "TransportError")
    received = tree(dest / f".jupyter-slurm-partial-{broken['id']}/0")
    assert "big/a/x" in received
    halves = [path for path in received if path.startswith("big/z/.rsync-partial/")]
    complete = [name for name in os.listdir(source / "z") if received.get(f"big/z/{name}") is not None]
    complete = [name for name in complete if received[f"big/z/{name}"] == (source / "z" / name).read_bytes()]
    current = Path(halves[0]).name if halves else next(iter({"5", "6", "7"} - {*complete}))
    assert len(complete) > 2
    (source / "z" / current).unlink()
    (source / "z" / complete[0]).unlink()
    (source / "kept").unlink()
    shutil.rmtree(source / "a")
    (source / "a").write_text("now a file")
    before = sum(carried)
    done = await transfer(desk, kind, [source], f"{dest}/")
    assert (done["error"], done["state"]) == (None, "finished")
    assert tree(dest) == {"big": None, **{f"big/{name}": data for name, data in tree(source).items()}}
    assert os.listdir(dest) == ["big"]
    if carrier == "rsync":
        assert sum(carried) - before < 6 * MIB, "complete files were not sent again"


@pytest.mark.usefixtures("carrier")
@pytest.mark.parametrize("kind", ["put", "get", "copy", "copy by a job"])
async def test_what_an_earlier_run_has_received_and_the_source_has_not_is_removed(
    desk: Any, tmp_path: Path, kind: str
) -> None:
    """Half files of rsync, files in the place of directories and links in the place of files; and other sources."""
    (tmp_path / "source/sub").mkdir(parents=True)
    for name in ("file", "sub/file", "secret"):
        (tmp_path / "source" / name).write_text(name)
    (tmp_path / "elsewhere").write_text("untouched")
    (tmp_path / "link").symlink_to("source")
    more: dict[str, Any] = {"job": {"options": [], "context": {"env": desk.env}}} if "job" in kind else {}
    asked = (desk, kind.split(" ")[0], [tmp_path / "link"], f"{tmp_path}/dest/")
    first = await transfer(*asked, **more)
    assert first["error"] is None
    shutil.rmtree(tmp_path / "dest/link")
    received = tmp_path / f"dest/.jupyter-slurm-partial-{first['id']}/0"
    (received / "source/.rsync-partial").mkdir(parents=True)
    received.parent.chmod(0o700)
    (received / "source/.rsync-partial/gone").write_text("half")
    (received / "source/.rsync-partial/secret").write_text("sec")  # a copy by cp or tar would not use it
    (received / "source/sub").write_text("was a file")
    (received / "source/file").symlink_to(tmp_path / "elsewhere")
    (received / "source/secret").mkdir()
    (received / "source/secret/x").write_text("was a directory")
    for name in (".source.Ab12Cd", "source/.file.Ab12Cd"):  # of an rsync that was killed
        (received / name).write_text("ha")
    (received / "other").mkdir()  # to which the link led
    (received / "other/x").write_text("x")
    done = await transfer(*asked, **more)
    assert (done["error"], done["state"]) == (None, "finished")
    assert tree(tmp_path / "dest/link") == tree(tmp_path / "source")
    assert os.listdir(tmp_path / "dest") == ["link"]
    assert (tmp_path / "elsewhere").read_text() == "untouched"


@pytest.mark.usefixtures("carrier")
@pytest.mark.parametrize("kind", ["put", "get"])
async def test_links_that_lead_out_by_one_level_are_not_copied(desk: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / "results/sub").mkdir(parents=True)
    (tmp_path / "results/sub/file").write_text("x")
    for name, target in (("log", "../.bashrc"), ("up", ".."), ("sub/out", "../../x"), ("sub/in", "../sub")):
        (tmp_path / "results" / name).symlink_to(target)
    done = await transfer(desk, kind, [tmp_path / "results"], f"{tmp_path}/dest/")
    assert done["error"] is None
    assert tree(tmp_path / "dest/results") == {"sub": None, "sub/file": b"x", "sub/in": "../sub"}
    assert all(f"results/{name}" in done["warnings"][0] for name in ("log", "up", "sub/out"))


@pytest.mark.usefixtures("carrier")
async def test_a_copy_between_clusters_continues_without_what_its_source_has_lost(desk: Any, tmp_path: Path) -> None:
    """The folder of this computer through which the files pass has those of an earlier run."""
    (tmp_path / "source/sub").mkdir(parents=True)
    (tmp_path / "source/sub/file").write_text("x")
    (tmp_path / "source/was-directory").write_text("now a file")
    between = tmp_path / "state/transfers/ab"
    (between / "source/was-directory").mkdir(parents=True)
    (between / "source/sub").mkdir()
    (between / "source/was-directory/x").write_text("x")
    (between / "source/gone").write_text("x")
    (between / "source/sub/gone").write_text("x")
    (between / "other").write_text("x")
    transfers = desk.core.transfers
    request = TransferRequest(desk.id, "copy", (f"{tmp_path}/source",), f"{tmp_path}/dest/", desk.id)
    side = await transfers._side(desk.id)
    transfer = Transfer("ab", request, lambda _: None)
    await transfers._copy_through(transfer, side, side, "owner", ".jupyter-slurm-partial-ab")
    assert tree(tmp_path / "dest") == {
        "source": None,
        **{f"source/{name}": data for name, data in tree(tmp_path / "source").items()},
    }
    assert not between.exists()
