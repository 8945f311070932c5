"""What pytest-xdist does when a worker of a run by groups or files dies: it went on to wait for ever.

It hands on what that worker had, with what was done already and the very test that it died of; and a new worker waits
for a second test before it begins with its first one (pytest-xdist 3.8).
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling, LoadGroupScheduling

__all__ = ["pytest_xdist_make_scheduler"]


class _Surviving(LoadGroupScheduling):
    def remove_node(self, node: Any) -> str | None:
        work = self.assigned_work.pop(node)
        crashed = next((name for unit in work.values() for name, done in unit.items() if not done), None)
        if crashed is not None:
            for unit in work.values():
                if crashed in unit:
                    unit[crashed] = True  # it counts as failed
            self.workqueue.update((scope, unit) for scope, unit in work.items() if not all(unit.values()))
            for other in self.nodes:
                self._reschedule(other)
        return crashed

    def schedule(self) -> None:
        is_first = self.collection is None
        super().schedule()
        if not is_first:
            for node in self.nodes:
                self._reschedule(node)


class _SurvivingFiles(_Surviving):
    _split_scope = LoadFileScheduling._split_scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute by groups, and by files, so that the tests of a worker that died are run by others."""
    kinds = {"loadgroup": _Surviving, "loadfile": _SurvivingFiles}
    kind = kinds.get(config.getvalue("dist"))
    return kind(config, log) if kind else None
