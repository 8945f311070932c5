"""Missing system packages: the message names the one command to type."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import pytest

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.embedded.machine import packages
from jupyter_slurm.errors import MissingPackages


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ({"ID": "debian"}, "apt-get install -y --no-install-recommends slurm-wlm munge"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install -y --no-install-recommends slurm-wlm munge"),
        ({"ID": "fedora", "ID_LIKE": "rhel"}, "slurm-wlm, munge"),
        ({}, "slurm-wlm, munge"),
    ],
)
def test_the_command_to_type(release, expected):
    assert expected in packages.command_to_install(["slurm-wlm", "munge"], release)


@pytest.mark.parametrize(("uid", "start"), [(0, "apt-get "), (1000, "sudo apt-get ")])
def test_only_an_ordinary_user_is_told_to_use_sudo(monkeypatch, uid, start):
    monkeypatch.setattr(packages.os, "geteuid", lambda: uid)
    assert packages.command_to_install(["munge"], {"ID": "debian"}).startswith(start)


def test_os_release_is_read_with_its_quotes_and_comments(tmp_path):
    (tmp_path / "os-release").write_text("# comment = 1\nNAME=\"Some Linux\"\nID_LIKE='ubuntu debian'\nID=mint\n")
    read = packages.read_os_release((str(tmp_path / "none"), str(tmp_path / "os-release")))
    assert read == {"NAME": "Some Linux", "ID_LIKE": "ubuntu debian", "ID": "mint"}


def test_a_machine_without_slurm_is_told_what_to_install(monkeypatch, tmp_path, short_tmp):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "SYSTEM_DIRECTORIES", ())
    with pytest.raises(MissingPackages) as caught:
        EmbeddedCluster(directory=short_tmp / "none").start()
    assert caught.value.details["packages"] == ["slurm-wlm", "munge", "util-linux"]
    assert "slurm-wlm munge util-linux" in caught.value.hint or "slurm-wlm, munge, util-linux" in caught.value.hint
    assert not (short_tmp / "none").exists()


def test_the_list_needs_nothing_but_python():
    """Check that the list needs no site-packages and no project package: ``make`` reads it before any installation."""
    path = resources.files("jupyter_slurm.embedded.machine").joinpath("packages.py")
    command = [sys.executable, "-I", "-S", str(path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [
        "slurm-wlm", "munge", "util-linux", "slurmdbd", "mariadb-server",
    ]  # fmt: skip
    without = subprocess.run([*command, "--no-accounting"], capture_output=True, text=True, check=True)
    assert without.stdout.split() == ["slurm-wlm", "munge", "util-linux"]
