"""Tests of Jupyter's protocol with a kernel behind two hosts, on a bare node and in containers of all kinds."""

from __future__ import annotations

import hashlib
import sys
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jupyter_kernel_test
import pytest
from jupyter_kernel_test.msgspec_v5 import validate_message
from replicas import Replica
from replicas.runtimes import unpack

from jupyter_slurm.sites.toml_writer import toml_text

SITE = "aau-aicloud"  # with a gateway and with Apptainer
IMAGE = "/user/share/singularity/images/tensorflow_20.10-tf2-py3.sif"
SMALL = ("-p", "batch", "-c", "2", "--mem=2G", "--time=30:00")
PATIENCE = 90.0  # seconds for an answer, on a busy machine
DISPLAY = "from IPython.display import HTML, clear_output, display; "

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.remote, pytest.mark.xdist_group(f"replica-{SITE}")]


@pytest.fixture(scope="module")
def bare(site_kernel: Callable[..., Any], user_python: tuple[list[str], dict[str, str]]) -> Any:
    """Provide the ipykernel of these tests, with a Python that the user on the site can run."""
    packages = ":".join(entry for entry in sys.path if entry.endswith("-packages"))
    return site_kernel(SITE, *SMALL, f"--export=ALL,PYTHONPATH={packages}", f"python={user_python[0][0]}")


@pytest.fixture(scope="module")
def apptainer_kernel(site_kernel: Callable[..., Any]) -> Any:
    """Provide an older ipykernel, of an image of the site."""
    return site_kernel(SITE, *SMALL, f"image={IMAGE}")


@pytest.fixture(scope="module")
def runtimes(replicas: Callable[[str], Replica], jupyter_tar: Path) -> str:
    """Provide a site with a folder for Charliecloud, and a node with Docker; return the node's name."""
    site = replicas(SITE)
    node = next(iter(site.nodes))
    tree = f"{site.site.storage.home}/notebook"
    unpack(jupyter_tar, site.on_disk(tree), site.user)
    docker = site.start_docker(node)
    docker.wait()
    docker.load(jupyter_tar, "jupyter-slurm/notebook:6")
    images = {"charliecloud": tree, "docker": "jupyter-slurm/notebook:6"}
    envs = {runtime: {"image": image, "runtime": runtime} for runtime, image in images.items()}
    with site.laptop.profile.open("a") as file:
        file.write("\n" + toml_text({"env": envs}))
    assert site.laptop.command("disconnect", SITE, "--yes").returncode == 0
    said = site.laptop.connect()
    assert said.code == 0, said.text
    return node


@pytest.fixture(scope="module")
def docker_kernel(site_kernel: Callable[..., Any], runtimes: str) -> Any:
    return site_kernel(SITE, *SMALL, "-w", runtimes, "env=docker")


@pytest.fixture(scope="module")
def charliecloud_kernel(site_kernel: Callable[..., Any], runtimes: str) -> Any:
    return site_kernel(SITE, *SMALL, "env=charliecloud")


def send(
    kernel: Any, kind: str, content: dict[str, Any], channel: str = "shell", buffers: Sequence[bytes] = (), **more: str
) -> str:
    """Send a message, with an extended header; return its id."""
    message = kernel.client.session.msg(kind, content)
    message["header"].update(more)
    message["buffers"] = list(buffers)
    getattr(kernel.client, f"{channel}_channel").send(message)
    return str(message["header"]["msg_id"])


def answered(kernel: Any, message: str) -> dict[str, Any]:
    """Return the answer to a request on the control channel."""
    while True:
        reply = kernel.client.get_control_msg(timeout=PATIENCE)
        if reply["parent_header"].get("msg_id") == message:
            content: dict[str, Any] = reply["content"]
            return content


class Patient:
    """A channel, or a client, with long timeouts: the machine is busy, and nodes are far."""

    def __init__(self, one: Any) -> None:
        self._one = one

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_channel"):
            return Patient(getattr(self._one, name))
        return getattr(self._one, name)

    def get_msg(self, timeout: float | None = None) -> Any:
        return self._one.get_msg(timeout=PATIENCE)

    def get_shell_msg(self, timeout: float | None = None) -> Any:
        return self._one.get_shell_msg(timeout=PATIENCE)


class Protocol(jupyter_kernel_test.KernelTests):
    """Jupyter's own tests of an ipykernel. Each message is checked against the specification."""

    __test__ = False  # cannot run by itself, without a kernel

    language_name, file_extension = "python", ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = ({"text": "zi", "matches": {"zip"}},)
    complete_code_samples = ("1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n")
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2")
    invalid_code_samples = ("import = 7q",)
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    )
    code_display_data = ({"code": f"{DISPLAY}display(HTML('<b>test</b>'))", "mime": "text/html"},)
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = f"{DISPLAY}clear_output()"

    def flush_channels(self) -> None:
        """Read all messages: the last request is answered, and published, last."""
        asked = self.kc.kernel_info()
        for channel, is_last in ((self.kc.shell_channel, lambda _: True), (self.kc.iopub_channel, _is_idle)):
            while True:
                message = channel.get_msg()
                validate_message(message)
                if message["parent_header"].get("msg_id") == asked and is_last(message):
                    break


