"""Tests of the state file that a proxy leaves for the next one, whatever the old proxy does meanwhile."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import socket
from pathlib import Path

import pytest

from jupyter_slurm.kernels import state_file
from jupyter_slurm.kernels.state_file import KernelStateFile, read


def test_a_signpost_that_the_front_before_removes_meanwhile_is_put_up_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "kernel.json")
    before, lock = KernelStateFile(file), fcntl.flock
    before.write(state="running")

    def ends_first(*asked: int) -> None:
        if before.data:
            before.remove()
            before.close()
        lock(*asked)

    monkeypatch.setattr(fcntl, "flock", ends_first)
    post = KernelStateFile(file)
    assert post.data == {}, "what was removed leads nowhere"
    post.write(state="starting")
    assert read(file)["state"] == "starting"
    post.close()


def test_of_two_kernels_of_a_notebook_the_one_with_its_variables_is_taken_over_and_the_other_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill of a Jupyter server while the next allocation is pending."""
    given_back: list[str] = []
    monkeypatch.setattr("jupyter_slurm.kernels.state_file.schedule_release", given_back.append)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = [str(folder / f"kernel-{secrets.token_hex(8)}.json") for _ in range(4)]
        has, comes, lives, again = names
        posts = {name: KernelStateFile(name, "/home/me/n.ipynb", "gpu") for name in (has, comes, lives)}
        for name, post in posts.items():
            post.write(state="running" if name == has else "starting", words=[name])
        posts[has].close()
        posts[comes].close()
        taken = KernelStateFile(again, "/home/me/n.ipynb", "gpu")
        assert taken.data["words"] == [has]
        assert given_back == [comes], "and not that of a front that lives"
        given_back.clear()
        taken.close()
        posts[lives].close()


def test_a_kernel_is_found_again_when_the_network_gives_the_machine_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "macbook.office.uni.edu")
    before = KernelStateFile(str(tmp_path / "kernel-1.json"), "/home/me/n.ipynb", "gpu")
    before.write(state="running", step="S")
    before.close()
    monkeypatch.setattr(socket, "gethostname", lambda: "macbook.local")
    after = KernelStateFile(str(tmp_path / "kernel-2.json"), "/home/me/n.ipynb", "gpu")
    assert after.data.get("step") == "S"
    after.close()


def test_a_kernel_is_found_again_where_each_start_of_the_machine_gives_it_another_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    for number in range(3):
        monkeypatch.setattr(state_file, "_machine_id", lambda number=number: f"{number:032x}")
        post = KernelStateFile(str(tmp_path / f"kernel-{number}.json"), "/home/me/n.ipynb", "gpu")
        steps.append(post.data.get("step"))
        post.write(state="running", step="S")
        post.close()
    assert steps == [None, "S", "S"]


def test_the_kernel_of_an_earlier_version_which_used_the_name_of_the_machine_is_found_again(tmp_path: Path) -> None:
    named = "\n".join((socket.gethostname(), "/home/me/n.ipynb", "gpu"))
    owner = hashlib.sha256(named.encode()).hexdigest()[:16]
    (tmp_path / "kernel-1.json.slurm").write_text(json.dumps({"owner": owner, "state": "running", "step": "S"}) + "\n")
    steps = []
    for number in (2, 3):
        post = KernelStateFile(str(tmp_path / f"kernel-{number}.json"), "/home/me/n.ipynb", "gpu")
        steps.append(post.data.get("step"))
        post.close()
    assert steps == ["S", "S"], "also by the one after the next"
    assert read(str(tmp_path / "kernel-3.json"))["owner"] != owner


def test_the_newest_of_several_kernels_with_variables_is_taken_over(tmp_path: Path) -> None:
    """As after a move that has left a busy kernel, and a crash of Jupyter."""
    for number, begun in enumerate((2.0, 3.0, 1.0)):
        post = KernelStateFile(str(tmp_path / f"kernel-{number}.json"), "/home/me/n.ipynb", "gpu")
        post.data = {}
        post.write(state="running", begun=begun, step=str(number))
        post.close()
        (tmp_path / f"kernel-{number}.json.slurm").rename(tmp_path / f"kept-{number}")
    for number in range(3):
        (tmp_path / f"kept-{number}").rename(tmp_path / f"kernel-{number}.json.slurm")
    again = KernelStateFile(str(tmp_path / "kernel-again.json"), "/home/me/n.ipynb", "gpu")
    assert again.data["step"] == "1"
    again.close()


def test_a_renamed_notebook_keeps_its_kernel_and_a_new_one_of_its_old_name_has_another(tmp_path: Path) -> None:
    file = str(tmp_path / "kernel-1.json")
    post = KernelStateFile(file, "/home/me/Untitled.ipynb", "gpu")
    post.write(state="running", step="TRAIN")
    state_file.write_owner(file, "/home/me/train.ipynb", "gpu")
    post.write(received=7)  # the proxy does not know the new name
    post.close()
    other = KernelStateFile(str(tmp_path / "kernel-2.json"), "/home/me/Untitled.ipynb", "gpu")
    assert other.data == {}
    again = KernelStateFile(str(tmp_path / "kernel-3.json"), "/home/me/train.ipynb", "gpu")
    assert (again.data.get("step"), again.data.get("received")) == ("TRAIN", 7)
    again.close()
    last = KernelStateFile(str(tmp_path / "kernel-4.json"), "/home/me/train.ipynb", "gpu")
    assert last.data.get("step") == "TRAIN"
    last.remove()
    for one in (other, last):
        one.close()
    assert [path.name for path in tmp_path.iterdir()] == ["kernel-2.json.slurm"], "nothing is left beside it"


def test_a_state_that_cannot_be_written_is_reported_once_and_the_one_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, write = str(tmp_path / "kernel.json"), os.pwrite
    post = KernelStateFile(file)
    post.write(state="starting", step="S")
    room = len(Path(f"{file}.slurm").read_bytes())

    def full(where: int, data: bytes, at: int) -> int:
        if at >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(where, data[: room - at], at)

    monkeypatch.setattr(os, "pwrite", full)
    for number in range(3):
        assert not post.write(state="running", words=["a longer text"], received=number)
    assert (post.data["state"], read(file)["state"]) == ("running", "starting")
    assert [record.getMessage().count("No space left on device") for record in caplog.records] == [1]
    monkeypatch.setattr(os, "pwrite", lambda where, data, at: write(where, data[:5], at))
    assert post.write(received=4), "by several writes"
    assert (read(file)["state"], read(file)["received"]) == ("running", 4)
    post.close()


def test_a_kernel_is_not_lost_where_no_state_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = KernelStateFile(str(tmp_path / "kernel-1.json"), "/home/me/n.ipynb", "gpu")
    before.write(state="running", step="S")
    before.close()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as there:
        there.setattr(os, "pwrite", full)
        post = KernelStateFile(str(tmp_path / "kernel-2.json"), "/home/me/n.ipynb", "gpu")
        assert post.data.get("step") == "S"
        post.close()
    again = KernelStateFile(str(tmp_path / "kernel-3.json"), "/home/me/n.ipynb", "gpu")
    assert again.data.get("step") == "S"
    again.close()
