"""Tests of many magics in a row, and of a silent Slurm: every wait has a message, with the next step."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]


def test_a_whole_notebook_asks_at_once_a_loop_waits_and_says_so_and_scancel_never_waits(
    kernel: Any, wait_for: Callable[..., Any]
) -> None:
    ran = kernel.ok("for _ in range(15): get_ipython().run_line_magic('squeue', '-h')")
    assert "waits" not in ran.stderr
    for cell, name in [("%squeue -h", "squeue"), ("%sbatch --test-only --wrap true", "sbatch --test-only")]:
        request = kernel.begin(cell)
        wait_for(lambda request=request: kernel.pump() or _told(kernel, request), "the cell says that it waits")
        kernel.manager.interrupt_kernel()
        ran = kernel.end(request)
        said = rf"{name} waits \d+ s, to limit the load on Slurm\. jupyter_slurm\.jobs\(\) answers at once\.\n"
        assert re.fullmatch(said, ran.stderr)
        assert (ran.error, ran.traceback) == ("WaitInterrupted", f"Interrupted: {name} was not run.")
    ran = kernel.ok("for _ in range(40): get_ipython().run_line_magic('scancel', '99999999')")
    assert "waits" not in ran.stderr


def _told(kernel: Any, request: str) -> bool:
    return any("waits" in m["content"].get("text", "") for m in kernel.under(request))


def test_what_is_mistyped_takes_nothing_from_what_one_may_ask(bare_kernel: Any) -> None:
    # A loop of ten seconds would report its wait: the agent is the one of the test before.
    bare_kernel.ok("%load_ext jupyter_slurm")
    code = "try:\n    get_ipython().run_line_magic('squeue', '--no-such')\nexcept Exception as e:\n    print(e)\n"
    for _ in range(2):
        ran = bare_kernel.ok(code)
    assert "unrecognized option" in ran.stdout
    assert "waits" not in ran.stderr  # the second follows the first without a message


@pytest.mark.here_only("it is about the way from the agent to the notebook")
def test_a_cell_that_prints_a_byte_now_and_then_is_followed_through_every_silence(
    kernel: Any, gate: Callable[[str], Path], wait_for: Callable[..., Any]
) -> None:
    """Each silence is longer than the kernel's limit for signs of life: the follower reconnects, and reads on."""
    kernel.ok(
        "from jupyter_slurm.agent.client import agent_client as client\nkept, client._STREAM_TIMEOUT_S = client._STREAM_TIMEOUT_S, 0.4"
    )
    kernel.ok(
        "reads, real = [], client.AgentClient.astream\n"
        "def astream(self, path, params=None):\n    reads.append(dict(params or {}))\n    return real(self, path, params)\n"
        "client.AgentClient.astream = astream"
    )
    gates = [gate(letter) for letter in "abc"]
    ran = kernel.ok(
        f"%%sbatch as=slow python=/usr/bin/python3\nimport os, time\nfor path in {[str(one) for one in gates]}:\n"
        "    while not os.path.exists(path): time.sleep(0.05)\n    print(path[-1], end='', flush=True)"
    )
    wait_for(lambda: kernel.value("slow.state") == "RUNNING", "it runs")
    for number, one in enumerate(gates):
        before = int(kernel.value("len(reads)"))
        wait_for(lambda before=before: int(kernel.value("len(reads)")) >= before + 2, "two silences")
        one.touch()
        wait_for(lambda number=number: "abc"[: number + 1] in kernel.text(ran.display), "the byte")
    assert kernel.value("slow.wait().stdout") == "abc"
    assert kernel.text(ran.display).count("abc") == 1
    assert kernel.value("reads[-1]['stdout']") in ("2", "3")  # continues at the same position
    kernel.ok("client._STREAM_TIMEOUT_S, client.AgentClient.astream = kept, real")


@pytest.fixture
def slurm_conf(kernel: Any) -> Any:
    """Set another slurm.conf in the kernel, or none; restore the old one afterwards."""
    before = kernel.value("__import__('os').environ['SLURM_CONF']")

    def use(path: str | None) -> None:
        change = "del os.environ['SLURM_CONF']" if path is None else f"os.environ['SLURM_CONF'] = {path!r}"
        kernel.ok(f"import os; {change}")

    yield use
    kernel.ok(f"import os; os.environ['SLURM_CONF'] = {before!r}")


@pytest.mark.here_only("SLURM_CONF of this machine leads nowhere there")
@pytest.mark.parametrize("cell", ["%squeue", "%sinfo", "%scancel 3", "%%sbatch\nprint(1)"])
def test_without_a_slurm_conf_it_is_said_what_to_set(kernel: Any, slurm_conf: Any, cell: str) -> None:
    if Path("/etc/slurm/slurm.conf").exists():
        pytest.skip("Slurm is found without SLURM_CONF here")
    slurm_conf(None)
    ran = kernel.run(cell)
    assert ran.error == "ConfigError"
    assert "Slurm is not found" in ran.traceback
    assert "set SLURM_CONF" in ran.traceback
    assert "--help" not in ran.traceback


@pytest.mark.here_only("SLURM_CONF of this machine leads nowhere there")
def test_a_controller_that_is_away_is_told_in_the_words_of_jobs(
    kernel: Any, slurm_conf: Any, cluster: Any, tmp_path: Path
) -> None:
    dead = tmp_path / "etc"
    shutil.copytree(Path(cluster.slurm_conf).parent, dead)
    text = (dead / "slurm.conf").read_text()
    (dead / "slurm.conf").write_text(re.sub(r"(?m)^SlurmctldPort=.*", "SlurmctldPort=1", text))
    slurm_conf(str(dead / "slurm.conf"))
    ran = kernel.run("%squeue -h")
    assert ran.error == "ControllerError"
    assert "Slurm does not answer" in ran.traceback
    assert "Jobs continue without the controller" in ran.traceback
    assert "--help" not in ran.traceback


@pytest.mark.parametrize("line", ["%sacctmgr show qos", "%sreport cluster utilization", "%sacct"])
def test_where_there_is_no_accounting_jobs_is_proposed(kernel: Any, line: str) -> None:
    ran = kernel.run(line)
    assert ran.error == "CommandError"
    assert "no slurmdbd" in ran.traceback
    assert "jupyter_slurm.jobs()" in ran.traceback
