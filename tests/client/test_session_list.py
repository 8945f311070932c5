"""Sessions of several clusters in one list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.client.sessions import session as listing
from jupyter_slurm.errors import ConfigError, TransportError


def cluster_with(name: str, *submitted: float | None) -> Any:
    """Return a cluster whose sessions were submitted at some times."""
    found = [{"label": f"{name}{at}", "submit_time": at} for at in submitted]
    client = SimpleNamespace(get=lambda path, params: found)
    return SimpleNamespace(name=name, client=client, path=lambda *parts: "/".join(parts))


def silent_cluster(name: str) -> Any:
    """Return a cluster whose agent knows no answer."""

    def get(path: str, params: object) -> Any:
        raise TransportError(f"{name} does not answer.", hint="Wait.")

    return SimpleNamespace(name=name, client=SimpleNamespace(get=get), path=lambda *parts: "/".join(parts))


def use_clusters(monkeypatch: pytest.MonkeyPatch, *found: Any) -> None:
    """Let a computer without Slurm have connections to clusters."""

    def current() -> Any:
        raise ConfigError("This computer has no Slurm.", hint="Choose a cluster.")

    monkeypatch.setattr(listing, "current", current)
    monkeypatch.setattr(listing, "is_chosen", lambda: False)
    monkeypatch.setattr(listing, "other_clusters", lambda: [*found])


def test_a_cluster_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_clusters(monkeypatch, silent_cluster("a"), cluster_with("b", 7.0), silent_cluster("c"))
    assert [one._data["label"] for one in listing.sessions()] == ["b7.0"]
    assert capsys.readouterr().err.splitlines() == [
        "Warning: the sessions of a are missing: a does not answer.",
        "Warning: the sessions of c are missing: c does not answer.",
    ]
    use_clusters(monkeypatch, silent_cluster("a"), silent_cluster("c"))
    with pytest.raises(TransportError, match="a does not answer"):
        listing.sessions()


def test_the_latest_session_of_several_clusters_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    use_clusters(monkeypatch, cluster_with("a", 5.0, 1.0, None), cluster_with("b", 7.0, 3.0))
    assert [one._data["label"] for one in listing.sessions()] == ["b7.0", "a5.0", "b3.0", "a1.0", "aNone"]


def test_a_silent_cluster_is_named_beside_the_sessions_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check a login node, whose user has connections to other clusters."""
    monkeypatch.setattr(listing, "current", lambda: cluster_with("local"))
    monkeypatch.setattr(listing, "is_chosen", lambda: False)
    monkeypatch.setattr(listing, "other_clusters", lambda but: [silent_cluster("a"), cluster_with("b", 7.0)])
    assert [one._data["label"] for one in listing.sessions_elsewhere()] == ["b7.0"]
    assert capsys.readouterr().err == "Warning: the sessions of a are missing: a does not answer.\n"
    monkeypatch.setattr(listing, "is_chosen", lambda: True)
    assert not listing.sessions_elsewhere()
    assert capsys.readouterr().err == ""
