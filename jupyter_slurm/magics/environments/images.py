"""Magic ``%slurm image``: container images, and jobs that pull or build one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_slurm.client.images.image import USAGE, addressed, images, parse_image_line, remove, submit_image
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.render.table import CommandText, Table
from jupyter_slurm.client.submission.submit import Preview
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.errors import OptionError, SubmitRefused, UsageError
from jupyter_slurm.magics.cell_options import check_name, mention
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.user_namespace import local_variables, lookup_in, variables

__all__ = ["run", "show_job"]


def run(shell: Any, line: str, local_ns: Mapping[str, object]) -> Job | Preview | Table | CommandText:
    """Run the command after ``%slurm image``."""
    typed, lookup = line, lookup_in(shell, local_ns)
    cluster, line = addressed(typed)
    words = [token.text for token in tokenize(line, lookup, variables(line, cluster))]
    act = words[0] if words else "list"
    if act == "list" and len(words) < 2:
        return images(cluster)
    if act == "remove" and len(words) == 2:
        return CommandText(remove(words[1], cluster) + "\n")
    if act not in ("build", "pull"):
        raise UsageError(f"%slurm image has no subcommand {' '.join(words)!r}.", hint=f"Use `{USAGE}`.")
    prefix = f"%slurm image {typed.removesuffix(line)}"
    with pointing_at(prefix, line):
        asked = parse_image_line(cluster, line, lookup, variables(line, cluster))
        asked = asked._replace(file=parse_image_line(cluster, line, lookup, local_variables(line)).file)
        check_name(asked.parsed)
    try:
        made = submit_image(cluster, asked)
    except (SubmitRefused, OptionError) as error:
        add_blame(error, prefix + line[: asked.start], line[asked.start :], asked.parsed, "")
        raise
    if isinstance(made, Preview):
        return made
    show_job(shell, made, asked.parsed)
    return made


def show_job(shell: Any, job: Job, parsed: MagicLine) -> None:
    """Show the job that makes something: in its card, or with ``wait`` until its end; ``as=`` names it."""
    if name := parsed.keywords.get("as"):
        shell.push({name: job})
    if "wait" in parsed.keywords:
        notebook = live_view.notebook()
        if notebook is not None:
            job._show(notebook)
        job._wait(None, check=True, echo=notebook is None)
    else:
        mention(shell, job)
