"""Tests of the state file that a proxy leaves for the next one, whatever the old proxy does meanwhile."""

from __future__ import annotations

import fcntl
import secrets
from pathlib import Path

import pytest

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
