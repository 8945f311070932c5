"""Folders that travel with a job, by real rsync: there before it is submitted, and back when it is over."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

WORK = r"""
import os, sys
print(os.getcwd(), open('a file').read(), open('two\nlines').read(), sep='\n', end='')
print('result', file=open('new', 'w'))
print('again', file=open('changed', 'a'))
os.mkdir('out')
print('deep', file=open('out/ -n', 'w'))
sys.exit(3)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with names that a shell, or a line of output, would take for something else."""
    folder = tmp_path / "laptop's project: 1"
    (folder / "sub").mkdir(parents=True)
    for name in ("a file", "two\nlines", "-rf", "changed", "mine", "sub/\\#134", "sub/é"):
        (folder / name).write_text(f"{name}\n")
    (folder / "sub" / os.fsdecode(b"\xff")).write_text("not UTF-8\n")
    (folder / "inside").symlink_to("a file")
    (folder / "outside").symlink_to(tmp_path)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").touch()
    (folder / ".rsync-filter").write_text("- *.large\n")
    (folder / "data.large").touch()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    return folder


def staged(*folders: Path, **how: bool) -> dict[str, Any]:
    """What the API is told."""
    return {"stage": {"folders": [{"source": str(folder)} for folder in folders], **how}}


async def there(desk: Any, job: dict[str, Any]) -> Path:
    """The folder of the cluster; the test sees it, too."""
    return Path(job["stage"]["folders"][0]["dest"])


async def test_what_a_job_needs_is_there_and_what_it_leaves_comes_back_also_when_it_fails(desk, project, tmp_path):
    asked = desk.asked(WORK, **staged(project))
    job = await desk.core.submit(desk.id, asked)
    assert job["stage"]["state"] == "there"
    dest = await there(desk, job)
    assert dest.parent == Path(desk.root, "stage")
    assert job["work_dir"] == str(dest)
    assert [warning for warning in job["warnings"] if "outside" in warning], "a link that leads out is told"

    over = await desk.finished(job["key"])
    assert (over["state"], over["exit_code"]) == ("FAILED", 3)
    assert await desk.text(job["key"]) == f"{dest}\na file\n\ntwo\nlines\n"
    gone = {"outside", "__pycache__", "data.large"}
    assert {path.name for path in dest.iterdir()} == {
        *(path.name for path in project.iterdir() if path.name not in gone),
        ".jupyter-slurm-stage",
    }
    assert os.access(dest / "run", os.X_OK)

    assert (over["stage"]["state"], over["stage"]["files"], over["stage"]["left"]) == ("back", 3, [])
    assert (project / "new").read_text() == "result\n"
    assert (project / "changed").read_text() == "changed\nagain\n"
    assert (project / "out" / " -n").read_text() == "deep\n"
    assert (project / "outside").is_symlink()
    assert not (project / ".jupyter-slurm-stage").exists()


@pytest.mark.here_only("what travels is chosen alike over each way")
async def test_what_both_changed_stays_and_what_went_before_is_not_sent_again(desk, project):
    waits = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)\nprint('job', file=open('changed', 'a'))"
    job = await desk.submit(waits, **staged(project))
    dest = await there(desk, job)
    (project / "changed").write_text("by the person, meanwhile\n")
    (project / "mine").write_text("edited while it runs\n")
    # Another job of the same folder: what the first one is about to write is not touched, what the person edits goes.
    (dest / "a file").write_text("half a result\n")
    second = await desk.submit("1", **staged(project, delete=True))
    assert (dest / "mine").read_text() == "edited while it runs\n"
    assert (dest / "a file").read_text() == "half a result\n"
    assert (await desk.finished(second["key"]))["stage"]["state"] == "back"
    (project / "changed").write_text("once more\n")
    (dest / "go").touch()
    over = await desk.finished(job["key"])
    assert over["stage"]["left"] == ["changed"]
    assert (project / "changed").read_text() == "once more\n"
    assert (dest / "changed").read_text() == "by the person, meanwhile\njob\n"
    assert (project / "a file").read_text() == "half a result\n"

    # What is gone here goes there, too, if that is said; nothing else does.
    (project / "mine").unlink()
    (dest / "of the cluster").touch()
    kept = await desk.submit("1", **staged(project))
    await desk.finished(kept["key"])
    assert (dest / "mine").exists()
    assert not (project / "mine").exists(), "what the person has removed does not come back"
    await desk.finished((await desk.submit("1", **staged(project, delete=True)))["key"])
    assert not (dest / "mine").exists()
    assert (dest / "of the cluster").exists()


@pytest.mark.here_only("what happens on the node is alike over each way")
async def test_on_a_disk_of_the_node_what_a_job_leaves_is_brought_back_also_when_it_is_cancelled(
    open_desk, cluster, project, tmp_path
):
    output = tmp_path / "output"
    async with open_desk(cluster, tmp_path, storage={"local": f"{output}/$USER"}) as desk:
        await _on_the_node(desk, project, output)


async def _on_the_node(desk, project, output):
    job = await desk.submit(WORK, **staged(project))
    over = await desk.finished(job["key"])
    assert (await desk.text(job["key"])).startswith(f"{output}/")
    assert (over["exit_code"], over["stage"]["files"], over["stage"]["left"]) == (3, 3, [])
    assert (project / "changed").read_text() == "changed\nagain\n"
    assert (project / "out" / " -n").read_text() == "deep\n"
    assert not list(output.glob("*/*")), "nothing is left on the node"

    # A script that does not end when it is told to; what it has written by then is there.
    text = "#!/bin/sh\ntrap : TERM\necho half > half\nwhile :; do sleep 0.1; done\n"
    job = await desk.submit(text, **staged(project))
    while not [*output.glob("*/*/half")]:
        await asyncio.sleep(0.1)
    await desk.core.cancel(desk.id, job["key"])
    over = await desk.finished(job["key"])
    assert (over["state"], over["stage"]["files"]) == ("CANCELLED", 1)
    assert (project / "half").read_text() == "half\n"
