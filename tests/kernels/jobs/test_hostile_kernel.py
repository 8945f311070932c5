"""A hostile kernel on a node: its variables run nothing in a kernel elsewhere, unless its cluster is trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.ways import Way

from jupyter_slurm.agent.hosting.discovery import write_private
from jupyter_slurm.server.notebook_moves import variables

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh")]

MOVES = "jupyter-slurm/api/server/moves"
LONG = 180
OWN = """
import os
import numpy as np
class Forged:
    def __reduce__(self):
        return os.system, ({command!r},)
bad, lazy, good, field = Forged(), range(3), {{"loss": [0.5]}}, np.arange(6.0).reshape(2, 3)
"""
# The kernel answers in place of the files that the server sends to it.
LIES = """
import base64, json, sys, types
class Answer:
    def __init__(self, **told): self.told = told
    def __repr__(self): return ""
    def _repr_mimebundle_(self, **_): return {{{type!r}: json.dumps(self.told)}}
header = json.dumps({{"format": 1, "python": "3.11.0", "executable": "", "items": [{item}]}}).encode()
content = b"jupyter-slurm values 1\\n" + len(header).to_bytes(8, "big") + header + {rest}
lies = sys.modules[{name!r}] = types.ModuleType("lies")
lies.take = lambda *_: Answer(size=len(content))
lies.piece = lambda start, end: Answer(data=base64.b64encode(content[start:end]).decode())
lies.drop = Answer
"""


class Moved:
    """A notebook with a kernel on a node; ``ran`` is made by what the kernel sends."""

    def __init__(self, server: Any, wait_for: Callable[..., Any], ran: Path) -> None:
        self._server, self._wait_for, self.ran = server, wait_for, ran

    def move(self, *names: str) -> tuple[str, str]:
        """Move the notebook to a kernel of this computer; return how that ended."""
        asked = {"notebook": "moved.ipynb", "kernel": "python3", "in": names}
        path = f"{MOVES}/{self._server.ask('POST', MOVES, asked)['id']}"

        def look() -> Any:
            told = self._server.ask("GET", path)
            return told if told["state"] in ("done", "failed") else None

        told = self._wait_for(look, "the move ends", LONG)
        return told["state"], told["text"]


@pytest.mark.timeout(600)
def test_variables_of_a_hostile_kernel_run_nothing_unless_its_cluster_is_trusted(
    study: Any, jupyter: Callable[..., Any], way: Way, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    server = jupyter("--Settings.trust=ask")
    kernel = server.open("moved.ipynb")
    moved = Moved(server, wait_for, tmp_path / "ran")
    begun = kernel.run(OWN.format(command=f"touch {moved.ran}"))
    assert begun.status == "ok", begun.error
    if way.is_remote:
        for names, code in {
            ("good", "bad"): "Forged, bad",
            ("lazy", "field"): "lazy",
            ("np", "good"): "import",
        }.items():
            state, text = moved.move(*names)
            assert state == "failed"
            assert f"{code}" in text.partition(" could run code in the other kernel, and the cluster far")[0]
            assert 'trust = "always"' in text
        for item, rest in (
            ({"kind": "source", "name": "good", "source": f"open({str(moved.ran)!r}, 'w')", "filename": "x"}, b""),
            ({"kind": "import", "source": f"open({str(moved.ran)!r}, 'w')"}, b""),
            (
                {"kind": "pickle", "name": "good", "names": ["good"], "safe": True, "sizes": [4]},
                b"N...",
            ),
            ({"kind": "pickle", "name": "print", "safe": True, "sizes": [1, 1]}, b".1"),
        ):
            lies = LIES.format(
                type=variables.TYPE, item=repr(item), rest=repr(rest), name=f"{variables._luggage()[0]}.transit"
            )
            assert kernel.run(lies).status == "ok"
            assert moved.move("good")[0] == "failed"
        assert kernel.run(f"del sys.modules['{variables._luggage()[0]}.transit']").status == "ok"
        assert not moved.ran.exists()
        state, text = moved.move("good", "field")
        assert (state, "Sent good, field" in text) == ("done", True)
        kernel.client.stop_channels()
        here = server.connect()
        assert here.value("good, field.sum(), field.shape, field.flags.writeable") == "{'loss': [0.5]} 15.0 (2, 3) True"
        server.close()
        state_file = study.folder / "state" / "trusted-clusters.json"
        write_private(str(state_file), json.dumps({"far": way.host.name}).encode())
        kernel = server.open("moved.ipynb")
        assert kernel.run(OWN.format(command=f"touch {moved.ran}")).status == "ok"
    state, text = moved.move("bad", "lazy", "np")
    assert (state, "Sent bad, lazy, np" in text) == ("done", True)
    assert moved.ran.exists()
    kernel.client.stop_channels()
    server.connect()
    server.close()
