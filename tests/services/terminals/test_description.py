"""Tests of the descriptions of terminals that a host sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.terminals.description import terminal_to_api
from jupyter_slurm.services.terminals.targets import node_of

VALID = {"id": "0123abcd", "title": "12_3", "name": "train", "node": "gpu3", "host": "login1", "started": 1.5}


def test_a_valid_description() -> None:
    told = {"id": "0123abcd", "job": "12_3", "name": "train", "node": "gpu3", "host": "login1", "started": 1.5}
    assert terminal_to_api(VALID) == told
    before = {name: value for name, value in VALID.items() if name not in ("name", "node")}  # of an earlier version
    assert terminal_to_api({**before, "title": ""}) == {**told, "job": None, "name": None, "node": None}


def test_a_name_is_shown_without_control_characters() -> None:
    assert terminal_to_api({**VALID, "name": "a\x1b[31m\u202eb"})["name"] == "a[31mb"
    assert len(terminal_to_api({**VALID, "name": "x" * 5000})["name"] or "") <= 200


@pytest.mark.parametrize(
    "told",
    [
        [],
        {},
        {**VALID, "id": "../../x"},
        {**VALID, "title": "1\x1b[31m"},
        {**VALID, "host": "a b"},
        {**VALID, "node": "a\nb"},
        {**VALID, "name": 5},
        {**VALID, "started": float("nan")},
        {**VALID, "started": "now"},
        {**VALID, "started": 10**400},
    ],
)
def test_anything_else_is_refused(told: object) -> None:
    with pytest.raises(TransportError, match="unknown form"):
        terminal_to_api(told)


def test_the_node_of_a_new_job_is_shown_when_it_is_known() -> None:
    entry = SimpleNamespace(reported_nodes=None, latest=None)
    cluster: Any = SimpleNamespace(
        tracker=SimpleNamespace(find={"12": entry}.get), jobs=SimpleNamespace(select_task=lambda reference, one: one)
    )
    assert (node_of(cluster, "12"), node_of(cluster, "13")) == (None, None)
    entry.latest = SimpleNamespace(nodes="gpu[3-4]")
    assert node_of(cluster, "12") == "gpu3"
