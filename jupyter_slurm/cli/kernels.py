"""Command ``jupyter slurm kernel``: remote kernels, which a local Jupyter offers beside its own."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.terminal import add_verbatim
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.kernels.kernelspecs import KernelSpec

__all__ = ["add_parser", "run"]

_USAGE = """\
Have the Jupyter here offer a kernel that runs on a node: the notebook, and its files, stay on this machine.

  jupyter slurm kernel add [CLUSTER] [options of sbatch] [words]
  jupyter slurm kernel list [--json]
  jupyter slurm kernel remove NAME
  jupyter slurm kernel switch NOTEBOOK KERNEL [in=x,model]
  jupyter slurm kernel follow NOTEBOOK [in=x,model]

  jupyter slurm kernel add arandu -p arandu --gpus 1 --time 8:00:00
  jupyter slurm kernel add arandu -p arandu --gpus 1 image=nvcr.io/nvidia/pytorch:24.01-py3 name="PyTorch on arandu"
  jupyter slurm kernel add on=train        in the allocation that %salloc as=train has asked for
  jupyter slurm kernel switch train.ipynb "PyTorch on arandu" in=data,model

It is in the launcher of JupyterLab, in `jupyter console --kernel NAME`, in `jupyter nbconvert --execute`. When a
notebook begins with it, Slurm is asked for an allocation, in which the kernel is a step: a restart takes no queue.

`switch` moves a notebook that is open in a Jupyter of this machine to such a kernel, or back to one of this machine;
`follow` asks for the next allocation of the kernel that it has, before its time limit. The notebook goes on with its
old kernel until the new one is there. in= names the variables, functions and classes that come along (Python only):
they are looked at before Slurm is asked for anything, and taken again at the end. Ctrl-C gives it up.

Words of `add` (ours have no dashes, Slurm's have):
  name=NAME     how it is shown; by default what is asked for: "Python on arandu, 1 GPU"
  env=NAME      the environment: a name, or the folder of a venv or of conda; an image, too: docker://NAME:TAG
  image=NAME:TAG
                the image that it runs in: of a registry, a SIF file, or the folder of an unpacked one
  python=PATH   the Python there whose kernel it is; it needs ipykernel
  kernel=NAME   another kernel that is installed there: ir, julia-1.10 …; by default python3
  transport=tcp
                ports of the node, for a kernel that knows no Unix sockets (deno): other users can read what it says
  dir=FOLDER    the folder there that it begins in
  on=NAME       an allocation that is open, instead of one of its own
  idle=TIME     it ends when nothing has run for so long: 30m, 2h; by default a day
  lease=TIME    it ends when its notebook was away for so long; by default an hour"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    add_verbatim(
        subparsers,
        "kernel",
        summary="kernels on nodes, for the launcher of a Jupyter here: add, list, remove, switch, follow",
        usage="jupyter slurm kernel add [CLUSTER] [options of sbatch] [words] | list | remove NAME\n"
        "       jupyter slurm kernel switch NOTEBOOK KERNEL [in=x,y] | follow NOTEBOOK [in=x,y]",
        description=_USAGE,
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    act, rest = (args.words[0], args.words[1:]) if args.words else ("", [])
    if {"-h", "--help"} & set(args.words) or not act:
        args.explain()
        return 0 if act else 2
    from jupyter_slurm.client.kernels.kernelspecs import add, kernelspecs, listed, remove
    from jupyter_slurm.client.render.terminal import printable

    if act == "add":
        added = add(rest)
        print(printable(f"{added.display_name}\nJupyter offers it as {added.name}: {added.folder}"))
    elif act == "list" and rest in ([], ["--json"]):
        known = listed()
        if rest:
            print(json.dumps([_to_json(one) for one in known], indent=2))
        else:
            print(kernelspecs() if known else "No kernels on nodes. `jupyter slurm kernel add` adds one.")
    elif act == "remove" and len(rest) == 1:
        print(printable(f"Removed: {remove(rest[0]).display_name}"))
    elif act in ("switch", "follow"):
        return _move(act, rest)
    else:
        raise UsageError(
            f"kernel has no {shlex.join(args.words)}.",
            hint="kernel add [CLUSTER] …, list, remove NAME, switch NOTEBOOK KERNEL",
        )
    return 0


def _to_json(kernelspec: KernelSpec) -> dict[str, object]:
    """Return a kernelspec as ``--json`` prints it."""
    fields: dict[str, object] = asdict(kernelspec)
    fields["words"] = fields.pop("arguments")
    return fields


def _move(act: str, arguments: list[str]) -> int:
    """Move a notebook, and wait for the end of the move; an interrupt cancels it."""
    from jupyter_slurm.client.kernels.notebook_moves import find, parse_move_line
    from jupyter_slurm.client.render.terminal import printable

    if not arguments:
        raise UsageError(f"{act} needs the file of a notebook that is open.", hint="jupyter slurm kernel --help")
    to = parse_move_line(act, arguments[1:])
    move = find(arguments[0]).move(to)
    try:
        move.wait(lambda text: print(printable(text), flush=True))
    except KeyboardInterrupt:
        move.cancel()
        print(printable(move.text), file=sys.stderr)
        return 130
    return 0
