"""Tests of cells as jobs: a real kernel, a real agent, a real Slurm."""

from __future__ import annotations

import ast
import glob
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.ways import Way

pytestmark = pytest.mark.slurm

WaitFor = Callable[..., Any]


def _until(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.1; done"


def test_loading_is_quick_and_starts_nothing(bare_kernel: Any, home: Path) -> None:
    has_agent = (home / "run").exists()  # started by an earlier test: their order is not fixed
    ran = bare_kernel.ok(
        "import sys\nbefore = set(sys.modules)\nget_ipython().run_line_magic('load_ext', 'jupyter_slurm')\n"
        "print(sorted(set(sys.modules) - before))"
    )
    assert set(re.findall(r"[\w.]+", ran.stdout)) == {
        "IPython.core.magics.extension",  # imported by %load_ext itself
        "jupyter_slurm",
        "jupyter_slurm._version",
        "jupyter_slurm.client",
        "jupyter_slurm.client.card_controls",
        "jupyter_slurm.magics",
        "jupyter_slurm.magics.cell_beginning",
    }
    assert (home / "run").exists() == has_agent
    bare_kernel.ok("%unload_ext jupyter_slurm")
    assert "not found" in bare_kernel.run("%squeue").stderr


@pytest.mark.here_only("it is about the imports of a kernel")
def test_a_first_submission_imports_little(bare_kernel: Any) -> None:
    ran = bare_kernel.ok(
        "import sys\n%load_ext jupyter_slurm\nbefore = set(sys.modules)\n"
        "job = get_ipython().run_cell_magic('sbatch', '--hold', '#!/bin/sh\\ntrue\\n')\n"
        "print(sorted(set(sys.modules) - before))"
    )
    modules = ast.literal_eval(re.search(r"^\[.*\]$", ran.stdout, re.MULTILINE)[0])
    ours = {name.removeprefix("jupyter_slurm.") for name in modules if name.startswith("jupyter_slurm.")}
    assert "magics.sbatch" in ours
    others = {"agent.api", "cli", "embedded", "kernels", "server", "services", "sites", "widgets"}
    assert not {name for name in ours if any(f"{name}.".startswith(f"{other}.") for other in others)}
    assert len(ours) <= 115, "each module takes the kernel half a millisecond"
    assert len(modules) - len(ours) <= 12, sorted(set(modules) - {f"jupyter_slurm.{name}" for name in ours})


@pytest.mark.smoke
def test_a_script_runs_verbatim_and_its_output_comes_under_its_cell(kernel: Any, cluster: Any) -> None:
    script = "#!/bin/bash\n# {not} $expanded 'by' us\necho \"node $SLURMD_NODENAME\"\nawk 'BEGIN {print 6*7}'\n"
    ran = kernel.ok("%%sbatch as=first -p arandu --gpus 1\n" + script)
    kernel.ok("done = first.wait()")
    assert kernel.value("(first.state, first.exit_code, first.partition)") == "('COMPLETED', 0, 'arandu')"
    assert kernel.value("first.stdout") == "node dgx01\n42\n"
    assert kernel.value("repr(str(first.script))") == repr(script)
    number = kernel.value("first")
    taken = subprocess.run(
        ["scontrol", "write", "batch_script", number, "-"],
        env=cluster.env(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert taken.stdout.removesuffix("\n") == script.removesuffix("\n")
    assert "node dgx01\n42" in kernel.text(ran.display)
    assert "COMPLETED" in kernel.text(ran.display)


@pytest.mark.here_only("it is about the text of a cell")
def test_comments_may_stand_above_the_magic(kernel: Any) -> None:
    ran = kernel.ok("\n# train it\n   # (twice)\n%%sbatch wait -p devwork\nimport sys\nprint(sys.argv[1:], 42)")
    assert "42" in kernel.text(ran.display)
    script = kernel.ok("# a script\n%%sbatch show\n#!/bin/sh\n#SBATCH -p arandu\ntrue").result["text/plain"]
    assert script.split("#!/bin/sh", 1)[1].split() == "# a script #SBATCH -p arandu true".split()
    for magic in ("sbatch", "srun", "remote"):
        refused = kernel.run(f"x = 1\n%%{magic}\nprint(x)")
        assert refused.error == "SyntaxError"
        assert f"%%{magic} must be the first line of its cell" in refused.traceback
    text = 'text = """\n%%sbatch\n"""'
    assert kernel.value(f"(exec({text!r}), text)[1]") == "\n%%sbatch\n"
    kernel.ok(text)
    kernel.ok(f"%lsmagic\n{text}")
    failed = kernel.run("# above\n%%sbatch wait\n1 / 0")
    assert re.search(r"1 # above\n-+> 2 1 / 0", kernel.text(failed.display))


def test_output_is_live_under_its_own_cell_while_others_run(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    go, stop = gate("go"), gate("stop")
    first = kernel.begin(f"%%sbatch as=live\n#!/bin/bash\n{_until(go)}\necho line-one\n{_until(stop)}\necho line-two\n")
    shown = kernel.end(first).display
    other = kernel.begin(
        f"import pathlib, time\nwhile not pathlib.Path({str(stop)!r}).exists(): time.sleep(0.05)\nprint('x')"
    )
    go.touch()
    wait_for(lambda: "line-one" in kernel.text(shown), "the first line, while another cell runs")
    assert not any(m["msg_type"] == "execute_reply" for m in kernel.under(other))
    assert "line-two" not in kernel.text(shown)
    stop.touch()
    assert kernel.end(other).stdout == "x\n"
    wait_for(lambda: "line-two" in kernel.text(shown) and "COMPLETED" in kernel.text(shown), "the end")
    assert {m["msg_type"] for m in kernel.under(other)} <= {"status", "execute_input", "stream"}
    updates = [m for m in kernel.messages if m["content"].get("transient", {}).get("display_id") == shown]
    assert {m["parent_header"]["msg_id"] for m in updates} == {first}


def test_a_progress_bar_is_one_line(kernel: Any) -> None:
    bar = "import sys\nfor i in range(50):\n    sys.stderr.write(f'\\r{i + 1}/50')\n"
    ran = kernel.ok(f"%%sbatch wait\n{bar}print('<b>bold</b>', '\\x1b[32mgreen\\x1b[0m')")
    text, html = kernel.text(ran.display), kernel.html(ran.display)
    assert "\n50/50" in text
    assert "49/50" not in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert re.search(r'<span style="color: ?[^"]+">green</span>', html)
    assert "\x1b" not in text
    ran = kernel.ok(
        "%%sbatch as=odd wait\n#!/bin/sh\nprintf 'caf\\351 \\377 \\0 end\\n'\n"
    )  # not valid in Latin-1, and not valid in UTF-8
    assert kernel.text(ran.display).endswith("caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}  end")
    assert kernel.value("ascii(odd.stdout)") == ascii("caf\ufffd \ufffd \0 end\n")


def test_a_python_cell_that_fails_shows_its_own_traceback_once(kernel: Any) -> None:
    ran = kernel.run("%%sbatch wait as=bad\nvalues = [1]\nprint('before')\nvalues[7]\n")
    assert ran.error == "JobFailed"
    assert "IndexError: list index out of range" in ran.traceback
    assert "values[7]" in ran.traceback
    assert re.search(
        r"Cell In\[\d+\], line 3|File \"In\[\d+\]\", line 3", ran.traceback
    )  # first with IPython on the node, or else without it
    assert "FAILED" in ran.traceback
    assert "exit code 1" in ran.traceback
    assert "jupyter_slurm/client/" not in ran.traceback  # no frames of jupyter_slurm
    assert kernel.value("bad.stdout") == "before\n"
    assert "IndexError" in kernel.value("bad.tail(1, 'stderr')")
    number = int(re.search(r"In\[(\d+)\]", ran.traceback)[1])  # type: ignore[index]
    sent = next(m["content"]["execution_count"] for m in ran.messages if m["msg_type"] == "execute_input")
    assert number == sent


def test_an_error_repeats_no_log_that_stands_above_it(kernel: Any) -> None:
    fails = "values = [1]\nprint('before')\nvalues[7]\n"
    ran = kernel.run(f"%%sbatch wait as=bad\n{fails}", cell="a1")
    card = kernel.text(ran.display)
    assert "before" in card
    assert card.count("IndexError: list index out of range") == 1
    assert "IndexError" not in ran.traceback
    said = re.sub(r"\x1b\[[\d;]*m", "", ran.traceback).split("\n")
    assert re.fullmatch(r"JobFailed: Job \d+ \(.*\): FAILED, .*exit code 1", said[0]), said
    assert said[1].startswith("Read the whole log: job.stdout, job.stderr (")
    assert len(said) == 2
    assert "values[7]" in kernel.value("__import__('sys').last_value.details['log']")
    # The card is above another cell, and nbconvert (which names no cell) reports only the error.
    assert "IndexError" in kernel.run("bad.wait()", cell="a2").traceback
    assert "IndexError" in kernel.run(f"%%sbatch wait\n{fails}").traceback
    # The card of an array has no log.
    ran = kernel.run("%%sbatch wait -a 0-1\n#!/bin/sh\necho why; exit 3", cell="a3")
    assert "why" in ran.traceback


@pytest.mark.smoke
def test_python_cells_take_arguments_await_and_the_last_value(kernel: Any) -> None:
    names = "{'x': 'two words'}"
    kernel.ok(f"names = {names}")
    kernel.ok(
        "%%sbatch wait as=args -- plain {names['x']} '{names}' $HOME_OF_NOBODY\nimport asyncio, sys\n"
        "await asyncio.sleep(0)\nprint(sys.argv[1:])\n40 + 2"
    )
    assert kernel.value("args.stdout") == "['plain', 'two words', '{names}', '$HOME_OF_NOBODY']\n42\n"


@pytest.mark.here_only("over SSH nothing of the environment of the cell travels but what is named")
def test_the_context_of_the_cell_travels(kernel: Any, tmp_path: Path) -> None:
    kernel.ok(f"import os\nold = os.getcwd()\nos.chdir({str(tmp_path)!r}); old_mask = os.umask(0o027)")
    kernel.ok(
        "%%sbatch wait as=context\n#!/bin/sh\n"
        "pwd; umask; echo $MARK_OF_THE_CELL; echo [$JUPYTERHUB_API_TOKEN]; ulimit -S -n"
    )
    kernel.ok("os.chdir(old); os.umask(old_mask)")
    lines = kernel.value("context.stdout").splitlines()
    assert lines[0] == str(tmp_path)
    assert int(lines[1], 8) == 0o027
    assert lines[2:4] == ["here and there", "[]"]
    assert lines[4] == kernel.value("__import__('resource').getrlimit(7)[0]")


@pytest.mark.here_only("over SSH nothing of the environment of the cell travels but what is named")
def test_inside_a_job_what_slurm_set_for_it_stays_there(kernel: Any) -> None:
    kernel.ok(
        "import os\nos.environ.update(SLURM_JOB_ID='7', SLURM_CPUS_PER_TASK='3', SLURM_MEM_PER_NODE='1', SBATCH_COMMENT='mine')"
    )
    kernel.ok("%%sbatch wait as=nested\n#!/bin/sh\necho [$SLURM_CPUS_PER_TASK] [$SLURM_JOB_ID] [$SBATCH_COMMENT]")
    kernel.ok(
        "for n in ('SLURM_JOB_ID', 'SLURM_CPUS_PER_TASK', 'SLURM_MEM_PER_NODE', 'SBATCH_COMMENT'): del os.environ[n]"
    )
    assert kernel.value("nested.stdout == f'[] [{nested}] [mine]\\n'") == "True"


_OF_NEWER_SLURM = {("HYDRA_BOOTSTRAP", "slurm"), ("I_MPI_HYDRA_BOOTSTRAP", "slurm")}


@pytest.mark.here_only("over SSH nothing of the environment of the cell travels but what is named")
def test_inside_a_job_its_tasks_and_its_folders_stay_there(kernel: Any) -> None:
    """A step of the inner job starts, with the outer job's srun and MPI out of its way."""
    outer = {
        "SLURM_JOB_ID": "1",
        "SRUN_CPUS_PER_TASK": "8",
        "TMPDIR": "/localscratch/me.1.0",
        "JOBSCRATCH": "/scratch/1",
        "OMPI_COMM_WORLD_SIZE": "4",
        "HYDRA_BOOTSTRAP": "outer",
        "I_MPI_HYDRA_BOOTSTRAP": "outer",
        "PMI_RANK": "3",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "n1",
        "TORCHELASTIC_RUN_ID": "none",
        "SCRATCH": "/scratch/ana",
        "MY_TMP": "/data/12",
        "I_MPI_FABRICS": "shm",
    }
    names = " ".join(outer)
    kernel.ok(f"import os\nkept = dict(os.environ)\nos.environ.update({outer})")
    try:
        kernel.ok(
            f"%%sbatch wait as=nested\n#!/bin/bash\nsrun -n1 true || exit 3\nfor n in {names}; do echo $n=${{!n}}; done"
        )
        kernel.ok("%%sbatch wait as=ranks launcher=srun -n 1\nprint('rank')")
        kernel.ok("%salloc as=own wait")
        kernel.ok("%%srun on=own wait as=step\n#!/bin/bash\necho ${SRUN_CPUS_PER_TASK-none} ${TMPDIR-none}")
        kernel.ok("%salloc release on=own")
    finally:
        kernel.ok("os.environ.clear(); os.environ.update(kept)")
    told = dict(line.split("=") for line in kernel.value("nested.stdout").splitlines())
    assert told.pop("SLURM_JOB_ID") == kernel.value("nested")
    assert told.pop("TMPDIR") in ("", "/tmp"), "slurmd's own"
    # Slurm 24.11 sets these for each job.
    left = {name: value for name, value in told.items() if value and (name, value) not in _OF_NEWER_SLURM}
    assert left == {"SCRATCH": "/scratch/ana", "MY_TMP": "/data/12", "I_MPI_FABRICS": "shm"}
    assert "rank" in kernel.value("ranks.stdout")
    assert kernel.value("step.stdout") in ("none none\n", "none /tmp\n")


def test_a_file_is_submitted_with_its_arguments_and_its_name(kernel: Any, home: Path) -> None:
    (home / "scripts of mine").mkdir()
    (home / "scripts of mine" / "job.sh").write_text('#!/bin/bash\n#SBATCH -p arandu\necho "$# $1"\n')
    kernel.ok("count = 2\nfiled = %sbatch 'scripts of mine/job.sh' 'a b' {count}")
    assert kernel.value("filed.wait().stdout") == "2 a b\n"
    assert kernel.value("(filed.name, filed.partition)") == "('job.sh', 'arandu')"
    for name in ("submit.sh", "übung 1.sh", "-x.sh"):  # the job directory has other files of the first name
        (home / name).write_text('#!/bin/bash\necho "$SLURM_JOB_NAME"\n')
        kernel.ok(f"named = %sbatch './{name}'")
        assert ast.literal_eval(kernel.value("(named.wait().stdout, named.name)")) == (f"{name}\n", name)
    (home / "marked.sh").write_text("\ufeff#!/bin/bash\necho\n")
    assert "begins with a byte order mark" in kernel.run("%sbatch marked.sh").traceback
    assert "none/job.sh cannot be read: there is no folder none." in kernel.run("%sbatch none/job.sh").traceback
    kernel.ok("wrapped = %sbatch --wrap 'echo wrapped $SLURM_JOB_ID'")
    assert kernel.value("wrapped.wait().stdout == f'wrapped {wrapped}\\n'") == "True"


def test_show_submits_nothing(kernel: Any) -> None:
    before = kernel.value("len(__import__('jupyter_slurm').jobs())")
    ran = kernel.ok("%%sbatch show -p arandu --comment 'two words' -- 'a b'\nprint(1)")
    text = ran.result["text/plain"]
    assert text.startswith("sbatch --parsable")
    assert "-p arandu --comment 'two words'" in text
    assert text.split("\n")[0].endswith("'a b'")
    assert "#!/bin/sh" in text
    assert kernel.value("len(__import__('jupyter_slurm').jobs())") == before


@pytest.mark.parametrize(
    ("line", "cell", "error", "said", "marked"),
    [
        ("--partion arandu", "print(1)", "OptionError", "Did you mean --partition", "--partion"),
        ("-p", "print(1)", "OptionError", "needs a value", "-p"),
        ("--wrap hostname", "print(1)", "OptionError", "--wrap", "--wrap"),
        ("-W", "print(1)", "OptionError", "without dashes", "-W"),
        ("wiat", "print(1)", "UsageError", "Did you mean wait", "wiat"),
        ("show wait", "print(1)", "UsageError", "show", None),
        ("as=not-a-name", "print(1)", "UsageError", "as=job", None),
        ("as=", "print(1)", "UsageError", "needs a value", "as="),
        ("-J 'open", "print(1)", "UsageError", "not closed", "'open"),
        ("python=/usr/bin/python3", "#!/bin/sh\ntrue", "UsageError", "Python cells", None),
        ("", "echo hello world", "CellError", "#!/bin/bash", None),
        ("--gpus 1", "nvidia-smi", "CellError", "#!/bin/bash", None),
        ("-A <account>", "print(1)", "UsageError", "Replace <account> with your own value.", "<account>"),
        ("-n=4", "print(1)", "OptionError", "Write -n 4 or --ntasks=4.", "-n=4"),
        ("-p nowhere", "print(1)", "SubmitRefused", "nowhere", "-p nowhere"),
        ("--gpus-per-node 99", "print(1)", "SubmitRefused", "configuration", "--gpus-per-node 99"),
        ("-N1 -n abc", "print(1)", "SubmitRefused", "abc", "-n abc"),
        ("", "#!/bin/sh\n#SBATCH -p nowhere\ntrue", "SubmitRefused", "line 2 of the cell", "-p nowhere"),
    ],
)
def test_bad_input_is_refused_with_its_place(
    kernel: Any, line: str, cell: str, error: str, said: str, marked: str | None
) -> None:
    before = kernel.value("len(__import__('jupyter_slurm').jobs())")
    ran = kernel.run(f"%%sbatch {line}\n{cell}")
    assert ran.error == error
    assert said in ran.traceback
    assert len(ran.traceback.split("\n")) > 1, "what to do next"
    if marked is not None:
        lines = ran.traceback.split("\n")
        at = next(i for i, text in enumerate(lines) if text.strip() and set(text.strip()) <= {"^", " "})
        under = "".join(c if m == "^" else "" for c, m in zip(lines[at - 1], lines[at].ljust(999), strict=False))
        assert under == marked
    assert kernel.value("len(__import__('jupyter_slurm').jobs())") == before


def test_a_command_of_a_shell_is_refused_for_a_step_and_runs_on_its_line(kernel: Any) -> None:
    ran = kernel.run("%%srun -n 1\nnvidia-smi")
    assert (ran.error, "No allocation is open" in ran.stdout) == ("CellError", False)
    assert "#!/bin/bash" in ran.traceback
    kernel.ok("%srun as=step wait env FOO=bar printenv FOO")
    assert kernel.value("step.stdout") == "bar\n"


def test_what_no_command_can_be_given_is_refused(kernel: Any, way: Way) -> None:
    cases = {
        "get_ipython().run_cell_magic('sbatch', '-J a\\0b', 'print(1)')": "NUL",
        "get_ipython().run_cell_magic('sbatch', '', '#!/bin/sh\\necho a\\0b')": "NUL",
        "zero = 'a\\0b'\nget_ipython().run_cell_magic('sbatch', '-J {zero}', 'print(1)')": "NUL",
        "import os\nlong = 'x' * (1 << 17)\nget_ipython().run_cell_magic('sbatch', '-- {long}', '1')": "Write it to a file",
    }
    if not way.is_remote:  # over SSH the environment is not sent
        cases["os.environ['LONG'] = long\nget_ipython().run_cell_magic('sbatch', '', '1')"] = "os.environ.pop('LONG')"
        many = "os.environ['LONG'] = ''\nos.environ |= {f'LONG{i}': long[:99999] for i in range(99)}\n"
        cases[many + "get_ipython().run_cell_magic('sbatch', '', '1')"] = "are too long"
    for code, said in cases.items():
        ran = kernel.run(code)
        assert ran.error in ("UsageError", "CellError", "TransportError"), ran.traceback
        assert said in ran.traceback
    kernel.ok("for name in [one for one in os.environ if one.startswith('LONG')]: del os.environ[name]")


def test_the_agent_may_die_in_the_middle(kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor) -> None:
    go = gate("go")
    shown = kernel.ok(f"%%sbatch as=steady\n#!/bin/bash\necho before\n{_until(go)}\necho after\n").display
    wait_for(lambda: "before" in kernel.text(shown), "the first line")
    pid = int(kernel.value("steady._cluster.client.info['pid']"))
    os.kill(pid, signal.SIGKILL)
    go.touch()
    wait_for(lambda: "COMPLETED" in kernel.text(shown), "the end, told by another agent")
    assert re.findall("before|after", kernel.text(shown)) == ["before", "after"]
    assert int(kernel.value("steady._cluster.client.info['pid']")) != pid
    assert kernel.value("steady.wait().stdout") == "before\nafter\n"


def test_after_a_restart_everything_is_found_again(kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor) -> None:
    go = gate("go")
    kernel.ok(f"%%sbatch as=lost -J again\n#!/bin/bash\necho printed before\n{_until(go)}\necho printed after\n")
    number = kernel.value("lost")
    kernel.restart()
    listed = kernel.ok("import jupyter_slurm\nmine = jupyter_slurm.jobs()\nmine")
    assert number in listed.result["text/plain"].split()
    assert "<table" in listed.result["text/html"]
    assert kernel.value(f"[j.name for j in mine if j.id == {number!r}]") == "['again']"
    shown = kernel.ok(f"found = jupyter_slurm.job({number})\nfound").display
    wait_for(lambda: "printed before" in kernel.text(shown), "what it had printed")
    go.touch()
    kernel.ok("found.wait()")
    assert "printed after" in kernel.text(shown)


def test_any_job_of_mine_can_be_adopted(kernel: Any, cluster: Any, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sbatch", "--parsable", "-o", str(tmp_path / "out-%j.txt"), "--wrap", "echo adopted"],
        env=cluster.env(),
        capture_output=True,
        check=True,
        text=True,
        cwd=tmp_path,
    )
    number = done.stdout.strip()
    kernel.ok(f"import jupyter_slurm\nforeign = jupyter_slurm.job('{number}').wait()")
    assert kernel.value("(foreign.stdout, foreign.name)") == "('adopted\\n', 'wrap')"
    ran = kernel.run("jupyter_slurm.job(99999999)")
    assert ran.error == "JobNotFound"
    assert "squeue" in ran.traceback
    for wrong in (-1, "", "..", "1/2", "é", "%31", "1?x"):
        ran = kernel.run(f"jupyter_slurm.job({wrong!r})")
        assert (ran.error, "is not a job ID" in ran.traceback) == ("JobNotFound", True), ran.traceback


def test_a_requeued_job_is_told_as_such_after_its_end(kernel: Any, cluster: Any, wait_for: WaitFor) -> None:
    kernel.ok("%%sbatch as=again wait\n#!/bin/sh\necho once\n")
    number = kernel.ok("print(again.id)").stdout.strip()
    cluster.run("scontrol", "requeuehold", number)
    wait_for(lambda: "PENDING" in kernel.ok("print(again.refresh().state)").stdout, "the requeue to be seen")
    kernel.ok("again.cancel()")


def test_awaiting_leaves_the_loop_free(kernel: Any) -> None:
    kernel.ok("%%sbatch as=one\nprint(1)")
    kernel.ok("%%sbatch as=two\nprint(2)")
    ran = kernel.ok(
        "import asyncio\nticks = 0\nasync def tick():\n    global ticks\n    while True:\n        ticks += 1\n"
        "        await asyncio.sleep(0.01)\nticker = asyncio.ensure_future(tick())\n"
        "done = await asyncio.gather(one, two)\nticker.cancel()\n"
        "print([j.stdout for j in done], ticks > 3)\nagain = await one"
    )
    assert ran.stdout == "['1\\n', '2\\n'] True\n"


def test_a_wait_has_an_end(kernel: Any, gate: Callable[[str], Path]) -> None:
    go = gate("go")
    kernel.ok(f"%%sbatch as=slow\n#!/bin/bash\n{_until(go)}")
    ran = kernel.run("slow.wait(0.2)")
    assert ran.error == "TimeoutError"
    assert "keeps running" in ran.traceback
    assert "has not ended yet" in kernel.run("slow.outputs").traceback
    kernel.ok("%scancel {slow}")
    failed = kernel.run("slow.wait()")
    assert failed.error == "JobFailed"
    assert "CANCELLED" in failed.traceback
    assert kernel.value("slow.wait(check=False).state") == "CANCELLED"
    kernel.ok("%%sbatch --hold as=never --array=0-1\n1")
    assert kernel.value("(never.cancel(), [task.stdout + task.tail() for task in never])[1]") == "['', '']"
    kernel.ok("%%sbatch --hold as=never out=x\n1")
    assert kernel.value("(never.cancel(), never.wait(check=False), never.stdout, never.stderr)[2:]") == "('', '')"
    assert "Look for the cause in job.stderr" in kernel.run("never.outputs").traceback
    assert "Add out=NAME to the line" in kernel.run("slow.outputs").traceback


def test_tasks_of_an_array_have_their_own_output(kernel: Any) -> None:
    ran = kernel.ok("%%sbatch wait as=array --array 1-3\n#!/bin/bash\necho task $SLURM_ARRAY_TASK_ID")
    assert "3 COMPLETED" in kernel.text(ran.display)
    assert kernel.value("array[2].stdout") == "task 2\n"
    kernel.ok("import jupyter_slurm")
    assert kernel.value("jupyter_slurm.job(f'{array}_3').tail(1)") == "task 3"
    assert kernel.value("jupyter_slurm.job(f'{array}_3').id == f'{array}_3'") == "True"
    told = kernel.run("array.stdout")
    assert told.error == "JobOutputMissing"
    assert "job[N]" in told.traceback


def test_a_large_output_is_capped_and_drawn_seldom(kernel: Any) -> None:
    script = "#!/bin/bash\nfor i in $(seq 30000); do echo $i of a long log, longer than a notebook should keep; done\n"
    ran = kernel.ok(f"%%sbatch as=large wait\n{script}")
    text = kernel.text(ran.display)
    limit = int(
        kernel.value(
            "__import__('jupyter_slurm.client.clusters.cluster').client.clusters.cluster.settings().output_limit"
        )
    )
    assert limit / 2 < len(text) < limit + 2000
    assert text.endswith("30000 of a long log, longer than a notebook should keep")
    assert kernel.value("large.stdout_path") in text
    assert kernel.value("large.stdout.count(chr(10))") == "30000"
    assert kernel.value("large.tail(2)").startswith("29999 of")
    took = 1 + float(kernel.value("large.end_time - large.submit_time")) + 15  # until the poller has seen the end
    assert len(kernel.drawn(ran.display)) <= 4 * took


def test_an_interrupted_submission_says_how_to_find_the_job(kernel: Any, cluster: Any, wait_for: WaitFor) -> None:
    kernel.ok("import jupyter_slurm\nknown = len(jupyter_slurm.jobs())")
    folder = Path(kernel.env["JUPYTER_CONFIG_DIR"]).parent / "jobs"
    pattern = f"{folder}/*/*/submit.*"  # glob, unlike Path.glob in Python 3.11, passes over a draft that vanishes
    before = set(glob.glob(pattern))
    with cluster.frozen_controller():
        request = kernel.begin("%%sbatch\n#!/bin/sh\necho once")
        wait_for(lambda: set(glob.glob(pattern)) - before, "sbatch is at work")
        kernel.manager.interrupt_kernel()
        ran = kernel.end(request)
    assert ran.error == "WaitInterrupted"
    key = re.search(r"job\('([\w-]+)'\)", ran.traceback)
    assert key is not None
    kernel.ok(f"found = jupyter_slurm.job({key[1]!r}).wait()")
    assert kernel.value("found.stdout") == "once\n"
    assert kernel.value("len(jupyter_slurm.jobs()) - known") == "1"


def test_live_output_can_be_switched_off(kernel: Any) -> None:
    kernel.ok("from jupyter_slurm.client.settings import settings\nsettings().live_output = False")
    shown = kernel.ok("%%sbatch as=silent\nprint('at the end')").display
    kernel.ok("import time\nwhile not silent.is_finished: time.sleep(0.1)")
    assert len(kernel.drawn(shown)) == 1
    kernel.ok("silent.wait()\nsettings().live_output = True")
    assert "at the end" in kernel.text(shown)


@pytest.mark.slow
def test_of_a_flood_that_nobody_saw_come_the_end_is_read(kernel: Any) -> None:
    kernel.ok(
        "from jupyter_slurm.client.settings import settings\nfrom jupyter_slurm.client.output import follower as follow\n"
        "settings().live_output, real, came = False, follow.Follower._apply_output, []\n"
        "def counted(self, stream, offset, data):\n    came.append(len(data))\n    real(self, stream, offset, data)\n"
        "follow.Follower._apply_output = counted"
    )
    shown = kernel.ok("%%sbatch as=flood\n#!/bin/sh\necho FIRST\nyes a line | head -c 301000000\necho LAST").display
    kernel.ok("import time\nwhile not flood.is_finished: time.sleep(0.1)")
    kernel.ok("flood.wait()\nsettings().live_output, follow.Follower._apply_output = True, real")
    assert kernel.text(shown).endswith("a line\nLAST")
    assert "FIRST" not in kernel.text(shown)
    assert kernel.value("flood.stdout_path") in kernel.text(shown), "where the rest is"
    assert int(kernel.value("sum(came)")) < 20 * int(kernel.value("settings().output_limit"))


@pytest.mark.here_only("over SSH nothing of the environment of the cell travels but what is named")
def test_variables_of_the_environment_stand_in_the_line_and_not_in_a_script(kernel: Any) -> None:
    home = kernel.value("__import__('os').path.expanduser('~')")
    kernel.ok(
        "preview = get_ipython().run_cell_magic('sbatch', "
        "'show -o ~/o.txt -e $HOME/e.txt --comment $MARK_OF_THE_CELL -J $JUPYTERHUB_API_TOKEN', '#!/bin/sh\\necho $HOME')"
    )
    assert kernel.value("preview.argv[2:-1]") == repr(
        ["-o", f"{home}/o.txt", "-e", f"{home}/e.txt", "--comment", "here and there", "-J", "$JUPYTERHUB_API_TOKEN"]
    )
    assert kernel.value("preview.script") == "#!/bin/sh\necho $HOME"
    kernel.ok('preview = %sbatch show --wrap "echo $HOME $MARK_OF_THE_CELL" -o $HOME/o.txt')
    assert kernel.value("preview.script.splitlines()[-1]") == "echo $HOME $MARK_OF_THE_CELL"
    assert kernel.value("preview.argv[3]") == f"{home}/o.txt"
    assert kernel.ok("%scontrol show hostnames $HOME").result["text/plain"] == home


def test_home_and_user_of_a_line_are_those_of_the_cluster(kernel: Any, way: Way) -> None:
    kernel.ok("%%sbatch as=there wait\n#!/bin/sh\necho $HOME\nid -un")
    home, user = kernel.value("there.stdout").split()
    kernel.ok(
        "preview = get_ipython().run_cell_magic('sbatch', "
        "'show -o ~/o.txt -e $HOME/e.txt -- ${HOME}x $USER $MARK_OF_NOBODY', '#!/bin/sh\\ntrue')"
    )
    argv = ast.literal_eval(kernel.value("preview.argv"))
    assert {f"{home}/o.txt", f"{home}/e.txt", f"{home}x", "$MARK_OF_NOBODY"} <= {*argv}
    if way.is_remote:
        assert argv[-2] == user
    shown = kernel.ok("%%sbatch show python=~/venv/bin/python\n1").result["text/plain"]
    assert f"{home}/venv/bin/python -" in shown
    assert "~/venv" not in shown


def test_a_quiet_submission_has_its_id_at_once(kernel: Any) -> None:
    """sbatch prints no ID with --quiet."""
    for option in ("-QH", "--quiet --hold"):
        said = kernel.ok(
            f"quiet = %sbatch -p arandu {option} --wrap true\nprint(quiet.id, quiet.data['error'])\nquiet.cancel()"
        )
        assert re.fullmatch(r"\d+ None", said.stdout.strip().splitlines()[-1]), said.stdout


def test_a_job_that_nobody_shows_is_mentioned(kernel: Any) -> None:
    code = "for name in 'ab': get_ipython().run_cell_magic('sbatch', '-J {name}', '#!/bin/sh\\ntrue')"
    ran = kernel.ok(f"{code}\nprint('after')")
    assert re.fullmatch(r"after\nJob \d+ \(a\): .*\nJob \d+ \(b\): .*\n", ran.stdout)
    for shown in ("%%sbatch\n#!/bin/sh\ntrue", "%sbatch --wrap true"):
        assert kernel.ok(shown).stdout == ""
    assert kernel.ok("1 + 1").stdout == ""
    line = "show -J {given} in=given,code"  # in a function its variables count, as for line magics
    kernel.ok(f"code = 1\ndef cell(given): return get_ipython().run_cell_magic('sbatch', {line!r}, 'print(given)')")
    assert " -J 7 " in kernel.ok("cell(7)").result["text/plain"]


def test_the_cell_as_it_was_typed(kernel: Any) -> None:
    shown = kernel.ok("%%sbatch show\nprint('the cell')").result["text/plain"]
    assert shown.index("#!/bin/sh") < shown.index("# The cell that it runs:\nprint('the cell')")
    kernel.ok("%%sbatch wait as=typed\nprint('the cell')")
    assert kernel.value("repr(str(typed.source))") == repr("print('the cell')\n")
    kernel.ok("%%sbatch wait as=scripted\n#!/bin/sh\ntrue")
    assert kernel.value("scripted.source") == "None"
    assert "# The cell" not in kernel.ok("%%sbatch show\n#!/bin/sh\ntrue").result["text/plain"]


def test_a_task_that_the_array_does_not_have_is_refused(kernel: Any) -> None:
    kernel.ok("%%sbatch wait as=pair --array 1-2\n#!/bin/bash\necho task $SLURM_ARRAY_TASK_ID")
    ran = kernel.run("pair[7]")
    assert ran.error == "JobNotFound"
    assert "no task 7" in ran.traceback
    assert "Its tasks are 1-2." in ran.traceback
    assert kernel.value("repr((str(pair[2].stdout), pair[2].state))") == "('task 2\\n', 'COMPLETED')"


def test_texts_in_a_list_are_strings_and_jobs_become_a_frame(kernel: Any) -> None:
    kernel.ok("%%sbatch wait as=said\n#!/bin/sh\necho hi")
    assert kernel.ok("said.stdout").result["text/plain"] == "hi"
    assert kernel.ok("[said.stdout]").result["text/plain"] == "['hi\\n']"
    assert kernel.ok("{'a': said.tail(1)}").result["text/plain"] == "{'a': 'hi'}"
    told = kernel.run("import jupyter_slurm\njupyter_slurm.jobs().to_pandas()")
    assert told.status == "ok" or "needs pandas" in told.traceback


def test_who_reads_a_long_log_is_told_how_far_it_has_come(kernel: Any) -> None:
    kernel.ok("%%sbatch wait as=long\n#!/bin/sh\nhead -c 12000000 /dev/zero | tr '\\0' x; echo end")
    kernel.ok(
        "from jupyter_slurm.client.output import progress\nkept = progress._UPDATE_INTERVAL_S\nprogress._UPDATE_INTERVAL_S = 0"
    )
    ran = kernel.ok("text = long.stdout\nprint(len(text), text[-5:])")
    kernel.ok("progress._UPDATE_INTERVAL_S = kept")
    assert ran.stdout == "12000004 xend\n\n"
    first, *_, last = ran.stderr.split("\r")[1:]
    assert re.fullmatch(r"Job \d+.*, stdout: 1 of 12 MB", first)
    assert last.endswith(", stdout: 12 of 12 MB\n")
    assert not kernel.ok("text = long.tail(1)").stderr


def test_resume_is_for_cells_and_scripts_and_says_how_often(kernel: Any) -> None:
    shown = kernel.ok("%%sbatch show resume\n1").result["text/plain"]
    assert "--requeue" in shown
    assert "--signal=B:USR1@120" in shown
    assert "resume.py" in shown
    kernel.ok("%%sbatch show resume=1000\n1")
    for number in ("0", "1001", "-1", "1.5", "often"):
        assert "is not a valid number of restarts" in kernel.run(f"%%sbatch show resume={number}\n1").traceback
    for script in ("%%sbatch show resume python=/usr/bin/python3\n#!/bin/sh\ntrue", "%sbatch show resume --wrap true"):
        shown = kernel.ok(script).result["text/plain"]
        assert "resume.py" in shown
        assert "--requeue" in shown


def test_a_report_of_a_cell(kernel: Any) -> None:
    kernel.ok("%%sbatch as=counted wait\nsum(range(10))", timeout=120)
    told = kernel.ok("counted.report()").result["text/plain"]
    assert "source  runner of the cell, at its end" in told
