"""Tests of the descriptions of terminals that a host sends."""

from __future__ import annotations

import pytest

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.terminals.description import terminal_to_api

VALID = {"id": "0123abcd", "title": "12_3", "host": "login1", "started": 1.5}


def test_a_valid_description() -> None:
    assert terminal_to_api(VALID) == {"id": "0123abcd", "job": "12_3", "host": "login1", "started": 1.5}
    assert terminal_to_api({**VALID, "title": ""})["job"] is None


@pytest.mark.parametrize(
    "told",
    [
        [],
        {},
        {**VALID, "id": "../../x"},
        {**VALID, "title": "1\x1b[31m"},
        {**VALID, "host": "a b"},
        {**VALID, "started": float("nan")},
        {**VALID, "started": "now"},
        {**VALID, "started": 10**400},
    ],
)
def test_anything_else_is_refused(told: object) -> None:
    with pytest.raises(TransportError, match="unknown form"):
        terminal_to_api(told)
