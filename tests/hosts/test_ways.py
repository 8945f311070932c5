"""Tests of the choice of what `make test` repeats over SSH."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ssh_hosts import ways


class Item:
    """A collected test, with its marks."""

    def __init__(self, name: str, stash: pytest.Stash, way: str | None = None, *marks: str) -> None:
        self.nodeid, self.config, self.marks = f"test_a.py::{name}", SimpleNamespace(stash=stash), [*marks]
        self.callspec = SimpleNamespace(params={"way": way} if way else {})

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)


def test_a_repetition_has_the_first_parameters_by_day_and_the_others_at_night() -> None:
    stash = pytest.Stash()
    items = [
        Item("test_one[local-1]", stash, "local"),
        Item("test_one[local-2]", stash, "local"),
        Item("test_one[openssh-1]", stash, "openssh"),
        Item("test_one[openssh-2]", stash, "openssh"),
        Item("test_one[paramiko-1]", stash, "paramiko"),
        Item("test_other[openssh-2]", stash, "openssh"),
        Item("test_each[openssh-1]", stash, "openssh", "each_case"),
        Item("test_each[openssh-2]", stash, "openssh", "each_case"),
        Item("test_here[2]", stash),
    ]
    for item in items:
        ways.pytest_itemcollected(item)  # type: ignore[arg-type]
    assert [item.nodeid for item in items if "nightly" in item.marks] == ["test_a.py::test_one[openssh-2]"]


@pytest.mark.parametrize(
    ("marked", "by_day"),
    [((), ()), (("paramiko",), ("paramiko",)), (("paramiko", "openssh"), ("paramiko", "openssh"))],
)
def test_a_mark_names_the_carriers_by_day(marked: tuple[str, ...], by_day: tuple[str, ...]) -> None:
    mark = SimpleNamespace(args=marked)
    made: Any = SimpleNamespace(definition=SimpleNamespace(get_closest_marker=lambda name: mark))
    assert ways._by_day(made, ways.CARRIERS) == by_day


def test_without_a_mark_it_is_one_carrier() -> None:
    definition = SimpleNamespace(get_closest_marker=lambda name: None, originalname="test_one")
    made: Any = SimpleNamespace(definition=definition)
    assert len(ways._by_day(made, ways.CARRIERS)) == 1
