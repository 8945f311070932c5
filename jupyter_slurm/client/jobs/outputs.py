"""Outputs of a job: the values that its cell has left."""

from __future__ import annotations

from typing import Any

from jupyter_slurm.errors import JobError
from jupyter_slurm.runner.variables import values as file_of

__all__ = ["Outputs", "read_outputs"]


class Outputs(dict[str, Any]):
    """The variables that came back, by name.

    Attributes
    ----------
    errors : dict
        Why others did not: name to reason. To ask for one of them raises JobError with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self.errors:
            raise JobError(f"{name} did not come back: {self.errors[name]}", hint="job.stderr may tell more.")
        raise KeyError(name)

    @property
    def is_one(self) -> bool:
        """Whether one name was asked for."""
        return len(self) + len(self.errors) == 1

    def troubles(self, heard: str) -> list[str]:
        """Return what is to be said of those that did not come back, beside what the job has printed about them."""
        return [
            f"{name} did not come back: {reason}"
            for name, reason in self.errors.items()
            if file_of.LEFT_OUT.format(name, reason) not in heard
        ]


def read_outputs(content: bytearray) -> Outputs:
    """Read what a job of ours left: each value for itself, so that one which cannot be read takes no other with it.

    Arrays stay where they lie in the content.
    """
    outputs = Outputs()
    try:
        header, items = file_of.read(file_of.Content(content))
    except file_of.Unreadable as error:
        raise JobError(f"The values of the job cannot be read: {error}.", hint="Run the cell again.") from error
    for item, pieces in items:
        if item["kind"] not in ("pickle", "error"):  # nothing that a job brings back is run here
            raise JobError("The values of the job cannot be read: they are no values.", hint="Run the cell again.")
        try:
            outputs.update(file_of.unpack(item, pieces, header))
        except file_of.Unreadable as error:
            reason = str(error).removeprefix(f"{item['name']}: ")
            outputs.errors.update(dict.fromkeys(file_of.names_of(item), reason))
    return outputs
