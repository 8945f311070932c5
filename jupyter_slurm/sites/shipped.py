"""Built-in site profiles: facts about clusters for all their users."""

from __future__ import annotations

from importlib import resources

__all__ = ["shipped_names", "shipped_text"]


def shipped_names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    files = resources.files("jupyter_slurm.sites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def shipped_text(name: str) -> str:
    """Return the text of a built-in profile.

    Raises
    ------
    KeyError
        No built-in profile has that name.
    """
    if name not in shipped_names():
        raise KeyError(name)
    return resources.files("jupyter_slurm.sites").joinpath(f"{name}.toml").read_text("utf-8")
