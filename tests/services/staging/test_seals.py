"""Tests of seals, which distinguish files written by this machine from others."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.staging.local_path_seal import MachineSeal


def test_a_seal_is_known_again_on_what_was_sealed_here_alone(tmp_path):
    said = ["cluster", ["/home/me/\udcff", "/there", 7]]
    assert not MachineSeal(str(tmp_path / "none")).is_on("0" * 64, said)
    seal = MachineSeal(str(tmp_path / "state")).seal(said)
    assert MachineSeal(str(tmp_path / "state")).is_on(seal, said)
    assert not MachineSeal(str(tmp_path / "state")).is_on(seal, ["cluster", ["/home/me", "/there", 7]])
    for wrong in (None, 7, "", "\udcff", seal[:-1]):
        assert not MachineSeal(str(tmp_path / "state")).is_on(wrong, said)
    MachineSeal(str(tmp_path / "other")).seal("")
    assert not MachineSeal(str(tmp_path / "other")).is_on(seal, said)


def test_two_that_begin_at_once_have_one_key_and_what_others_can_read_is_none(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: MachineSeal(str(tmp_path)).seal("x"), range(64)))) == 1
    (key,) = tmp_path.iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    seal = MachineSeal(str(tmp_path)).seal("x")
    key.chmod(0o644)
    assert not MachineSeal(str(tmp_path)).is_on(seal, "x")
    with pytest.raises(TransportError, match="is not a file of yours"):
        MachineSeal(str(tmp_path)).seal("x")
    key.unlink()
    os.mkfifo(key, 0o600)
    assert not MachineSeal(str(tmp_path)).is_on(seal, "x")
    key.unlink()
    key.symlink_to(Path("/dev/zero"))
    assert not MachineSeal(str(tmp_path)).is_on(seal, "x")
