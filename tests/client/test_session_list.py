"""Sessions of several clusters in one list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.client.sessions import session as listing
from jupyter_slurm.errors import ConfigError


def cluster_with(name: str, *submitted: float | None) -> Any:
    """Return a cluster whose sessions were submitted at some times."""
    found = [{"label": f"{name}{at}", "submit_time": at} for at in submitted]
    client = SimpleNamespace(get=lambda path, params: found)
    return SimpleNamespace(name=name, client=client, path=lambda *parts: "/".join(parts))


def test_the_latest_session_of_several_clusters_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def current() -> Any:
        raise ConfigError("This computer has no Slurm.", hint="Choose a cluster.")

    monkeypatch.setattr(listing, "current", current)
    monkeypatch.setattr(listing, "is_chosen", lambda: False)
    monkeypatch.setattr(
        listing, "other_clusters", lambda: [cluster_with("a", 5.0, 1.0, None), cluster_with("b", 7.0, 3.0)]
    )
    assert [one._data["label"] for one in listing.sessions()] == ["b7.0", "a5.0", "b3.0", "a1.0", "aNone"]
