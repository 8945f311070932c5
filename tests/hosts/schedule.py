"""Scheduler for pytest-xdist that survives the death of a worker in runs by groups or files, and starts long tests early.

At the death of a worker, the original waits for ever. It passes on the dead worker's tests, including finished ones and the test that killed it.
A new worker waits for a second test before it begins its first (pytest-xdist 3.8).

It begins with the groups of most tests, and ends with single tests in the order of their names: at the end, other workers
would wait for a single one that takes minutes. A file with such tests allows them ten minutes or more, by a mark.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling, LoadGroupScheduling

__all__ = ["pytest_xdist_make_scheduler"]


_LONG = re.compile(r"mark\.timeout\((?:[6-9]\d\d|\d{4,})\)")  # seconds


class _Surviving(LoadGroupScheduling):
    def remove_node(self, node: Any) -> str | None:
        work = self.assigned_work.pop(node)
        crashed = next((name for unit in work.values() for name, done in unit.items() if not done), None)
        if crashed is not None:
            for unit in work.values():
                if crashed in unit:
                    unit[crashed] = True  # counts as failed
            self.workqueue.update((scope, unit) for scope, unit in work.items() if not all(unit.values()))
            for other in self.nodes:
                self._reschedule(other)
        return crashed

    def schedule(self) -> None:
        is_first = self.collection is None
        super().schedule()
        if is_first:
            for scope in [scope for scope in self.workqueue if self._is_long(scope)][::-1]:
                self.workqueue.move_to_end(scope, last=False)
        else:
            for node in self.nodes:
                self._reschedule(node)

    def _is_long(self, scope: str) -> bool:
        """Return whether a unit is a single test of a file with long ones."""
        file = Path(self.config.rootpath, scope.partition("::")[0])
        return "::" in scope and file.is_file() and bool(_LONG.search(file.read_text(encoding="utf-8")))


class _SurvivingFiles(_Surviving):
    _split_scope = LoadFileScheduling._split_scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute tests by groups and files, so that other workers run the tests of a dead worker."""
    kinds = {"loadgroup": _Surviving, "loadfile": _SurvivingFiles}
    kind = kinds.get(config.getvalue("dist"))
    return kind(config, log) if kind else None
