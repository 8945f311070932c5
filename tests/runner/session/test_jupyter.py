"""Tests of the configuration of a session's Jupyter."""

from __future__ import annotations

import pytest
import zmq
from jupyter_client.manager import KernelManager
from traitlets.config import Config

from jupyter_slurm.runner.session import jupyter


@pytest.mark.parametrize("is_supported", [True, False])
def test_ports_of_kernels_are_encrypted_where_the_client_can(
    monkeypatch: pytest.MonkeyPatch, is_supported: bool
) -> None:
    """With jupyter-client 8.6, jupyter-server 2.20 passes its setting to the kernel's process, which fails."""
    if is_supported:
        monkeypatch.setattr(KernelManager, "transport_encryption", "disabled", raising=False)
    else:
        monkeypatch.delattr(KernelManager, "transport_encryption", raising=False)
    monkeypatch.setattr(zmq, "has", lambda name: name == "curve")
    config = Config()
    exec(jupyter._ENCRYPTED, {"c": config})
    assert ("transport_encryption" in config.MappingKernelManager) == is_supported
