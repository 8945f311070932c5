"""A hostile job: what comes back from it runs nothing on this computer, unless its cluster is trusted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.ways import Way

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh")]

HERE = f"python={sys.executable}"
_HOSTILE = """
import os
from IPython.display import display

class Forged:
    def __reduce__(self):
        return os.system, ("touch {ran}",)

bad, good, lazy = Forged(), {{"loss": [0.5]}}, range(3)
display({{"application/javascript": "alert(1)", "text/plain": "a script"}}, raw=True)
display({{"text/html": "<table><tr><td>1</td></tr></table><script>alert(1)</script>"}}, raw=True)
"""


def _trust(kernel: Any, setting: str) -> None:
    kernel.ok(f"from jupyter_slurm.client.settings import settings\nsettings().trust = {setting!r}")


def test_nothing_of_a_hostile_job_runs_unless_its_cluster_is_trusted(kernel: Any, way: Way, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    source = _HOSTILE.format(ran=ran)
    _trust(kernel, "ask")
    done = kernel.ok(f"%%sbatch wait out=bad,good,lazy as=hostile {HERE}{source}")
    key = kernel.value("hostile.key")
    kinds = ("display_data", "update_display_data")
    texts = [message["content"]["data"] for message in done.messages if message["msg_type"] in kinds]
    scripts = [data for data in texts if "application/javascript" in data or "<script" in data.get("text/html", "")]
    if not way.is_remote:  # the job is this user's own, with the same files
        assert ran.exists()
        assert scripts
        assert kernel.value("lazy") == "range(0, 3)"
        return
    assert not ran.exists()
    assert not scripts
    assert any("Not shown: application/javascript" in data.get("text/plain", "") for data in texts)
    assert any("<td>1</td>" in data.get("text/html", "") for data in texts)
    assert "bad was not returned: it is a pickle" in done.stderr
    assert 'trust = "always"' in done.stderr
    assert kernel.value("good") == "{'loss': [0.5]}"
    assert kernel.run("lazy").error == "NameError"
    failed = kernel.run("hostile.outputs['lazy']")
    assert failed.error == "JobError"
    assert "explanation/trust" in failed.traceback
    _trust(kernel, "never")
    again = f"__import__('jupyter_slurm').job({key!r}).outputs"
    kernel.answer = lambda: "yes"
    try:
        assert kernel.value(f"sorted({again})") == "['good']"
        assert not kernel.asked
        _trust(kernel, "ask")
        kernel.answer = lambda: "no"
        assert kernel.value(f"sorted({again})") == "['good']"
        assert (len(kernel.asked), ran.exists()) == (1, False)
        kernel.restart()  # a no holds for the kernel
        _trust(kernel, "ask")
        kernel.answer = lambda: "yes"
        assert kernel.value(f"{again}['lazy']") == "range(0, 3)"
        assert "Trust the cluster far" in kernel.asked[-1]
        assert ran.exists()
        count = len(kernel.asked)
        ran.unlink()
        kernel.ok(f"%%sbatch wait out=bad as=hostile {HERE}{source}")
        assert ran.exists()
        assert len(kernel.asked) == count
    finally:
        kernel.answer = None
