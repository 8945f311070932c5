"""The runner, as a job would start it: by its path, with an interpreter without the package."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from importlib import resources
from pathlib import Path

import pytest
from hostile_folder import fill

RUNNER = str(resources.files("jupyter_slurm.runner.cell").joinpath("run.py"))


@pytest.fixture(params=["ipython", "plain"])
def run(tmp_path, request):
    """``run(source, *arguments, job=…, **environment)``: under IPython, and without anything but Python's own library."""
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "events").mkdir()

    is_plain = request.param == "plain"

    def run(source, *args, job="7", values=None, **env):
        cell = {"source": source, "filename": "<cell>"}
        record = {"key": "k", "events": str(tmp_path / "events"), "cell": cell, "values": values}
        (folder / "job.json").write_text(json.dumps(record))
        environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job, **env}
        command = [sys.executable, "-I", *(["-S"] if is_plain else []), "-u", RUNNER, str(folder), *args]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
        done.stderr = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
        return done

    def shown(task=""):
        """Return the messages of the record, without the headers."""
        lines = (folder / f"display{task}.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["format"] == 1
        return [message for line in lines if "format" not in (message := json.loads(line))]

    run.folder, run.events, run.shown, run.is_plain = folder, tmp_path / "events", shown, is_plain
    return run


def test_cell_runs_as_a_notebook_cell_does(run):
    done = run("import sys, asyncio\nawait asyncio.sleep(0)\nprint(sys.argv[1:], __name__)\n6 * 7", "a", "b c")
    assert done.stdout == "['a', 'b c'] __main__\n42\n"
    assert done.returncode == 0
    end = json.loads((run.folder / "end.json").read_text())
    assert (end["job"], end["exit_code"], end["format"]) == ("7", 0, 1)
    assert sorted(os.listdir(run.events)) == ["k.ended", "k.started"]


def test_a_cell_has_a_loop_if_it_awaits_something_and_is_told_so_if_not(run):
    assert run("import asyncio\ntask = asyncio.create_task(asyncio.sleep(0, 5))\nawait task").stdout == "5\n"
    (run.folder / "claim").unlink()
    done = run(
        "import asyncio\nasync def late(): await asyncio.sleep(60)\n"
        "task = asyncio.create_task(late())\nawait asyncio.sleep(0)"
    )
    assert done.returncode == 0
    assert done.stderr.startswith("Not finished when the cell ended, dropped: late. ")
    (run.folder / "claim").unlink()
    done = run("import asyncio\nasyncio.create_task(asyncio.sleep(0))\n")
    assert done.returncode == 1
    assert "`await` the result of create_task() or gather()" in done.stderr
    (run.folder / "claim").unlink()
    assert run("import asyncio\nasyncio.run(asyncio.sleep(0, 7))").stdout == "7\n"


def test_value_of_the_last_line_is_silent_with_a_semicolon(run):
    assert run("1 + 1;").stdout == ""


def test_annotations_are_values_unless_the_cell_says_otherwise(run):
    assert run("class A: x: int\nA.__annotations__['x'] is int").stdout == "True\n"
    (run.folder / "claim").unlink()
    assert (
        run("from __future__ import annotations\nclass A: x: Nowhere\nA.__annotations__").stdout == "{'x': 'Nowhere'}\n"
    )


def test_traceback_shows_the_cells_own_lines_only(run):
    done = run("def half(x):\n    return x / 0\n\nhalf(3)\n")
    assert done.returncode == 1
    assert "return x / 0" in done.stderr
    assert "half(3)" in done.stderr
    assert "cell/run.py" not in done.stderr
    assert json.loads((run.folder / "end.json").read_text())["exit_code"] == 1


@pytest.mark.parametrize(
    ("source", "code"), [("exit()", 0), ("exit(4)", 4), ("import sys; sys.exit(5)", 5), ("raise SystemExit('no')", 1)]
)
def test_exit_codes_are_the_cells(run, source, code):
    site = "import site; site.setquit()\n" if run.is_plain else ""
    assert run(site + source).returncode == code


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


RICH = (
    "class Rich:\n    def __init__(self, text): self.text = text\n"
    "    def _repr_html_(self): return f'<b>{self.text}</b>'\n    def __repr__(self): return self.text\n"
)


def test_what_is_only_text_is_printed_and_the_rest_recorded(run):
    done = run(RICH + "display('text')\ndisplay(Rich('one'))\nRich('two')")
    assert done.stdout == "'text'\n"
    assert [(m["type"], m["data"]["text/html"], m["data"]["text/plain"]) for m in run.shown()] == [
        ("display", "<b>one</b>", "one"),
        ("display", "<b>two</b>", "two"),
    ]
    assert [m["at"] for m in run.shown()] == [{"stdout": None, "stderr": None}] * 2  # pipes, here
    assert (run.folder / "display.jsonl").stat().st_mode & 0o777 == 0o600


def test_display_is_updated_by_its_id(run):
    run(
        RICH
        + "h = display(1, display_id=True)\nh.update(Rich('x'))\ndisplay(Rich('y'), display_id='mine', update=True)"
    )
    first, second, third = run.shown()
    assert (first["type"], second["type"], third["type"]) == ("display", "update", "update")
    assert first["id"] == second["id"] != third["id"] == "mine"


def test_text_without_displays_leaves_no_record(run):
    assert run("print(1)\n2").stdout == "1\n2\n"
    assert not (run.folder / "display.jsonl").exists()


def test_a_requeued_job_goes_on_after_half_a_line(run):
    (run.folder / "display.jsonl").write_text('{"format":1}\n{"type":"disp')
    run(RICH + "Rich('after')", SLURM_RESTART_COUNT="1")
    lines = (run.folder / "display.jsonl").read_text().splitlines()
    assert [json.loads(line).get("restarts") for line in lines[2:]] == [1, None]
    assert "after" in lines[3]


def test_a_record_is_bounded_and_says_so(run):
    large = RICH + "Rich('a' * 17_000_000)\n"
    done = run(large + "for i in range(6): display(Rich('b' * 7_000_000))\nprint('end')")
    assert done.stdout.endswith("end\n")
    assert (run.folder / "display.jsonl").stat().st_size <= 65 * 1024 * 1024
    assert "No more figures and tables of this job are kept" in done.stderr
    assert run.shown()[-1] == {"type": "full"}
    run(large)
    last = run.shown()[-1]
    assert "text/html of 16 MB is not kept" in last["data"]["text/plain"]


def test_a_torn_form_of_an_object_does_not_take_the_others(run):
    broken = "    def _repr_markdown_(self): raise ValueError('no markdown')\n"
    done = run(RICH + broken + "Rich('kept')")
    assert run.shown()[0]["data"]["text/html"] == "<b>kept</b>"
    assert "no markdown" in done.stderr


def test_magics_run_where_ipython_is(run):
    done = run(
        "%config\n!echo from a shell\nnames = !echo one two\nprint(names)\nget_ipython().run_line_magic('pwd', '')"
    )
    if run.is_plain:
        assert done.returncode == 1
        assert "Magics and !commands need IPython" in done.stderr
        assert "cell/run.py" not in done.stderr
    else:
        assert "from a shell" in done.stdout
        assert "['one two']" in done.stdout
        for asked in ("matplotlib inline", "matplotlib agg", "pylab inline --no-import-all", "gui"):
            done = run(f"%{asked}\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
            assert done.returncode == 0, done.stderr
            assert "inline" not in asked or run.shown()[-1]["data"]["image/png"].startswith("iVBOR")


def test_warnings_and_errors_of_syntax_show_the_cells_lines(run):
    done = run("import warnings\nwarnings.warn('careful')  # here\n")
    assert "<cell>:2: UserWarning: careful" in done.stderr
    assert "warnings.warn('careful')  # here" in done.stderr
    done = run("x = 1\neval('1 +')")
    assert "eval('1 +')" in done.stderr
    assert done.returncode == 1


def test_ipython_leaves_nothing_in_the_home(run, tmp_path):
    run("1", HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["events", "job"]


def test_interrupt_ends_a_cell_as_a_shell_sees_it(run):
    done = run("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)")
    assert done.returncode == 130
    assert "KeyboardInterrupt" in done.stderr


def test_cleared_output_is_cleared_in_text_and_record(run):
    if run.is_plain:
        return
    done = run(
        RICH + "from IPython.display import clear_output\nprint('a')\ndisplay(Rich('x'))\nclear_output()\nprint('b')"
    )
    assert done.stdout == "a\n\x1b[2J\x1b[Hb\n"
    assert [m["type"] for m in run.shown()] == ["display", "clear"]


def test_an_ipython_that_is_broken_is_done_without(run, tmp_path):
    if run.is_plain:
        return
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "IPython.py").write_text("raise ImportError('half installed')")
    hide = f"import sys; sys.path.insert(0, {str(tmp_path / 'broken')!r})"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(hide)
    run("1")
    command = [sys.executable, "-u", RUNNER, str(run.folder)]
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.stdout == "1\n"
    assert "cannot be used: ImportError: half installed" in done.stderr


def test_a_node_without_a_place_for_temporary_files_will_do(run, tmp_path):
    assert run("6 * 7", TMPDIR="/proc/nowhere").stdout == "42\n"


def test_values_come_and_go_under_either(run, tmp_path):
    from jupyter_slurm.runner.variables import values_file as values

    values.write(
        str(run.folder / "in.values"),
        [
            ({"kind": "import", "source": "import math as m"}, []),
            (
                {
                    "kind": "source",
                    "name": "f",
                    "source": "def f(x):\n    return m.floor(x) / 0\n",
                    "filename": "In[1] (f)",
                },
                [],
            ),
            ((x := values.PackedValue({"x": 1.5})).item, x.pieces),
        ],
    )
    asked = {"in": ["f", "x"], "out": ["y", "z"], "limit": 1000}
    done = run("y = x * 2\nz = b'x' * 2000\nf(x)", values=asked)
    assert done.returncode == 1
    assert "return m.floor(x) / 0" in done.stderr
    with open(run.folder / "out.values", "rb") as file:
        header, ((z, _), (y, pieces)) = values.read(file)
    assert values.unpack(y, pieces, header) == {"y": 3.0}
    assert "can be returned: write a file" in z["error"]


def test_figures_and_tables_are_shown_without_ipython_too(run, tmp_path):
    if not run.is_plain:
        return
    bare = tmp_path / "bare"
    bare.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(("ipython", "matplotlib_inline", "_distutils", "distutils")):
            (bare / entry.name).symlink_to(entry)
    run("1")
    source = (
        "import pandas as pd\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\ndisplay(pd.DataFrame({'epoch': [1]}))\n"
        "fig, axes = plt.subplots()\ndisplay(fig)\nplt.close(fig)"
    )
    record = json.loads((run.folder / "job.json").read_text())
    record["cell"]["source"] = source
    (run.folder / "job.json").write_text(json.dumps(record))
    # A kernel has told matplotlib, by the environment that travels with the cell, to draw for IPython.
    environment = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "7",
        "PYTHONPATH": str(bare),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    command = [sys.executable, "-S", "-u", RUNNER, str(run.folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    table, shown, at_the_end = (message["data"] for message in run.shown())
    assert "<th>epoch</th>" in table["text/html"]
    assert shown["image/png"].startswith("iVBOR")
    assert at_the_end["image/png"].startswith("iVBOR")


def test_files_with_names_of_modules_harm_no_cell(run, tmp_path):
    """Not the runner, nor IPython with its tracebacks and displays; the user's own modules can be imported."""
    fill(tmp_path)
    source = "from own_module_of_the_user import answer\nprint(answer)\nimport html\n{'a': 1}\nprint([answer] * 2)\nanswer / 0"
    done = run(source)
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert done.stdout == "42\n[42, 42]\n"
    assert "hostile" not in done.stderr
    assert run("y = x + 1", values=None).returncode == 1
    assert "NameError" in run("y = x + 1").stderr
    if not run.is_plain:
        shown = run(
            "from IPython.display import HTML, display\ndisplay(HTML('<b>1</b>'))\nawaited = 1\nimport asyncio\nawait asyncio.sleep(0)"
        )
        assert (shown.stderr, shown.returncode) == ("", 0)


def test_a_step_runs_a_script_that_is_open_for_writing_for_a_moment(tmp_path: Path) -> None:
    """A process that began while the file was written has it open, too."""
    script = tmp_path / "cell.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o700)
    path = resources.files("jupyter_slurm.runner.allocation").joinpath("step.py")
    code = (
        "import runpy, sys\n"
        "become = runpy.run_path(sys.argv[1])['become']\n"
        "print('begun', flush=True)\n"
        "sys.exit(become([sys.argv[2]]))"
    )
    with script.open("a"):
        argv = [sys.executable, "-c", code, str(path), str(script)]
        step = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert step.stdout
        assert step.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            step.wait(0.5)
    assert step.communicate(timeout=60) == ("ran\n", "")
    assert step.returncode == 0
