"""Outputs of a job: the values that its cell returned."""

from __future__ import annotations

from typing import Any, Final

from jupyter_slurm.client.trust import HOW_TO_TRUST, ask_trust, is_trusted
from jupyter_slurm.errors import JobError
from jupyter_slurm.runner.variables import values_file as file_of

__all__ = ["Outputs", "read_outputs"]

_UNTRUSTED: Final = (
    "it is a pickle, which can run code on this computer, and the cluster {} is not trusted. Numbers, texts, lists, "
    "dicts, arrays and tables need no trust"
)


class Outputs(dict[str, Any]):
    """The returned variables, by name.

    Attributes
    ----------
    errors : dict
        Missing variables: name to reason. Access to one of them raises JobError with the reason.
    hints : dict
        Next steps for some of them: name to instruction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, str] = {}
        self.hints: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self.errors:
            hint = self.hints.get(name, "Read job.stderr for details.")
            raise JobError(f"{name} was not returned: {self.errors[name]}.", hint=hint)
        raise KeyError(name)

    @property
    def is_single(self) -> bool:
        """Return whether one name was requested."""
        return len(self) + len(self.errors) == 1

    def troubles(self, printed: str) -> list[str]:
        """Return the messages about missing variables that the job itself has not printed."""
        return [
            f"{name} was not returned: {reason}" + (f". {self.hints[name]}" if name in self.hints else "")
            for name, reason in self.errors.items()
            if file_of.LEFT_OUT.format(name, reason) not in printed
        ]


def read_outputs(content: bytearray, cluster: str = "local", *, asks: bool = True) -> Outputs:
    """Read the values of a job one by one, so that an unreadable value does not affect the others.

    Arrays are views of the content, not copies. A pickle is loaded only if its cluster is trusted.

    Parameters
    ----------
    content : bytearray
        File of the values.
    cluster : str
        Cluster from which it comes.
    asks : bool
        Whether the user may be asked about the trust in the cluster.

    Raises
    ------
    JobError
        The file is damaged.
    """
    outputs = Outputs()
    try:
        header, items = file_of.read(file_of.Content(content))
    except file_of.Unreadable as error:
        raise JobError(f"The values of the job cannot be read: {error}.", hint="Run the cell again.") from error
    for item, pieces in items:
        if item["kind"] not in ("pickle", "error"):  # returned values never run code in this process
            raise JobError("The values of the job cannot be read: the file is damaged.", hint="Run the cell again.")
        names = file_of.names_of(item)
        is_code = item["kind"] == "pickle" and not file_of.is_safe(item)
        if is_code and not (ask_trust(cluster, ", ".join(names)) if asks else is_trusted(cluster)):
            outputs.errors.update(dict.fromkeys(names, _UNTRUSTED.format(cluster)))
            outputs.hints.update(dict.fromkeys(names, HOW_TO_TRUST))
            continue
        try:
            outputs.update(file_of.unpack(item, pieces, header))
        except file_of.Unreadable as error:
            reason = str(error).removeprefix(f"{item['name']}: ")
            outputs.errors.update(dict.fromkeys(names, reason))
    return outputs
