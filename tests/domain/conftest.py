"""Tracing of the real sbatch: its parsing of an argv and of a script's header, without a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jupyter_slurm.embedded.machine.installation import Installation
from jupyter_slurm.embedded.machine.slurm_versions import installation_for, slurm_root
from jupyter_slurm.errors import EmbeddedError

DATA = Path(__file__).parents[1] / "data" / "options"


@dataclass
class Run:
    """One run of getopt_long(3) in the program."""

    argv: list[str]
    taken: list[tuple[str, str | None]] = field(default_factory=list)
    """Returned options: the first long name with the same value in the program's own table, and the argument."""
    refused: bool = False
    rest: list[str] | None = None
    """Operands; None if the program ended before it had read all options."""


@dataclass
class TracedSbatch:
    """sbatch of one version with a SPANK plugin, whose calls of getopt_long are recorded."""

    program: str
    version: tuple[int, int]
    folder: Path
    env: dict[str, str]

    def help(self) -> str:
        """Return the live ``--help``."""
        return subprocess.run([self.program, "--help"], env=self.env, capture_output=True, text=True, check=True).stdout

    def runs(self, *argv: str) -> list[Run]:
        """Run sbatch, and return its runs of getopt_long on user input."""
        trace = self.folder / "trace"
        trace.unlink(missing_ok=True)
        env = {
            **self.env,
            "LD_PRELOAD": str(self.folder / "getopt_trace.so"),
            "GETOPT_TRACE": str(trace),
        }
        self.done = subprocess.run(
            [self.program, *argv], env=env, stdin=subprocess.DEVNULL, capture_output=True, cwd=self.folder, timeout=60
        )
        return list(_read_trace(trace.read_bytes().decode().split("\0")))

    def command_line(self, *argv: str) -> Run:
        """Return the parsed argv. The script's header must stop sbatch before it contacts a controller."""
        return self.runs(*argv)[0]

    def header(self, script: str) -> list[list[str]]:
        """Return the words of a header, for each component of a heterogeneous job; empty if sbatch refuses them."""
        path = self.folder / "script"
        path.write_text(script, encoding="utf-8", newline="")
        return [run.argv[1:] for run in self.runs(str(path))[1:]]


def _read_trace(fields: list[str]) -> Iterator[Run]:
    names: dict[str, str] = {}
    run: Run | None = None
    at = 0

    def take(count: int) -> list[str]:
        nonlocal at
        at += count
        return fields[at - count : at]

    while at < len(fields) - 1:
        (kind,) = take(1)
        if kind == "T":
            names = {}
            take(1)
            while name := take(1)[0]:
                _, value = take(2)
                names.setdefault(value, name)
        elif kind == "B":
            (count,) = take(1)
            run = Run(take(int(count)))
        elif kind == "O":
            value, argument = take(2)
            assert run is not None
            if value == str(ord("?")):
                run.refused = True
                yield run
            else:
                name = names.get(value, chr(int(value)) if int(value) < 128 else value)
                run.taken.append((name, argument[1:] if argument[0] == "+" else None))
        else:
            (optind,) = take(1)
            assert run is not None
            run.rest = run.argv[int(optind) :]
            yield run
    if run is not None and run.rest is None and not run.refused:
        yield run


def _compile(source: Path, target: Path, *flags: str) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler is needed to look into sbatch")
    subprocess.run([compiler, "-Wall", "-shared", "-fPIC", *flags, "-o", target, source, "-ldl"], check=True)


def _environment(conf: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    return {**kept, "SLURM_CONF": str(conf), "LC_ALL": "C.UTF-8"}


def _traced(installation: Installation, folder: Path) -> TracedSbatch:
    program, conf = installation.program("sbatch"), folder / "slurm.conf"
    plugins = f"PluginDir={installation.plugin_dir}\n" if installation.plugin_dir else ""
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\n"
        f"PlugStackConfig={folder}/plugstack.conf\n{plugins}"
    )
    stack = folder / "plugstack.conf"
    stack.write_text("")
    env = _environment(conf)
    said = subprocess.run([program, "--version"], env=env, capture_output=True, text=True, check=True).stdout
    major, minor, micro = map(int, re.findall(r"\d+", said)[:3])
    _compile(DATA / "getopt_trace.c", folder / "getopt_trace.so")
    _compile(DATA / "spank_demo.c", folder / "spank_demo.so", f"-DVERSION={major << 16 | minor << 8 | micro}")
    stack.write_text(f"required {folder}/spank_demo.so\n")
    return TracedSbatch(program, (major, minor), folder, env)


@pytest.fixture(scope="session", params=["installed", pytest.param("26.05", marks=pytest.mark.slow)])
def traced_sbatch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TracedSbatch:
    """Provide the sbatch of this machine, then that of 26.05."""
    try:
        installation = installation_for("" if request.param == "installed" else str(slurm_root(request.param)))
        return _traced(installation, tmp_path_factory.mktemp(f"sbatch-{request.param}"))
    except EmbeddedError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