def _is_idle(message: dict[str, Any]) -> bool:
    return message["content"].get("execution_state") == "idle"


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("bare", ""),
        ("apptainer_kernel", "singularity"),
        ("docker_kernel", "docker"),
        ("charliecloud_kernel", "charliecloud"),
    ],
)
def test_a_kernel_does_what_each_has_to(request: pytest.FixtureRequest, name: str, within: str) -> None:
    kernel = request.getfixturevalue(name)
    told = kernel.value("__import__('os').environ.get('JUPYTER_SLURM_CONTAINER', '')")
    assert told.partition(" ")[0] == within, told
    Protocol.kc = Patient(kernel.client)
    Protocol.setUpClass = Protocol.tearDownClass = lambda: None  # the kernel exists already, and stays
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Protocol).run(result)
    assert not result.errors + result.failures, "\n".join(text for _, text in result.errors + result.failures)
    assert result.testsRun >= 12
    # For IPython, a continued session has the number 0 in a range.
    assert [why for _, why in result.skipped] == ["History range not supported"]


def test_a_widget_is_moved_and_buffers_travel_both_ways(bare: Any) -> None:
    told = bare.run(
        "import ipywidgets\nslider = ipywidgets.IntSlider(value=1)\n"
        "slider.observe(lambda change: print('moved to', change['new']), 'value')\nprint(slider.model_id)"
    )
    moved = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    message = send(bare, "comm_msg", {"comm_id": told.stdout.strip(), "data": moved})
    bare.wait_for_text(message, "moved to 7\n")
    assert bare.value("slider.value") == "7"

    told = bare.run(
        "from comm import create_comm\ncomm = create_comm(target_name='test')\n"
        "comm.on_msg(lambda told: comm.send({}, buffers=[bytes(part)[::-1] for part in told['buffers']]))\nprint(comm.comm_id)"
    )
    sent = [bytes(range(256)) * 4000, b"end"]
    message = send(bare, "comm_msg", {"comm_id": told.stdout.strip(), "data": {}}, buffers=sent)
    answer = bare.heard(message, lambda one: one["msg_type"] == "comm_msg")
    assert [bytes(part) for part in answer["buffers"]] == [part[::-1] for part in sent]


def test_a_breakpoint_stops_a_cell(bare: Any) -> None:
    numbers = iter(range(1, 100))

    def ask(command: str, **arguments: Any) -> dict[str, Any]:
        asked = {"type": "request", "seq": next(numbers), "command": command, "arguments": arguments}
        reply = answered(bare, send(bare, "debug_request", asked, channel="control"))
        assert reply["success"], reply
        body: dict[str, Any] = reply.get("body") or {}
        return body

    ask("initialize", clientID="test", adapterID="", linesStartAt1=True, columnsStartAt1=True, pathFormat="path")
    ask("attach")
    code = "x = 20\ny = x + 1\nprint('y', y)"
    source = ask("dumpCell", code=code)["sourcePath"]
    points = ask("setBreakpoints", source={"path": source}, breakpoints=[{"line": 3}], sourceModified=False)[
        "breakpoints"
    ]
    assert [point["verified"] for point in points] == [True]
    ask("configurationDone")
    cell = bare.begin(code)
    stopped = bare.heard(None, lambda one: one["msg_type"] == "debug_event" and one["content"]["event"] == "stopped")
    thread = stopped["content"]["body"]["threadId"]
    frame = ask("stackTrace", threadId=thread)["stackFrames"][0]
    assert (frame["line"], frame["source"]["path"]) == (3, source)
    variables = {one["name"]: one["value"] for one in ask("inspectVariables")["variables"]}
    assert variables["y"] == "21"
    ask("continue", threadId=thread)
    assert bare.end(cell).stdout == "y 21\n"
    ask("disconnect", restart=False, terminateDebuggee=False)


def test_a_subshell_runs_while_a_cell_does(bare: Any) -> None:
    """The cell ends by an action of the subshell, which does not wait for the cell."""
    made = answered(bare, send(bare, "create_subshell_request", {}, channel="control"))
    assert made["status"] == "ok"
    cell = bare.begin("import threading\ngate = threading.Event()\nprint('waits', flush=True)\nassert gate.wait(90)")
    bare.wait_for_text(cell, "waits\n")
    content = {
        "code": "gate.set()",
        "silent": False,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
    }
    send(bare, "execute_request", content, subshell_id=made["subshell_id"])
    assert bare.end(cell).status == "ok"
    deleted = send(bare, "delete_subshell_request", {"subshell_id": made["subshell_id"]}, channel="control")
    assert answered(bare, deleted)["status"] == "ok"


def test_a_large_output_arrives_as_it_was_printed(bare: Any) -> None:
    told = bare.run(
        "import hashlib, random\ntext = random.Random(1).randbytes(100_000).hex()\n"
        "for number in range(100): print(number, text)\n"
    )
    assert told.status == "ok", told.error
    lines = told.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [str(number) for number in range(100)]
    own = {hashlib.sha256(line.partition(" ")[2].encode()).hexdigest() for line in lines}
    assert own == {bare.value("hashlib.sha256(text.encode()).hexdigest()")}
