"""The runner, as a job would start it: by its path, with an interpreter that has nothing of ours."""

import json
import os
import subprocess
import sys
from importlib import resources

import pytest

RUNNER = str(resources.files("jupyter_slurm.runner").joinpath("cell.py"))


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "events").mkdir()

    def run(source, *args, job="7", python=sys.executable, **env):
        record = {"key": "k", "events": str(tmp_path / "events"), "cell": {"source": source, "filename": "<cell>"}}
        (folder / "job.json").write_text(json.dumps(record))
        environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job, **env}
        command = [python, "-I", "-u", RUNNER, str(folder), *args]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)

    run.folder, run.events = folder, tmp_path / "events"
    return run


def test_cell_runs_as_a_notebook_cell_does(run):
    done = run("import sys, asyncio\nawait asyncio.sleep(0)\nprint(sys.argv[1:], __name__)\n6 * 7", "a", "b c")
    assert done.stdout == "['a', 'b c'] __main__\n42\n"
    assert done.returncode == 0
    end = json.loads((run.folder / "end.json").read_text())
    assert (end["job"], end["exit_code"], end["format"]) == ("7", 0, 1)
    assert sorted(os.listdir(run.events)) == ["k.ended", "k.started"]


def test_value_of_the_last_line_is_silent_with_a_semicolon(run):
    assert run("1 + 1;").stdout == ""


def test_traceback_shows_the_cells_own_lines_only(run):
    done = run("def half(x):\n    return x / 0\n\nhalf(3)\n")
    assert done.returncode == 1
    assert "return x / 0" in done.stderr
    assert "half(3)" in done.stderr
    assert "cell.py" not in done.stderr
    assert json.loads((run.folder / "end.json").read_text())["exit_code"] == 1


@pytest.mark.parametrize(
    ("source", "code"), [("raise SystemExit", 0), ("import sys; sys.exit(5)", 5), ("raise SystemExit('no')", 1)]
)
def test_exit_codes_are_the_cells(run, source, code):
    assert run(source).returncode == code


def test_second_job_with_the_same_directory_does_nothing(run):
    run("open('ran', 'a').write('x')")
    second = run("open('ran', 'a').write('x')", job="8")
    assert second.returncode == 0
    assert "does nothing" in second.stderr
    assert (run.folder.parent / "ran").read_text() == "x"


def test_requeued_job_runs_again(run):
    run("open('ran', 'a').write('x')")
    run("open('ran', 'a').write('x')", SLURM_RESTART_COUNT="1")
    assert (run.folder.parent / "ran").read_text() == "xx"
    assert json.loads((run.folder / "end.json").read_text())["restarts"] == 1


def test_tasks_of_an_array_share_the_directory(run):
    for task in ("1", "2"):
        env = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": task}
        done = run("import os; print(os.environ['SLURM_ARRAY_TASK_ID'])", job=f"1{task}", **env)
        assert done.stdout == f"{task}\n"
    assert (run.folder / "end.1.json").exists()
    assert (run.folder / "end.2.json").exists()


def test_end_is_written_after_everything_else_of_the_cell(run):
    source = (
        "import atexit, os, threading, time\n"
        f"end = {str(run.folder / 'end.json')!r}\n"
        "atexit.register(lambda: print('atexit', os.path.exists(end)))\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread', os.path.exists(end)))).start()\n"
    )
    assert run(source).stdout == "thread False\natexit False\n"
    assert (run.folder / "end.json").exists()


def test_forked_child_does_not_end_the_job(run):
    done = run("import os, sys\npid = os.fork()\nif pid == 0: sys.exit(0)\nos.waitpid(pid, 0)\nsys.exit(3)")
    assert done.returncode == 3
    assert json.loads((run.folder / "end.json").read_text())["exit_code"] == 3


def test_output_that_cannot_be_encoded_does_not_end_the_cell(run):
    done = run("print('\\udcff é')\nprint('after')", PYTHONIOENCODING="ascii")
    assert "after" in done.stdout


def test_missing_events_folder_is_no_reason_to_fail(run):
    run.events.rmdir()
    assert run("print(1)").returncode == 0
