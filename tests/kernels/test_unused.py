"""Tests of the reason for which the keeper of a finished kernel ended it, as the agent returns it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.services.allocations.kernels import Kernels


class _Files:
    """Transport with one file, which its owner wrote."""

    def __init__(self, content: bytes | None) -> None:
        self._content = content

    async def read_owned(self, path: str, offset: int, limit: int) -> bytes:
        assert path == "/job/keeper.json"
        if self._content is None:
            raise FileNotFoundError(path)
        return self._content[offset:][:limit]


@pytest.mark.parametrize(
    ("note", "unused"),
    [
        ({"over": {"code": 0, "event": "lease_over", "seconds": 60}}, "lease_over"),
        ({"over": {"code": 0, "event": "idle_over"}}, "idle_over"),
        ({"over": {"code": 1, "event": "\x1b[2J"}}, None),
        ({"over": {"code": 1}}, None),
        ({"over": "lease_over"}, None),
        ({"port": 5}, None),
        (None, None),
    ],
)
async def test_the_place_of_a_finished_kernel_says_that_nobody_used_it(note: Any, unused: str | None) -> None:
    client: Any = SimpleNamespace(transport=_Files(None if note is None else json.dumps(note).encode()))
    folder = SimpleNamespace(file=lambda name: f"/job/{name}")
    entry: Any = SimpleNamespace(
        kind="kernel", folder=folder, is_finished=True, state=SimpleNamespace(name="COMPLETED"), allocation="a"
    )
    told = await Kernels(client, SimpleNamespace(), "/home/me").connection_to_api(entry, 0.0)
    assert (told["finished"], told["port"], told["unused"]) == (True, None, unused)
