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


def by_day(
    *marks: str, args: tuple[str, ...] = (), name: str = "test_one", fixtures: tuple[str, ...] = ("way",)
) -> Any:
    definition = SimpleNamespace(
        get_closest_marker=lambda mark: SimpleNamespace(args=args) if mark in marks else None, originalname=name
    )
    made: Any = SimpleNamespace(definition=definition, fixturenames=fixtures)
    return ways._by_day(made, ways.CARRIERS)


@pytest.mark.parametrize("carriers", [(), ("paramiko",), ("paramiko", "openssh")])
def test_a_mark_names_the_carriers_by_day(carriers: tuple[str, ...]) -> None:
    assert by_day("by_day", args=carriers) == ("local", *carriers)


def test_without_a_mark_a_test_has_one_route_by_day() -> None:
    chosen = [by_day(name=f"test_{number}") for number in range(100)]
    assert set(chosen) == {("local",), ("paramiko",), ("openssh",)}
    assert 30 < chosen.count(("local",)) < 70


def test_what_differs_by_its_parameters_or_its_carrier_stays_local_or_has_one_carrier_besides() -> None:
    assert by_day("parametrize") == by_day("here_only") == ("local",)
    assert len(by_day("parametrize", "each_case")) == 2
    assert len(by_day(fixtures=("remote_carrier",))) == 2
