"""Tests of the same cells without a browser: nbclient, and IPython in a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from notebooks import new_notebook
from ssh_hosts.ways import Way

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh"), pytest.mark.by_day()]


def test_a_notebook_keeps_the_last_drawing(
    environment: dict[str, str], home: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook = new_notebook(
        "%load_ext jupyter_slurm",
        "%%sbatch as=job\n#!/bin/bash\nfor i in 1 2 3; do echo step $i; sleep 0.2; done",
        "finished = job.wait()",
        "%%sbatch wait\nprint('python here')",
    )
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(home)}}).execute()
    script, (*said, waited) = notebook.cells[1].outputs, notebook.cells[3].outputs
    assert len(script) == 1
    assert [output["text"].split(":")[0] for output in said] == (["Python cells on far"] if way.is_remote else [])
    assert script[0]["data"]["text/plain"].endswith("step 1\nstep 2\nstep 3")
    assert "COMPLETED" in script[0]["data"]["text/plain"]
    assert "python here" in waited["data"]["text/html"]
    assert notebook.cells[2].outputs == []


def _in_a_terminal(code: str, environment: dict[str, str], home: Path) -> subprocess.CompletedProcess[str]:
    """Type lines into IPython without a notebook."""
    return subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"],
        env={**os.environ, **environment, "TERM": "dumb"},
        input=code,
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        timeout=120,
    )


def test_a_terminal_prints_through(environment: dict[str, str], home: Path) -> None:
    code = (
        "%load_ext jupyter_slurm\n"
        'cell = \'import sys\\nprint("to stdout")\\nprint("to stderr", file=sys.stderr)\'\n'
        "job = get_ipython().run_cell_magic('sbatch', 'wait', cell)\n"
        "job\n%sinfo\nimport jupyter_slurm\njupyter_slurm.monitor()\n"
        "get_ipython().run_cell_magic('sbatch', 'wait', '#!/bin/sh\\necho its last words; exit 3\\n')\n"
        "jupyter_slurm.jobs()[0].wait()\n"
    )
    done = _in_a_terminal(code, environment, home)
    assert re.search(r"Out\[\d+\]: \nJOBID +NAME +STATE", done.stdout, re.MULTILINE), done.stdout
    assert "to stdout\n" in done.stdout
    assert "to stderr\n" in done.stderr
    assert "COMPLETED" in done.stdout
    assert "devwork*" in done.stdout
    assert "<div" not in done.stdout
    assert "<div" not in done.stderr
    # The error repeats no output that was printed above it. The error of another wait, which prints nothing, has it.
    _, failed, again = done.stdout.split("JobFailed: ")
    assert failed.startswith("Job "), failed
    assert "exit code 3" in failed.split("\n")[0]
    assert "its last words" not in failed
    assert "its last words" in again


def test_a_terminal_says_what_a_job_waits_for(environment: dict[str, str], home: Path) -> None:
    code = (
        "%load_ext jupyter_slurm\n"
        "get_ipython().run_cell_magic('sbatch', 'wait --begin now+5', '#!/bin/sh\\necho over')\n"
        "for _ in '12': get_ipython().run_cell_magic('sbatch', '-J looped', '#!/bin/sh')\n\n"
    )
    done = _in_a_terminal(code, environment, home)
    assert re.search(r"^Job \d+ \(cell.sh\): PENDING", done.stderr, re.MULTILINE), done.stderr
    assert done.stderr.count(": PENDING\n") == 1  # printed once, however often it is received
    assert len(re.findall(r"Job \d+ \(looped\): PENDING", done.stdout)) == 2


_RICH = (
    "class Rich:\n    def _repr_html_(self): return '<b>rich</b>'\n    def __repr__(self): return 'in words'\n"
    "print('first')\ndisplay(Rich())\nprint('then')"
)


def test_a_notebook_that_is_executed_keeps_what_a_cell_showed(
    environment: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook = new_notebook("%load_ext jupyter_slurm", f"%%sbatch wait\n{_RICH}")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(home)}}).execute()
    job, shown, then = (output for output in notebook.cells[1].outputs if output["output_type"] != "stream")
    assert "COMPLETED" in job["data"]["text/plain"]
    assert job["data"]["text/plain"].endswith("\nfirst")
    assert then["data"]["text/plain"] == "then"
    assert shown["data"] == {"text/html": "<b>rich</b>", "text/plain": "in words"}
    nbformat.validate(notebook)


def test_a_terminal_prints_what_stands_for_rich_output(environment: dict[str, str], home: Path) -> None:
    code = f"%load_ext jupyter_slurm\njob = get_ipython().run_cell_magic('sbatch', 'wait', {_RICH!r})\n"
    done = _in_a_terminal(code, environment, home)
    assert re.search(r"\bfirst\n(?s:.*)\bin words\n", done.stdout), done.stdout
    assert "<b>" not in done.stdout
