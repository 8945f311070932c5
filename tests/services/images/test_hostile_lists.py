"""Tests of lists of images and environments that a cluster makes up: nothing breaks, and no number is absurd."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from jupyter_slurm.errors import CommandError, UsageError
from jupyter_slurm.transport.base import Completed

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("the cluster itself lies")]

IMAGE = {"image": "a", "made": "today", "size": -1, "path": 3, "node": [], "shared": "yes"}
LIES = (
    [],
    {},
    {"images": "x", "environments": 3, "removed": {"a": 1}, "nodes": [3], "error": []},
    {
        "folder": 7,
        "images": ["x", {"image": 1}, IMAGE, {"image": "b", "made": 10**17}],
        "environments": [[], {"name": "e", "path": "/", "made": 10**17, "packages": "all"}],
        "removed": ["a", 3],
    },
    {"images": [{"image": "c", "made": 10**400}], "environments": [{"name": "e", "path": "/", "made": 10**400}]},
    {"images": [{"image": "c", "made": float("nan")}], "environments": [{"name": "e", "path": "/", "made": 1e308}]},
)


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
async def test_lists_that_a_cluster_makes_up(desk: Any, monkeypatch: pytest.MonkeyPatch, lie: Any) -> None:
    images, environments = desk.core.images, desk.core.environments
    await images.list_to_api(desk.id)  # installs the runner

    async def run(*_: Any, **__: Any) -> Completed:
        return Completed(0, json.dumps(lie).encode(), b"")

    monkeypatch.setattr(desk.core.cluster(desk.id).client.transport, "run", run)
    answers = []
    for ask in (
        lambda: images.list_to_api(desk.id),
        lambda: images.remove(desk.id, "a"),
        lambda: environments.list_to_api(desk.id),
        lambda: environments.remove(desk.id, "e"),
    ):
        with contextlib.suppress(CommandError, UsageError):
            answers.append(await ask())
    text = json.dumps(answers, ensure_ascii=False, allow_nan=False)
    assert "100000000000000000" not in text
