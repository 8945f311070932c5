"""Lines of a batch script that Slurm reads beside ``#SBATCH``: those of PBS and LSF, and those of burst buffers.

sbatch reads ``#BSUB`` lines, or ``#PBS`` lines if there are none. They count over ``#SBATCH``. The environment and the
command line count over them. slurmctld reads ``#DW`` and ``#BB`` lines before the first command for a burst buffer, and
plugins of a site may read others like them. Source: sbatch(1), and the observed behaviour of sbatch 22.05.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Iterator, Sequence

from jupyter_slurm.domain.scripts.header_words import header_words
from jupyter_slurm.errors import CellError

__all__ = ["other_lines", "other_options"]

_MAX_COMMANDS = 100  # sbatch reads no #PBS and no #BSUB after as many lines that are not comments
_DIRECTIVE = re.compile(r"#[A-Z]\w*(?=\s)")


def _table(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


# Letters of the options as getopt(3) gets them from sbatch, and the long names: those with a value, and the others.
_PBS = (
    "a:A:c:C:e:hIj:J:k:l:m:M:N:o:p:q:r:S:t:u:v:VW:z",
    _table(
        "start_time=a account=A checkpoint=c working_dir=C error=e job_array=J keep=k resource_list=l mail_options=m "
        "mail_user_list=M job_name=N out=o priority=p destination=q rerunable=r script_path=S array=t running_user=u "
        "variable_list=v attributes=W"
    ),
    _table("hold=h interactive=I all_env=V no_std=z"),
)
_BSUB = (
    "c:e:J:m:M:n:o:q:W:x",
    _table("cwd=c error_file=e job_name=J hostname=m memory_limit=M output_file=o queue_name=q time=W"),
    _table("exclusive=x"),
)

# The option of sbatch that a letter stands for. The other letters mean nothing, or only to sbatch.
_PBS_MEANING = _table(
    "a=begin A=account e=error h=hold J=array t=array m=mail-type M=mail-user N=job-name o=output p=nice q=partition "
    "v=export"
)
_BSUB_MEANING = _table("c=chdir e=error J=job-name m=nodelist n=ntasks o=output q=partition W=time x=exclusive")
_RESOURCE = re.compile(
    r"(?P<name>arch|file|host|opsys|other|pmem|pvmem|vmem|software|naccelerators|nice|nodes|proc|pcput|cput|walltime|mem)"
    r"=(?P<value>[^,]*)"
    r"|(?P<part>select|ncpus|mpiprocs)=(?P<count>[^:]*)"
)
_RESOURCE_MEANING = _table(
    "walltime=time cput=time pcput=time nice=nice proc=constraint select=nodes ncpus=mincpus mpiprocs=ntasks-per-node"
)


def other_lines(text: str) -> list[str]:
    """Return the lines that Slurm reads beside ``#SBATCH``, for use in another script."""
    kept, commands = [], 0
    is_head = True
    for line in text.split("\n"):
        if not line.startswith("#"):
            commands += 1
        elif line.startswith(("#PBS", "#BSUB")) or (
            is_head and _DIRECTIVE.match(line) and not line.startswith(("#SBATCH", "#SLURM"))
        ):
            kept.append(line.rstrip("\r"))
        is_head = is_head and not (line.strip() and not line.lstrip().startswith("#"))
        if commands > _MAX_COMMANDS:
            break
    return kept


def other_options(text: str) -> dict[str, str | None]:
    """Return the options of sbatch that ``#PBS`` or ``#BSUB`` lines stand for, by long name.

    Lines that sbatch refuses mean nothing: sbatch itself names their error.
    """
    lines = other_lines(text)
    try:
        if any(line.startswith("#BSUB") for line in lines):
            words = ["-c" if word == "-cwd" else word for word in _words(lines, "#BSUB")]
            return dict(_meaning(_parsed(words, _BSUB), _BSUB_MEANING))
        return dict(_pbs(_parsed(_words(lines, "#PBS"), _PBS)))
    except (CellError, getopt.GetoptError):
        return {}


def _words(lines: Sequence[str], mark: str) -> list[str]:
    found = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    return [word for number, line in enumerate(found, 1) for word in header_words(line, number)]


def _parsed(words: Sequence[str], table: tuple[str, dict[str, str], dict[str, str]]) -> list[tuple[str, str]]:
    """Return each option as its letter and its value; the first word that is no option is an error, as for sbatch."""
    letters, with_value, alone = table
    long = {f"--{name}": letter for name, letter in (with_value | alone).items()}
    options, rest = getopt.getopt(list(words), letters, [*(f"{name}=" for name in with_value), *alone])
    if rest:
        raise getopt.GetoptError(f"{rest[0]} is not an option")
    return [(long.get(name, name.lstrip("-")), value) for name, value in options]


def _meaning(options: Sequence[tuple[str, str]], meanings: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    for letter, value in options:
        name = meanings.get(letter)
        if name in ("output", "error"):
            yield name, "/dev/null" if value.lower() == "none" else value
        elif name == "nodelist":
            yield name, value.replace(" ", ",")
        elif name == "ntasks":  # LSF: the least and the largest number
            yield name, value.rpartition(",")[2]
        elif name is not None:
            yield name, value or None


def _pbs(options: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str | None]]:
    exported: list[str] = []
    for letter, value in options:
        attribute, _, content = value.partition("=")
        if letter == "l":
            yield from _resources(value)
        elif letter == "W" and attribute.lower() == "depend":
            yield "dependency", content
        elif letter == "v":
            exported.append(value)
            yield "export", ",".join(exported)
        else:
            yield from _meaning([(letter, value)], _PBS_MEANING)


def _resources(text: str) -> Iterator[tuple[str, str]]:
    counts: dict[str, int] = {}
    for found in _RESOURCE.finditer(text):
        name, value = found["name"] or found["part"], found["value"] or found["count"] or ""
        if name == "mem":
            yield "mem", value[:-1] if value[-1:] in ("b", "B") else value
        elif name == "nodes":
            yield from _nodes(value)
        elif name == "naccelerators":
            yield "gres", f"gpu:{value}"
        elif name in _RESOURCE_MEANING:
            yield _RESOURCE_MEANING[name], value
        if found["part"] and value.isdecimal():
            counts[name] = int(value)
    if len(counts) == 3 and counts["ncpus"] > counts["mpiprocs"] > 0:
        yield "cpus-per-task", str(counts["ncpus"] // counts["mpiprocs"])


def _nodes(text: str) -> Iterator[tuple[str, str]]:
    """Return the meaning of ``nodes=2:ppn=4+name``: nodes, tasks on all of them together, and names."""
    parts = [part for part in re.split("[+:]", text) if part]
    count = sum(int(number[0]) for part in parts if (number := re.match(r"\d+", part)))
    each = sum(int(part[4:]) for part in parts if re.fullmatch(r"ppn=\d+", part))
    if count:
        yield "nodes", str(count)
    if each:
        yield "ntasks", str(each * (count or 1))
    if names := [part for part in parts if part[0].isalpha() and not part.startswith("ppn=")]:
        yield "nodelist", ",".join(names)
