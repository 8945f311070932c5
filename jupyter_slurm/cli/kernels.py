"""Command ``jupyter slurm kernel``: remote kernels, which a local Jupyter offers beside its own."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import with_cluster_first
from jupyter_slurm.cli.terminal import add_verbatim, is_help
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.kernels.kernelspecs import KernelSpec

__all__ = ["add_parser", "run"]

_USAGE = f"""\
Add remote kernels to the Jupyter of this computer. The kernel runs on a node; the notebook and its files stay on this
computer.

  jupyter slurm kernel add [CLUSTER] [options of sbatch] [keywords]
  jupyter slurm kernel list [--json]
  jupyter slurm kernel remove NAME
  jupyter slurm kernel switch NOTEBOOK KERNEL [in=x,model]
  jupyter slurm kernel follow NOTEBOOK [in=x,model]

  jupyter slurm kernel add mycluster -p gpu --gpus 1 --time 8:00:00
  jupyter slurm kernel add -p gpu --gpus 1 image=nvcr.io/nvidia/pytorch:24.01-py3 name="PyTorch on a GPU"
  jupyter slurm kernel add on=train
  jupyter slurm kernel switch train.ipynb "PyTorch on a GPU" in=data,model

The cluster of `add` can also be given as for other commands: --cluster NAME.

JupyterLab's launcher, `jupyter console --kernel NAME` and `jupyter nbconvert --execute` offer the kernel. When a
notebook starts it, Slurm is asked for an allocation, and the kernel runs as a step in it. A restart of the kernel needs
no queueing.

`switch` moves an open notebook to such a kernel, or back to a local kernel. `follow` asks for the next allocation of
the notebook's kernel before the time limit. The notebook keeps its old kernel until the new one is ready. in= names
the variables, functions and classes to copy (Python only). They are checked before Slurm is asked for an allocation,
and copied at the end. Press Ctrl-C to cancel. Allocations that the old kernel holds with %salloc stay open for the
next kernel of the notebook; the keyword `release` releases them.

Keywords of `add` (without dashes; options of sbatch have dashes):
  name=NAME     displayed name (default: from the request, as "devwork · 1 GPU · 1 h")
  env=NAME      environment: a name of the profile, the directory of a venv or a conda environment, or an image:
                docker://NAME:TAG
  image=NAME:TAG
                container image: of a registry, a SIF file, or the directory of an unpacked image
  modules=A,B   modules to load first, as `module load` does
  python=PATH   Python of the kernel on the node; it needs ipykernel
  kernel=NAME   another kernel that is installed on the node: ir, julia-1.10, ... (default: python3)
  transport=tcp use ports of the node, for kernels without Unix sockets (deno); other users can read the traffic
  dir=DIR       directory on the cluster in which the kernel starts
  on=NAME       run in an open allocation (%salloc as=NAME) instead of a new one
  idle=TIME     stop the kernel after this time without a running cell: 30m, 2h (default: 1d)
  lease=TIME    stop the kernel after this time without its notebook (default: 1h)

{page_url("how-to/kernels-on-nodes")}"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    add_verbatim(
        subparsers,
        "kernel",
        usage="jupyter slurm kernel add [CLUSTER] [options of sbatch] [keywords] | list | remove NAME\n"
        "       jupyter slurm kernel switch NOTEBOOK KERNEL [in=x,y] [release] | follow NOTEBOOK [in=x,y] [release]",
        description=_USAGE,
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    act, rest = (args.words[0], args.words[1:]) if args.words else ("", [])
    if is_help(args.words) or not act:
        args.explain()
        return 0 if act else 2
    from jupyter_slurm.client.kernels.kernelspecs import add, kernelspecs, listed, remove
    from jupyter_slurm.client.render.terminal import printable

    if act == "add":
        added = add(with_cluster_first(rest))
        print(printable(f"Added the kernel {added.display_name!r} as {added.name}: {added.folder}"))
    elif act == "list" and rest in ([], ["--json"]):
        known = listed()
        if rest:
            print(json.dumps([_to_json(one) for one in known], indent=2))
        else:
            print(kernelspecs() if known else "No remote kernels. Add one with `jupyter slurm kernel add`.")
    elif act == "remove" and len(rest) == 1:
        print(printable(f"Removed the kernel {remove(rest[0]).display_name!r}."))
    elif act in ("switch", "follow"):
        return _move(act, rest)
    else:
        raise UsageError(
            f"`kernel {shlex.join(args.words)}` is not a valid command.",
            hint="Use add, list, remove NAME, switch NOTEBOOK KERNEL, or follow NOTEBOOK.",
        )
    return 0


def _to_json(kernelspec: KernelSpec) -> dict[str, object]:
    """Return a kernelspec as ``--json`` prints it."""
    fields: dict[str, object] = asdict(kernelspec)
    fields["words"] = fields.pop("arguments")
    return fields


def _move(act: str, arguments: list[str]) -> int:
    """Move a notebook, and wait for the end of the move; an interrupt cancels it."""
    from jupyter_slurm.client.kernels.notebook_moves import allocation_note, find, parse_move_line
    from jupyter_slurm.client.render.terminal import printable

    if not arguments:
        raise UsageError(
            f"{act} needs the file of an open notebook.", hint="`jupyter slurm kernel --help` shows examples."
        )
    to = parse_move_line(act, arguments[1:])
    notebook = find(arguments[0])
    if note := allocation_note(notebook.ending_allocations, keep=to.keep):
        print(printable(note), flush=True)
    move = notebook.move(to)
    try:
        move.wait(lambda text: print(printable(text), flush=True))
    except KeyboardInterrupt:
        move.cancel()
        print(printable(move.text), file=sys.stderr)
        return 130
    return 0
