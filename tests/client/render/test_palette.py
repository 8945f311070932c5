"""Colours of job states: one palette for cards, widgets and the panel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.render.job_card import state_as_html

STYLE = Path(__file__).parents[3] / "labextension" / "style"
BADGE = r'\[data-kind="{kind}"\] \.jp-Slurm-badge[^{{]*\{{\s*border-color: var\(--jp-([\w-]+)\)'
CHIP = r'\.jp-Slurm-chip\[data-kind="{kind}"\] \{{\s*border-left-color: var\(--jp-([\w-]+)\)'
STATES = {"running": "RUNNING", "pending": "PENDING", "done": "COMPLETED", "failed": "FAILED"}


def card_colour(**job: Any) -> str:
    found = re.search(r"--jp-([\w-]+)", state_as_html({"finished": True, **job}))  # type: ignore[typeddict-item]
    assert found
    return found[1]


@pytest.mark.parametrize("kind", STATES)
def test_a_state_has_one_colour_in_cards_and_in_the_panel(kind: str) -> None:
    card = card_colour(state=STATES[kind], finished=kind in ("done", "failed"))
    for sheet, pattern in (("base.css", BADGE), ("table.css", CHIP)):
        found = re.search(pattern.format(kind=kind), (STYLE / sheet).read_text("utf-8"))
        assert found
        assert found[1] == card


def test_the_end_of_a_failed_session_has_the_colour_of_a_failure() -> None:
    sheet = (STYLE / "base.css").read_text("utf-8")
    found = re.search(r'\.jp-Slurm-steps li\[data-kind="failed"\] \{\s*border-color: var\(--jp-([\w-]+)\)', sheet)
    assert found
    assert found[1] == card_colour(state="FAILED")


def test_a_cancelled_job_is_no_failure() -> None:
    assert card_colour(state="CANCELLED") == "ui-font-color2"
    assert card_colour(state="CANCELLED") != card_colour(state="FAILED")
