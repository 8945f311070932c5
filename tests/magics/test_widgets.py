"""Tests of widgets in a real kernel: their messages to a front end, and the effect of clicks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what widgets show comes from the agent, whatever its way")]

WaitFor = Callable[..., Any]
VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
HOSTILE = "<img src=x onerror=alert(1)>"
CONFIRMING = "from jupyter_slurm.widgets import base\nbase._DOUBLE_CLICK_S, base._CONFIRM_TIMEOUT_S = {}"


class FrontEnd:
    """Models of widgets as in a front end, which sends clicks to a subshell, as JupyterLab does, or not."""

    def __init__(self, kernel: Any, *, subshell: bool = True) -> None:
        self._kernel = kernel
        self._subshell = self._make_subshell() if subshell else None

    def _make_subshell(self) -> str:
        client = self._kernel.client
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        return str(client.get_control_msg(timeout=60)["content"]["subshell_id"])

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        self._kernel.pump()
        models: dict[str, dict[str, Any]] = {}
        for message in self._kernel.messages:
            content = message["content"]
            if message["msg_type"] == "comm_open" and content["target_name"] == "jupyter.widget":
                models[content["comm_id"]] = dict(content["data"]["state"])
            elif message["msg_type"] == "comm_msg" and content["data"].get("method") == "update":
                models[content["comm_id"]] |= content["data"]["state"]
        return models

    @property
    def closed(self) -> list[str]:
        self._kernel.pump()
        return [m["content"]["comm_id"] for m in self._kernel.messages if m["msg_type"] == "comm_close"]

    def seen(self, root: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the present content of a widget, from top to bottom."""
        models = self.models
        found: list[tuple[str, dict[str, Any]]] = []

        def walk(reference: str) -> None:
            name = reference.removeprefix("IPY_MODEL_")
            found.append((name, models[name]))
            for child in models[name].get("children", ()):
                walk(child)

        walk(root)
        return found

    def html(self, root: str) -> str:
        return "\n".join(str(model.get("value", "")) for _, model in self.seen(root))

    def find(self, root: str, **state: str) -> str:
        """Return the widget with these values."""
        found = [name for name, model in self.seen(root) if state.items() <= model.items()]
        assert len(found) == 1, (state, self.seen(root))
        return found[0]

    def send(self, name: str, data: dict[str, Any]) -> None:
        client = self._kernel.client
        message = client.session.msg("comm_msg", {"comm_id": name, "data": data})
        if self._subshell is not None:
            message["header"]["subshell_id"] = self._subshell
        client.shell_channel.send(message)

    def click(self, name: str) -> None:
        self.send(name, {"method": "custom", "content": {"event": "click"}})

    def set(self, name: str, **state: Any) -> None:
        self.send(name, {"method": "update", "state": state, "buffer_paths": []})


def _shown(kernel: Any, code: str) -> tuple[str, dict[str, Any]]:
    """Run a cell that shows a widget; return its model and the stored bundle."""
    bundle = kernel.ok(f"import jupyter_slurm\n{code}").result
    return bundle[VIEW]["model_id"], bundle


