"""Tests of the hint for hosts behind different gates with one inner address: names are resolved by the real ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_slurm.errors import HostKeyChanged
from jupyter_slurm.services.connections.host_key_aliases import add_alias_hint
from jupyter_slurm.sites.profile import load_profile

ENTRIES = """\
Host gate-a
    HostName gate-a.example.org
Host gate-b
    HostName gate-b.example.org
Host login-a
    HostName 172.17.0.3
    ProxyJump gate-a
Host login-b
    HostName 172.17.0.3
    ProxyJump gate-b
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(ENTRIES)
    return path


async def hint(folder: Path, config: Path, profiles: dict[str, str], failing: str = "") -> str:
    """Return the hint for a changed key of a host on the way to the first profile."""
    sites = folder / "sites"
    sites.mkdir(exist_ok=True)
    for name, login in profiles.items():
        (sites / f"{name}.toml").write_text(f'[login]\nssh_config = "{config}"\n{login}\n')
    profile = load_profile(next(iter(profiles)), [str(sites)])
    error = HostKeyChanged("Changed.", hint="As before.", host=failing or profile.host)
    await add_alias_hint(error, profile, [str(sites)])
    assert error.hint.endswith("As before.")
    return error.hint.removesuffix("As before.").rstrip()


async def test_an_entry_with_the_same_address_is_named(tmp_path: Path, config: Path) -> None:
    said = await hint(tmp_path, config, {"b": 'host = "login-b"'})
    assert "login-a of your ssh configuration has the same address" in said
    assert f"`HostKeyAlias login-b` below `Host login-b` in {config}" in said


async def test_an_included_entry_is_found(tmp_path: Path, config: Path) -> None:
    outer = tmp_path / "outer"
    outer.write_text(f"Include {config}\n")
    assert "HostKeyAlias login-b" in await hint(tmp_path, outer, {"b": 'host = "login-b"'})


async def test_a_profile_with_the_same_address_is_named(tmp_path: Path, config: Path) -> None:
    config.write_text("")
    profiles = {name: f'host = "10.0.0.3"\njump = ["gate-{name}"]' for name in ("b", "a")}
    said = await hint(tmp_path, config, profiles)
    assert "10.0.0.3 of the profile a has the same address" in said
    for words in ("Host b-login", "HostName 10.0.0.3", "HostKeyAlias b-login"):
        assert f"`{words}`" in said


@pytest.mark.parametrize(
    "change",
    [
        {"172.17.0.3\n    ProxyJump gate-b": "172.17.0.4\n    ProxyJump gate-b"},
        {"ProxyJump gate-b": "ProxyJump gate-a"},
        {"ProxyJump gate-b": "ProxyJump gate-b\n    HostKeyAlias login-b"},
        {"ProxyJump gate-a": "ProxyJump gate-a\n    HostKeyAlias login-a"},
        {"ProxyJump gate-a": "ProxyJump gate-a\n    Port 2222"},
    ],
)
async def test_nothing_is_said_of_other_hosts(tmp_path: Path, config: Path, change: dict[str, str]) -> None:
    """Not of another address or port, of the same host by another name, or where an alias is set already."""
    for old, new in change.items():
        config.write_text(ENTRIES.replace(old, new))
    assert await hint(tmp_path, config, {"b": 'host = "login-b"'}) == ""
