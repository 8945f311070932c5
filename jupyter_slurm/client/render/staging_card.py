"""Staging on the job card: folders, notes, abandoned results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.domain.staging_rules import names

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["is_copy_back_abandoned", "stage_facts", "stage_notes"]


def stage_facts(data: api.Job) -> list[str]:
    """Summarize the results that were copied back."""
    stage = data.get("stage")
    if not stage or stage.get("state") != "back":
        return []
    count = stage["files"]
    return [f"{count or 'no'} new or changed file{'' if count == 1 else 's'} copied back"]


def stage_notes(data: api.Job) -> list[str]:
    """Return the folders of a job, and the results that were not copied back."""
    stage = data.get("stage")
    if not stage:
        return []
    said = []
    places = "; ".join(f"{folder['source']} is {folder['dest']} on the cluster" for folder in stage["folders"])
    if stage["state"] == "there":
        said.append(f"Staged: {places}" + (f"; on the node below {stage['local']}" if stage["local"] else "") + ".")
    if stage["state"] == "coming":
        far = f", {stage['done'] / 1e6:.0f} of {stage['total'] / 1e6:.0f} MB" if stage["total"] else ""
        said.append(f"New and changed files are being copied back{far}. Until then they are in {_places(stage)}.")
    if stage["state"] == "elsewhere":
        said.append(f"Its results are copied back to the computer that submitted it. They are in {_places(stage)}.")
    if stage["left"]:
        said.append(
            f"Changed on this computer, too, and therefore left in {_places(stage)}: {names(stage['left'])}. "
            "Your files are unchanged."
        )
    if held := stage.get("held"):
        said.append(
            "Not copied back, because programs of this computer run such files by themselves: "
            f"{names(held)}. They are in {_places(stage)}. To copy them after you have looked at them: "
            f"`jupyter slurm bring {_name(data)} --also FILE`, or job.bring(also=[...])."
        )
    if refused := stage.get("refused"):
        said.append(
            f"Never copied back: {names(refused)}. These are links that lead out of the folder, files of git, SSH, "
            "rsync or a virtual environment, and entries that were not sent as the cluster had listed them."
        )
    if stage["error"]:
        said.append(
            f"Not all files were copied back: {stage['error']} They are in {_places(stage)}; {_next_time(data)}"
        )
    return said


def is_copy_back_abandoned(data: api.Job) -> bool:
    """Return whether results exist only on the cluster, and jupyter_slurm no longer tries to copy them back."""
    stage = data.get("stage")
    return bool(stage and stage.get("given_up"))


def _next_time(data: api.Job) -> str:
    if not is_copy_back_abandoned(data):
        return "the next job of this folder brings it."
    return f"`jupyter slurm bring {_name(data)}`, or job.bring(), tries again."


def _name(data: api.Job) -> str | None:
    return data.get("id") or data.get("key")


def _places(stage: api.JobStage) -> str:
    return ", ".join(folder["dest"] for folder in stage["folders"])