def test_a_table_changes_and_cancels_while_a_cell_runs(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    go = gate("go")
    kernel.ok(f'%%sbatch -J "{HOSTILE}" -t 10\nimport time\nprint("{HOSTILE}")\ntime.sleep(600)')
    front = FrontEnd(kernel)
    root, bundle = _shown(kernel, "shown = jupyter_slurm.monitor()\nshown")
    assert HOSTILE in bundle["text/plain"]
    assert "&lt;img" in bundle["text/html"]
    assert HOSTILE not in bundle["text/html"]
    kernel.ok(CONFIRMING.format("0.4, 600"))  # the question stays until this test has read it
    cell = kernel.begin(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)")

    def row() -> str:
        return next(
            (part for part in front.html(root).split("\n") if "jupyter-slurm-row" in part and "img" in part), ""
        )

    wait_for(lambda: "RUNNING" in row(), "the job runs, while the cell does")
    assert HOSTILE not in front.html(root)
    assert "of 10:00" in row()
    job = f"Job {re.findall(r'>([0-9]+)<', row())[0]} ({HOSTILE})"
    cancel = front.find(root, tooltip=f"Cancel {job}")
    front.click(front.find(root, tooltip=f"Show the log of {job}"))
    wait_for(lambda: "jupyter-slurm-job" in front.html(root) and front.html(root).count("&lt;img") >= 4, "its log")
    front.click(cancel)
    wait_for(lambda: front.models[cancel]["description"] == "Really cancel?", "it asks")
    assert "CANCELLED" not in row()
    wait_for(lambda: front.click(cancel) or "CANCELLED" in row(), "the job is cancelled, while the cell runs")
    assert HOSTILE not in front.html(root)
    go.touch()
    kernel.end(cell)
    kernel.ok(CONFIRMING.format("0.4, 5"))
    kernel.ok("shown.close()")


def test_a_front_end_without_subshells_is_told_that_clicks_wait(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    go = gate("go")
    front = FrontEnd(kernel, subshell=False)
    root, _ = _shown(kernel, "shown = jupyter_slurm.monitor()\nshown")
    cell = kernel.begin(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)")
    wait_for(lambda: "sends your clicks only when the cell has ended" in front.html(root), "it says so")
    go.touch()
    kernel.end(cell)
    wait_for(lambda: "sends your clicks" not in front.html(root), "and no longer")
    kernel.ok("shown.close()")


def test_it_listens_while_it_is_seen(kernel: Any, wait_for: WaitFor) -> None:
    front = FrontEnd(kernel)
    root, _ = _shown(kernel, "shown = jupyter_slurm.monitor()\nshown")
    for count, listens in ((1, True), (0, False), (1, True)):
        front.set(root, _view_count=count)
        wait_for(
            lambda listens=listens: kernel.value("shown._feed._work is not None") == str(listens), f"{count} views"
        )
    kernel.ok("%%sbatch as=later -J later --begin now+3600\n#!/bin/sh\ntrue")
    wait_for(lambda: "later" in front.html(root), "what came later")
    about = f"Job {kernel.value('later.id')} (later)"
    hold = front.find(root, tooltip=f"Hold {about}")
    kernel.ok("%%sbatch as=newer -J newer --begin now+3600\n#!/bin/sh\ntrue")
    wait_for(lambda: "newer" in front.html(root), "the job above it")
    front.click(hold)  # that of the row in which the job was when the user aimed
    wait_for(lambda: front.models[hold]["tooltip"] == f"Release {about}", "it is held")
    front.click(hold)
    wait_for(lambda: front.models[hold]["tooltip"] == f"Hold {about}", "it is not held any more")
    kernel.ok(
        "over = later.cancel(), newer.cancel()"
    )  # the result of a cell is shown, with a button below it until the end of the job
    kernel.ok("shown.close()\nassert shown._feed._work is None")
    kernel.ok(
        "from jupyter_slurm.widgets.job_feed import JobFeed\nlook, JobFeed.refresh = JobFeed.refresh, lambda feed: 1 / 0"
    )
    assert "ZeroDivisionError" in kernel.run("jupyter_slurm.monitor()").traceback  # as without an agent
    kernel.ok("JobFeed.refresh = look")
    hears = (
        "[type(getattr(each, '__self__', None)).__name__ for each in get_ipython().events.callbacks['pre_run_cell']]"
    )
    assert "ClickCheck" not in kernel.value(hears), "what never came to be shown looks at no cells"


def test_what_is_free_is_shown_by_type(kernel: Any, wait_for: WaitFor) -> None:
    front = FrontEnd(kernel)
    root, bundle = _shown(kernel, "jupyter_slurm.cluster_view()")
    assert "a100" in bundle["text/plain"]
    wait_for(lambda: "8 of 8 a100 free" in front.html(root), "all of them")
    kernel.ok("%%sbatch as=taken -p arandu --gpus 3\nimport time\ntime.sleep(600)")
    wait_for(lambda: kernel.value("taken.state") == "RUNNING", "three are taken")
    front.click(front.find(root, description="Refresh"))
    wait_for(lambda: "5 of 8 a100 free" in front.html(root), "the others")
    kernel.ok("taken.cancel()")


def test_an_earlier_answer_does_not_replace_a_newer_one(kernel: Any) -> None:
    kernel.ok("""
import threading
import jupyter_slurm.widgets.cluster_view as module
view, begun, answered = jupyter_slurm.cluster_view(), threading.Event(), threading.Event()
view.close()

def answer(cluster, *, newer=False):
    begun.set()
    if not newer:
        answered.wait(2)  # in vain, because the newer one waits for this one
        return "earlier"
    answered.set()
    return "newer"

ask, module.request_resources = module.request_resources, answer
threads = [threading.Thread(target=view._refresh, kwargs={"newer": newer}) for newer in (False, True)]
for thread in threads:
    thread.start()
    begun.wait(60)
for thread in threads:
    thread.join()
module.request_resources = ask
""")
    assert kernel.value("view._resources") == "newer"


@pytest.mark.parametrize(
    ("module", "start", "fields"),
    [("session_launcher", "launcher()", "form._resources"), ("submit_form", "submit_form()", "form._fields")],
)
def test_an_earlier_check_of_a_form_does_not_replace_a_newer_one(
    kernel: Any, wait_for: WaitFor, module: str, start: str, fields: str
) -> None:
    kernel.ok(f"""
import threading
import jupyter_slurm
import jupyter_slurm.widgets.{module} as module
form = jupyter_slurm.{start}
fields, ask, begun, may_end, found = {fields}, module.check_submission, threading.Event(), threading.Event(), []
fields.set("Partition", "arandu")
fields.set("GPUs", "9")
""")
    said = "' '.join([form._warnings.value, *(note.value for note in fields._notes.values())])"
    wait_for(lambda: "This partition has 8 GPUs in all." in kernel.value(said), "the partitions are known")
    kernel.ok("""
def ask_slowly(*request):
    found.append(ask(*request))
    begun.set()
    may_end.wait(60)
    return found[0]

module.check_submission = ask_slowly
earlier = threading.Thread(target=form._refresh_choices)
earlier.start()
begun.wait(60)
module.check_submission = ask
fields.set("GPUs", "a100:1")
form._refresh_choices()
may_end.set()
earlier.join()
""")
    assert "8 GPUs" in kernel.value("found"), "the earlier check has found it"
    assert "8 GPUs" not in kernel.value(said)
    kernel.ok("form.close()")


def test_below_the_card_of_a_job_stands_what_can_be_done_with_it(kernel: Any, wait_for: WaitFor) -> None:
    submitted = kernel.ok("%%sbatch as=long -t 5\nimport time\ntime.sleep(600)")
    assert not [m for m in submitted.messages if VIEW in m["content"].get("data", ())]  # it would delay the submission
    front = FrontEnd(kernel)
    shown = kernel.ok("long").messages
    (bundle,) = [
        m["content"]["data"] for m in shown if m["msg_type"] == "display_data" and VIEW in m["content"]["data"]
    ]
    assert bundle["text/html"] == ""  # the card suffices, also in the file
    root = bundle[VIEW]["model_id"]
    wait_for(lambda: "of 5:00" in front.html(root), "how long it runs, of how long it may")
    cancel = front.find(root, description="Cancel")
    kernel.ok(CONFIRMING.format("600, 600"))  # also of a kernel that is slow
    for _ in range(2):  # a habitual double click, before the question can be read
        front.click(cancel)
    wait_for(lambda: front.models[cancel]["description"] == "Really cancel?", "it asks")
    assert kernel.value("long.refresh().state") == "RUNNING"
    kernel.ok(CONFIRMING.format("0.4, 5"))
    wait_for(lambda: front.click(cancel) or kernel.value("long.state") == "CANCELLED", "it is cancelled")
    wait_for(lambda: root in front.closed, "and they go")
    stale = "long._data = {**long._data, 'state': 'RUNNING', 'finished': False}"
    again = kernel.ok(f"{stale}\nlong").messages  # the job has ended meanwhile, which closes the widgets at once
    assert [m["msg_type"] for m in again if m["msg_type"] in ("display_data", "error")] == ["display_data"]


def test_a_form_says_what_is_doubtful_writes_the_line_and_submits(kernel: Any, wait_for: WaitFor) -> None:
    front = FrontEnd(kernel)
    root, _ = _shown(kernel, "form = jupyter_slurm.submit_form()\nform")
    partition, gpus = (front.find(root, description=label) for label in ("Partition", "GPUs"))
    wait_for(lambda: "arandu" in front.models[partition].get("options", ()), "the partitions that there are")
    front.set(partition, value="arandu")
    front.set(gpus, value="9")
    wait_for(lambda: "This partition has 8 GPUs in all." in front.html(root), "more GPUs than there are")
    front.set(gpus, value="a100:1")
    front.set(front.find(root, description="Job name"), value="<b>two words")
    wait_for(
        lambda: "%%sbatch -p arandu --gpus=a100:1 -J &#x27;&lt;b&gt;two words&#x27;" in front.html(root), "the line"
    )
    wait_for(lambda: "8 GPUs" not in front.html(root), "nothing is doubtful")
    limit = front.find(root, description="Time limit")
    front.set(limit, value="1h 30 min")
    wait_for(lambda: "= 90 min" in front.html(root) and "--time=1:30:00" in front.html(root), "the time in words")
    front.set(limit, value="90")
    wait_for(lambda: "--time=90" in front.html(root), "a time as Slurm takes it")
    front.click(front.find(root, description="New cell"))
    wait_for(lambda: "This front end cannot add cells. Copy the line." in front.html(root), "nobody makes one here")
    submit = front.find(root, description="Submit")
    front.click(submit)
    wait_for(lambda: "The cell is empty" in front.html(root), "it wants a cell")
    (cell,) = (name for name, model in front.seen(root) if model["_model_name"] == "TextareaModel")
    front.set(cell, value="print('from the form')")
    front.click(submit)
    wait_for(lambda: "COMPLETED" in front.html(root), "the job, to its end")
    wait_for(lambda: "from the form" in front.html(root), "its card with the output")
    assert kernel.value("form.job.name, form.job.stdout.strip()") == "<b>two words from the form"


def _programs_without_scripts_of_ours_show_it(models: dict[str, Any], bundles: list[dict[str, Any]]) -> None:
    """Check the form for programs without the extension.

    VS Code has the widgets of ipywidgets, and no others. Without their kernel it shows the next type in its order,
    which is text/html (``orderOfMimeTypes`` in microsoft/vscode, extensions/ipynb/src/deserializers.ts): in a page
    without Jupyter's colours.
    """
    assert {model["model_module"] for model in models.values()} <= {
        "@jupyter-widgets/base",
        "@jupyter-widgets/controls",
    }
    assert {kind for bundle in bundles for kind in bundle} == {VIEW, "text/html", "text/plain"}
    for bundle in bundles:
        rich, plain = bundle["text/html"], bundle["text/plain"]
        assert bool(rich) == bool(plain)
        assert not re.search(r"<(script|link|style|iframe|img|svg)|<[^>]* on\w+=|javascript:|url\(", rich)
        assert not re.search(r"var\(--[\w-]+\)", rich), "a colour without another one in its place"


def test_a_file_keeps_what_was_known(environment: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    light = "%load_ext jupyter_slurm\nimport sys, jupyter_slurm\njob = get_ipython().run_cell_magic"
    light += f"('sbatch', '-J \"{HOSTILE}\" --begin now+3600', '#!/bin/sh')\nassert 'ipywidgets' not in sys.modules"
    cells = (
        light,
        "jupyter_slurm.monitor()",
        "job",
        "jupyter_slurm.submit_form()",
        "jupyter_slurm.cluster_view()",
        "job.cancel()",
    )
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(made, timeout=120, resources={"metadata": {"path": str(home)}}).execute()
    nbformat.validate(made)
    shown = [[output["data"] for output in cell.outputs if "data" in output] for cell in made.cells]
    assert [len(bundles) for bundles in shown[1:5]] == [
        1,
        2,
        1,
        1,
    ]  # controls below the card of the job
    assert HOSTILE in shown[1][0]["text/plain"]
    assert "a100" in shown[4][0]["text/plain"]
    widgets = made.metadata.pop("widgets")  # JupyterLab saves them only if configured
    _programs_without_scripts_of_ours_show_it(widgets[STATE]["state"], [one for each in shown for one in each])
    exported, _ = HTMLExporter().from_notebook_node(made)
    assert HOSTILE not in exported
    assert exported.count("&lt;img src=x") >= 2  # in the table and on the card
    assert "<code>%%sbatch</code>" in exported
