"""Tests of figures, tables and other rich output of a job's Python cell: shown under the cell, and stored there."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh"), pytest.mark.by_day()]

WaitFor = Callable[..., Any]

PLAIN = "/usr/bin/python3"  # Python of the system, without IPython


def _until(path: Path) -> str:
    return f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.05)\n"


def _in_order(outputs: list[dict[str, Any]]) -> list[str]:
    """Return the outputs of a cell below its job: text itself, of other outputs the type."""
    return [
        next((kind for kind in ("image/png",) if kind in bundle), "")
        or ("text/html" if "jupyter-slurm-output" not in bundle["text/html"] else bundle["text/plain"])
        for bundle in outputs
    ]


def test_text_html_and_figure_come_as_they_are_made_in_their_order(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    shown, drawn = gate("shown"), gate("drawn")
    cell = kernel.begin(
        f"%%sbatch as=rich python={sys.executable}\nfrom IPython.display import HTML\nprint('text')\ndisplay(HTML('<b>bold</b>'))\n"
        f"{_until(shown)}print('then')\n%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n"
        f"import sys\nprint('between')\nprint('warned', file=sys.stderr)\n"
        f"{_until(drawn)}import pandas as pd\npd.DataFrame({{'epoch': [1, 2]}})"
    )
    display = kernel.end(cell).display
    wait_for(lambda: len(kernel.outputs(cell)) == 1, "the HTML, while the job runs")
    assert kernel.outputs(cell)[0]["text/html"] == "<b>bold</b>"
    wait_for(lambda: "RUNNING" in kernel.text(display), "its state")
    shown.touch()
    order = ["text/html", "then", "image/png", "between\n-- stderr --\nwarned"]
    wait_for(lambda: _in_order(kernel.outputs(cell)) == order, "text and figure, while the job runs")
    picture = base64.b64decode(kernel.outputs(cell)[2]["image/png"])
    assert picture.startswith(b"\x89PNG")
    drawn.touch()
    kernel.ok("rich.wait()")
    order.append("text/html")
    assert _in_order(kernel.outputs(cell)) == order
    assert "<th>epoch</th>" in kernel.outputs(cell)[4]["text/html"]
    assert kernel.text(display).endswith("\ntext")
    assert kernel.value("rich.stdout") == "text\nthen\nbetween\n"
    assert "bold" not in kernel.text(display)
    kernel.restart()
    again = kernel.begin(f"import jupyter_slurm\njupyter_slurm.job({_key(kernel)!r})")
    kernel.end(again)
    wait_for(lambda: _in_order(kernel.outputs(again)) == order, "all of it after a restart of the kernel")
    assert base64.b64decode(kernel.outputs(again)[2]["image/png"]) == picture


def _key(kernel: Any) -> str:
    return str(kernel.value("__import__('jupyter_slurm').jobs()[0].key"))


def test_an_animation_takes_one_place_and_updates_go_where_they_belong(kernel: Any, wait_for: WaitFor) -> None:
    cell = kernel.begin(
        f"%%sbatch wait python={sys.executable}\nfrom IPython.display import HTML, clear_output\n"
        "display(HTML('gone'))\nclear_output()\nlast = display(HTML('0%'), display_id=True)\n"
        "for i in range(5):\n    last.update(HTML(f'{i}%'))\nprint('before')\n"
        "for i in range(5):\n    clear_output(wait=True)\n    print('step', i)\n    display(HTML(f'frame {i}'))\n"
        "clear_output(wait=True)"  # without later output: the old output stays
    )
    display = kernel.end(cell).display
    assert [bundle["text/html"] for bundle in kernel.outputs(cell)] == ["frame 4"]
    text = kernel.text(display)
    assert "step 4" in text
    assert "step 3" not in text
    assert "before" not in text
    assert len([m for m in kernel.under(cell) if m["msg_type"] == "display_data"]) <= 4


def test_outputs_of_a_cell_stay_under_it_while_others_run(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    go = gate("go")
    first = kernel.begin(
        f"%%sbatch as=late python={sys.executable}\n{_until(go)}from IPython.display import HTML\nHTML('late')"
    )
    kernel.end(first)
    other = kernel.begin(f"{_until(go)}time.sleep(1)\nprint('other')")
    go.touch()
    wait_for(lambda: kernel.outputs(first), "the output")
    kernel.end(other)
    assert {m["msg_type"] for m in kernel.under(other)} <= {"status", "execute_input", "stream"}


def test_a_kernel_that_was_away_finds_all_of_it(kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor) -> None:
    go = gate("go")
    kernel.ok(
        f"%%sbatch as=away python={sys.executable}\nfrom IPython.display import HTML\ndisplay(HTML('before'))\n"
        f"{_until(go)}display(HTML('while nobody looked'))"
    )
    key = kernel.value("away.key")
    kernel.restart()
    go.touch()
    again = kernel.begin(f"import jupyter_slurm\njob = jupyter_slurm.job({key!r})\njob")
    kernel.end(again)
    kernel.ok("job.wait()")
    wait_for(lambda: len(kernel.outputs(again)) == 2, "both")
    assert [bundle["text/html"] for bundle in kernel.outputs(again)] == ["before", "while nobody looked"]


def test_a_job_that_is_killed_keeps_what_it_showed(kernel: Any) -> None:
    cell = kernel.begin(
        f"%%sbatch wait python={sys.executable}\nimport os, signal\nfrom IPython.display import HTML\n"
        "display(HTML('kept'))\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = kernel.end(cell)
    assert ran.error == "JobFailed"
    assert [bundle["text/html"] for bundle in kernel.outputs(cell)] == ["kept"]


def test_each_task_of_an_array_has_its_own(kernel: Any, wait_for: WaitFor) -> None:
    kernel.ok(
        f"%%sbatch --array 1-2 wait as=tasks python={sys.executable}\nimport os\nfrom IPython.display import HTML\n"
        "HTML('task ' + os.environ['SLURM_ARRAY_TASK_ID'])"
    )
    for task in (1, 2):
        shown = kernel.begin(f"tasks[{task}]")
        kernel.end(shown)
        wait_for(lambda shown=shown: kernel.outputs(shown), "what the task showed")
        assert [bundle["text/html"] for bundle in kernel.outputs(shown)] == [f"task {task}"]


def test_python_without_ipython_shows_what_it_can(kernel: Any) -> None:
    bare = "import importlib.util\nassert importlib.util.find_spec('IPython') is None\n"
    cell = kernel.begin(
        f"%%sbatch wait as=bare python={PLAIN}\n{bare}class Rich:\n    def _repr_html_(self): return '<b>bare</b>'\n"
        "import asyncio\nawait asyncio.sleep(0)\nhandle = display('first', display_id=True)\nhandle.update(Rich())\n6 * 7"
    )
    kernel.end(cell)
    assert kernel.value("(bare.state, bare.stdout)") == "('COMPLETED', '42\\n')"
    rich, text = kernel.outputs(cell)
    assert (rich["text/html"], text["text/plain"]) == ("<b>bare</b>", "42")


def test_magics_run_on_the_node_and_colours_come_through(kernel: Any) -> None:
    ran = kernel.run(
        f"%%sbatch wait as=magic python={sys.executable}\n%env MARK=1\nnodes = !echo $SLURMD_NODENAME\nprint(nodes)\n"
        "%time sum(range(9))\nprint('\\x1b[1;31mred\\x1b[0m')\n1 / 0"
    )
    assert ran.error == "JobFailed"
    assert "['c4aiscw" in kernel.value("magic.stdout")
    assert "Wall time" in kernel.value("magic.stdout")
    html = kernel.html(ran.display)
    assert ">red</span>" in html
    assert "ZeroDivisionError" in html
    assert "---> " in kernel.text(ran.display)


def test_progress_bars_are_one_line_each(kernel: Any) -> None:
    bar = "for _ in tqdm(range(30), desc='{}'): pass\n"
    cell = kernel.begin(
        f"%%sbatch wait as=bars python={sys.executable}\nfrom tqdm.auto import tqdm\n{bar.format('auto')}"
        f"from tqdm.notebook import tqdm\n{bar.format('widget')}"
    )
    display = kernel.end(cell).display
    text = kernel.text(display)
    assert "auto: 100%" in text
    assert "30/30" in text
    assert text.count("auto:") == 1
    shown = kernel.outputs(cell)
    assert [bundle["text/html"].count("<progress") for bundle in shown] == [1]
    assert "30/30" in shown[0]["text/html"]
    assert "widget:\u2007100%" in shown[0]["text/html"]
    assert 'value="30' in shown[0]["text/html"]
