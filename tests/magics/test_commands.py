"""Tests of %squeue and the other Slurm commands as magics."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.magics import COMMANDS

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

NAME = "<b>x</b> a|b"


@pytest.fixture
def waiting(kernel: Any, gate: Callable[[str], Path]) -> Any:
    """Provide a running job with a difficult name, in the variable ``waiting``."""
    kernel.ok(f"name = {NAME!r}")
    cell = f"import os, time\nwhile not os.path.exists('{gate('go')}'): time.sleep(0.1)"
    kernel.ok(f"%%sbatch as=waiting -J {{name}}\n{cell}")
    yield waiting
    gate("go").touch()
    kernel.ok("waiting.cancel()")


def test_a_table_comes_back_and_shows_in_both_forms(kernel: Any, waiting: Any) -> None:
    ran = kernel.ok("%squeue --me")
    number = kernel.value("waiting")
    assert number in ran.result["text/plain"]
    assert "&lt;b&gt;x&lt;/b&gt;" in ran.result["text/html"]
    assert "<b>" not in ran.result["text/html"]
    kernel.ok("table = %squeue --me -j {waiting}")
    assert kernel.value("table['JOBID'] == [str(waiting)], len(table)") == "True 1"
    assert kernel.value("table[0]['NAME']") == NAME


def test_ones_own_format_and_quotes_are_kept(kernel: Any, waiting: Any) -> None:
    kernel.ok("text = %squeue -h -j $waiting -o '%i {nobody} \"%T\"'")
    number = kernel.value("waiting")
    kernel.ok("text = %squeue -h -j $waiting -o '%i {nobody}'")
    assert kernel.value("text") == f"{number} {{nobody}}\n"
    shown = kernel.ok("%scontrol show job {waiting.id}").result
    assert f"JobId={number}" in shown["text/plain"]
    assert "text/html" not in shown


def test_scancel_takes_jobs_and_lists(kernel: Any, waiting: Any) -> None:
    ran = kernel.ok("%scancel {waiting}")
    assert ran.result == {}
    assert kernel.value("waiting.wait(check=False).state") == "CANCELLED"


@pytest.mark.root  # a slurmd of another user refuses it
def test_sbcast_copies_a_file_to_the_nodes_of_a_job(
    kernel: Any, waiting: Any, gate: Callable[[str], Path], wait_for: Callable[..., Any]
) -> None:
    wait_for(lambda: kernel.value("waiting.state") == "RUNNING", "the job")
    source = gate("go").parent / "a b.txt"
    source.write_text("for the nodes")
    assert "%sbcast --jobid {job}" in kernel.run(f"%sbcast '{source}' '{source}.copy'").traceback
    kernel.ok(f"source = {str(source)!r}")
    kernel.ok("%sbcast --jobid {waiting} {source} {source + '.copy'}")
    wait_for(Path(f"{source}.copy").exists, "the copy")
    assert Path(f"{source}.copy").read_text() == "for the nodes"
    ran = kernel.run("%sbcast --jobid {waiting} {source} {source + '.copy'}")
    assert "File exists" in ran.traceback


def test_triggers_are_set_listed_and_cleared(kernel: Any, waiting: Any) -> None:
    kernel.ok("%strigger --set --jobid {waiting} --fini --program /bin/true")
    kernel.ok("listed = %strigger --get")
    row = kernel.value("str(listed).splitlines()[-1]").split()
    assert row[1:4] == ["job", kernel.value("waiting"), "fini"]
    kernel.ok(f"%strigger --clear --id {row[0]}")
    kernel.ok("listed = %strigger --get")
    assert "fini" not in kernel.value("str(listed)")


def test_scancel_cancels_nothing_if_a_name_has_no_value(kernel: Any, waiting: Any) -> None:
    ran = kernel.run("%scancel {waiting} {undefined}")
    assert "{undefined} has no value, so `scancel` was not run." in ran.traceback
    assert kernel.value("waiting.state") == "PENDING"


def test_names_of_a_function_are_seen(kernel: Any, waiting: Any) -> None:
    kernel.ok(
        "def ask():\n    inner = waiting\n    return get_ipython().run_line_magic('squeue', '-h -o %i -j {inner}')"
    )
    assert kernel.value("ask() == f'{waiting}\\n'") == "True"


@pytest.mark.parametrize(
    ("line", "error", "said", "step"),
    [
        ("%scontrol show job 99999999", "CommandError", "Invalid job id", "jupyter_slurm.job(99999999)"),
        ("%squeue --no-such-option", "CommandError", "no-such-option", "--help"),
        ("%sacct", "CommandError", "disabled", "jobs()"),
        ("%squeue -o 'open", "UsageError", "not closed", "Close the quote"),
        ("%squeue -j {nothing}", "UsageError", "nothing is None", "value"),
        ("%squeue --me | head", "UsageError", "No shell reads this line", "`%slurm sh squeue --me | head`"),
        ("%sacct -X && date", "UsageError", "&& is an operator", "`%slurm sh sacct -X && date`"),
        ("%squeue -i 1", "UsageError", "never ends", "jobs()"),
        ("%scontrol", "UsageError", "a notebook cannot answer", "%scontrol show job"),
    ],
)
def test_a_failing_command_raises_and_says_what_next(kernel: Any, line: str, error: str, said: str, step: str) -> None:
    kernel.ok("nothing = None")
    ran = kernel.run(line)
    assert ran.error == error
    assert said in ran.traceback
    assert step in ran.traceback
    assert "Traceback" not in ran.traceback


def test_the_line_of_the_hint_does_what_the_user_meant(kernel: Any, gate: Callable[[str], Path]) -> None:
    ran = kernel.run("%sinfo -N -l | head -n 2")
    line = re.search(r"`(%slurm sh [^`]+)`", ran.traceback)
    assert line is not None
    shown = kernel.ok(line[1]).stdout
    assert len(shown.splitlines()) == 2
    assert kernel.ok("%sinfo -h -o '|%P|'").result["text/plain"].startswith("|")


@pytest.mark.parametrize("command", ["sinfo -s", "sdiag", "sprio", "sinfo --help"])
def test_they_run(kernel: Any, command: str) -> None:
    assert kernel.ok(f"%{command}").result["text/plain"].strip()


PARTS = {
    "%%sbatch": ["as=NAME", "wait", "--gpus", "%%sbatch -p gpu --gpus 1", "--cpus-per-task"],
    "%sbatch": ["--wrap"],
    "%slurm": ["%slurm use CLUSTER", "disconnect", "site profile"],
    "%squeue": ["%squeue --me", "to_pandas"],
    "%sacctmgr": ["show associations"],
}
MAGICS = ["%%sbatch", "%sbatch", "%%srun", "%srun", "%%remote", "%remote", "%salloc", "%slurm"]


def asked(kernel: Any, magic: str) -> str:
    """Return the text of ``?``."""
    request = kernel.client.execute(f"{magic}?")
    reply = kernel.client.get_shell_msg(timeout=60)
    while reply["parent_header"]["msg_id"] != request:
        reply = kernel.client.get_shell_msg(timeout=60)
    kernel.pump()
    return str(reply["content"]["payload"][0]["data"]["text/plain"])


@pytest.mark.parametrize("magic", [*MAGICS, *(f"%{command}" for command in COMMANDS)])
def test_help_is_help_with_examples_of_its_own(kernel: Any, magic: str) -> None:
    text = asked(kernel, magic)
    for part in PARTS.get(magic, []):
        assert part in text
    examples = text.partition("\nExamples:\n")[2].split("\n")
    shown = [line.strip() for line in itertools.takewhile(lambda line: not line or line.startswith("    "), examples)]
    assert [line for line in shown if re.match(rf"(\w+ = )?%?{magic}\b", line)], text


def test_every_magic_is_asked_for_help(kernel: Any) -> None:
    ours = "[n for table in get_ipython().magics_manager.magics.values() for n, f in table.items() if 'jupyter_slurm' in f.__module__]"
    assert set(kernel.value(f"*{ours}").split()) == {magic.strip("%") for magic in MAGICS} | set(COMMANDS)


@pytest.mark.slow
@pytest.mark.here_only("it starts a cluster and a kernel of its own")
def test_a_forgotten_job_is_told_with_its_end(
    new_cluster: Any, start_kernel: Any, settings_of: Any, short_path: Path, wait_for: Any
) -> None:
    forgetful = new_cluster(extra=("MinJobAge=2",))
    kernel = start_kernel(
        {**os.environ, **forgetful.env(), **settings_of(short_path, agent_host="inprocess")}, short_path
    )
    try:
        kernel.ok("%load_ext jupyter_slurm")
        kernel.ok("%%sbatch wait as=j\nprint(1)")
        number = kernel.value("j.id")

        def is_forgotten() -> bool:
            argv = ["squeue", "--jobs", number]
            return subprocess.run(argv, env=forgetful.env(), capture_output=True, check=False).returncode != 0

        wait_for(is_forgotten, "the controller forgets the job", timeout=120)
        for line in (f"%squeue -j {number}", f"%scontrol show job {number}"):
            refused = kernel.run(line)
            assert f"Job {number} has left the queue: it ended as COMPLETED." in refused.traceback
            assert f"jupyter_slurm.job({number})" in refused.traceback
    finally:
        kernel.stop()
