"""Outputs of a job: the values that its cell returned."""

from __future__ import annotations

from typing import Any

from jupyter_slurm.errors import JobError
from jupyter_slurm.runner.variables import values_file as file_of

__all__ = ["Outputs", "read_outputs"]


class Outputs(dict[str, Any]):
    """The returned variables, by name.

    Attributes
    ----------
    errors : dict
        Missing variables: name to reason. Access to one of them raises JobError with the reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self.errors:
            raise JobError(f"{name} was not returned: {self.errors[name]}.", hint="Read job.stderr for details.")
        raise KeyError(name)

    @property
    def is_single(self) -> bool:
        """Return whether one name was requested."""
        return len(self) + len(self.errors) == 1

    def troubles(self, printed: str) -> list[str]:
        """Return the messages about missing variables that the job itself has not printed."""
        return [
            f"{name} was not returned: {reason}"
            for name, reason in self.errors.items()
            if file_of.LEFT_OUT.format(name, reason) not in printed
        ]


def read_outputs(content: bytearray) -> Outputs:
    """Read the values of a job one by one, so that an unreadable value does not affect the others.

    Arrays are views of the content, not copies.
    """
    outputs = Outputs()
    try:
        header, items = file_of.read(file_of.Content(content))
    except file_of.Unreadable as error:
        raise JobError(f"The values of the job cannot be read: {error}.", hint="Run the cell again.") from error
    for item, pieces in items:
        if item["kind"] not in ("pickle", "error"):  # returned values never run code in this process
            raise JobError("The values of the job cannot be read: the file is damaged.", hint="Run the cell again.")
        try:
            outputs.update(file_of.unpack(item, pieces, header))
        except file_of.Unreadable as error:
            reason = str(error).removeprefix(f"{item['name']}: ")
            outputs.errors.update(dict.fromkeys(file_of.names_of(item), reason))
    return outputs
