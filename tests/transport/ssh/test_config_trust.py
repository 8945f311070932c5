"""Files that decide what runs on this computer: those that other users can change are refused, and nothing of them runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jupyter_slurm.errors import ConfigError
from jupyter_slurm.sites.profile import load_profile
from jupyter_slurm.transport.local import trusted_file
from jupyter_slurm.transport.local.trusted_file import check_trusted
from jupyter_slurm.transport.ssh.config import paramiko_config
from jupyter_slurm.transport.ssh.config.paramiko_config import plain_settings
from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    return own


def evil_config(folder: Path, *lines: str) -> tuple[Path, Path]:
    """Write a configuration that runs a command as soon as it is read; return its path, and the sign of the command."""
    sign, path = folder.parent / "it ran", folder / "config"
    path.write_text("\n".join([f"Match exec \"touch '{sign}'\"", *lines, "Host *", "  User me", ""]))
    path.chmod(0o600)
    return path, sign


@needs_ssh
@pytest.mark.parametrize("who", ["file", "group", "folder", "owner", "link", "include", "known hosts"])
async def test_a_configuration_that_others_can_change_is_refused_before_ssh_reads_it(folder, who):
    other = folder.parent / "of others"
    other.mkdir()
    lines = {"include": [f'Include "{other}/*.conf"'], "known hosts": [f'UserKnownHostsFile "{other}/hosts.conf"']}
    path, sign = evil_config(folder, *lines.get(who, ()))
    if who == "owner":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        os.chown(path, 12345, 12345)
    elif who in ("include", "known hosts"):
        (other / "hosts.conf").touch()
        other.chmod(0o777)
    elif who == "link":
        shutil.move(path, other / "config")
        path.symlink_to(other / "config")
        other.chmod(0o777)
    else:
        (folder if who == "folder" else path).chmod({"file": 0o606, "group": 0o660, "folder": 0o777}[who])
        if who == "group":
            os.chown(path, -1, os.getgid() if os.geteuid() else 12345)
            if os.geteuid():
                pytest.skip("needs root")
    with pytest.raises(ConfigError, match=r"is not used: .* who could have commands run on this computer") as raised:
        await resolve_route("host", config_file=str(path))
    assert "chmod go-w" in str(raised.value.hint) or "of your own" in str(raised.value.hint)
    assert not sign.exists()


@needs_ssh
async def test_a_configuration_of_the_user_is_used(folder):
    path, sign = evil_config(folder, "UserKnownHostsFile /dev/null")
    (host,) = await resolve_route("host", config_file=str(path))
    assert (host.user, sign.exists()) == ("me", True)


def test_without_openssh_the_default_file_is_checked_as_openssh_does(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(paramiko_config, "_SYSTEM", str(folder / "none"))
    (folder / ".ssh").mkdir(mode=0o700)
    config = folder / ".ssh" / "config"
    config.write_text("Host *\n  User me\n")
    assert plain_settings("host", None, None, None, None)["user"] == ["me"]
    config.chmod(0o666)
    with pytest.raises(ConfigError, match="can be changed by other users"):
        plain_settings("host", None, None, None, None)


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_profile_that_others_can_change_is_refused(folder, place):
    profile = folder / "far.toml"
    profile.write_text('[login]\nhost = "far"\n')
    assert load_profile("far", [str(folder)]).host == "far"
    (profile if place == "file" else folder).chmod(0o666 if place == "file" else 0o777)
    with pytest.raises(ConfigError, match=r"The site profile .* is not used"):
        load_profile("far", [str(folder)])


def test_a_profile_of_an_installation_is_refused_only_if_everybody_can_change_it(folder, monkeypatch):
    monkeypatch.setattr(trusted_file.sys, "prefix", str(folder))
    profile = folder / "etc" / "far.toml"
    profile.parent.mkdir()
    profile.write_text('[login]\nhost = "far"\n')
    profile.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(profile, 12345, 12345)
    assert load_profile("far", [str(profile.parent)]).host == "far"
    for opened in (profile, profile.parent):
        before = opened.stat().st_mode
        opened.chmod(0o777)
        with pytest.raises(ConfigError, match=r"The site profile .* is not used"):
            load_profile("far", [str(profile.parent)])
        opened.chmod(before)


def test_a_personal_group_and_a_folder_with_the_sticky_bit_are_no_danger(folder, monkeypatch):
    path = folder / "config"
    path.touch(mode=0o664)
    path.chmod(0o664)
    monkeypatch.setattr(trusted_file, "_is_private_group", lambda group: group == path.stat().st_gid)
    folder.chmod(0o1777)
    check_trusted(str(path), "It")
    check_trusted(str(folder / "missing"), "It")
    folder.chmod(0o777)
    with pytest.raises(ConfigError):
        check_trusted(str(path), "It")
