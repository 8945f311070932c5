"""What a front leaves beside the connection file is there for the next one, whatever the one before does meanwhile."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from jupyter_slurm.kernels.signpost import Signpost, read


def test_a_signpost_that_the_front_before_removes_meanwhile_is_put_up_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "kernel.json")
    before, lock = Signpost(file), fcntl.flock
    before.write(state="running")

    def ends_first(*asked: int) -> None:
        if before.data:
            before.remove()
            before.close()
        lock(*asked)

    monkeypatch.setattr(fcntl, "flock", ends_first)
    post = Signpost(file)
    assert post.data == {}, "what was removed leads nowhere"
    post.write(state="starting")
    assert read(file)["state"] == "starting"
    post.close()
