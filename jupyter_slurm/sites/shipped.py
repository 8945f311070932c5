"""The site profiles that ship: what is known of a cluster to all of its users."""

from __future__ import annotations

from importlib import resources

__all__ = ["shipped_names", "shipped_text"]


def shipped_names() -> list[str]:
    """Return the names of those that ship, sorted."""
    files = resources.files("jupyter_slurm.sites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def shipped_text(name: str) -> str:
    """Return the text of one of them.

    Raises
    ------
    KeyError
        None has that name.
    """
    if name not in shipped_names():
        raise KeyError(name)
    return resources.files("jupyter_slurm.sites").joinpath(f"{name}.toml").read_text("utf-8")
