"""The writer of TOML, against Python's own reader."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.sites.shipped import shipped_names, shipped_text
from jupyter_slurm.sites.toml_writer import toml_text, toml_value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = TEXTS | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans()
VALUES = st.recursive(PLAIN, lambda each: st.lists(each, max_size=4) | st.dictionaries(TEXTS, each, max_size=4))


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_what_is_written_is_read_as_the_same(table: dict[str, Any]) -> None:
    written = toml_text(table)
    assert tomllib.loads(written) == table
    assert not written.startswith("\n")


@pytest.mark.parametrize("name", shipped_names())
def test_a_profile_is_written_as_the_same(name: str) -> None:
    table = tomllib.loads(shipped_text(name))
    assert tomllib.loads(toml_text(table)) == table


def test_the_text_is_easy_to_read() -> None:
    table = {
        "title": 'A "site"',
        "login": {"host": "a", "port": 22, "jump": ["b", "c"]},
        "env": {"my env": {"image": "/x.sif", "bind": ["x" * 60, "y" * 60], "on": True, "points": [{"x": 1.5}, {}]}},
        "empty": {},
    }
    assert toml_text(table) == (
        'title = "A \\"site\\""\n\n[login]\nhost = "a"\nport = 22\njump = ["b", "c"]\n\n[env."my env"]\n'
        f'image = "/x.sif"\nbind = [\n    "{"x" * 60}",\n    "{"y" * 60}",\n]\non = true\n'
        "points = [{ x = 1.5 }, {}]\n\n[empty]\n"
    )


def test_what_toml_does_not_know_is_refused() -> None:
    assert math.isnan(tomllib.loads(f"x = {toml_value(math.nan)}")["x"])
    for value in (None, b"bytes", {1, 2}):
        with pytest.raises(TypeError, match="TOML has no value for"):
            toml_text({"key": {"inner": [value]}})
