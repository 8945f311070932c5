"""Built-in site profiles: facts about clusters for all their users."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources

__all__ = ["ShippedProfile", "nearest_shipped", "resolve_shipped", "shipped_names", "shipped_profiles", "shipped_text"]


@dataclass(frozen=True)
class ShippedProfile:
    """Name and description of a built-in profile.

    Attributes
    ----------
    name : str
        Name of the profile.
    title : str
        Displayed name of the cluster, with its site.
    about : str
        Description of the cluster in a line.
    aliases : tuple of str
        Other names of the cluster.
    """

    name: str
    title: str
    about: str
    aliases: tuple[str, ...] = ()


@functools.cache
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


@functools.cache
def shipped_profiles() -> Sequence[ShippedProfile]:
    """Return names and descriptions of the built-in profiles, sorted by name."""
    found = []
    for name in shipped_names():
        data = tomllib.loads(shipped_text(name))
        found.append(ShippedProfile(name, data["title"], data["about"], tuple(data.get("aliases", ()))))
    return found


def resolve_shipped(word: str) -> str | None:
    """Return the built-in profile with this name or alias; None if there is none."""
    return next((one.name for one in shipped_profiles() if word in (one.name, *one.aliases)), None)


def nearest_shipped(word: str) -> str | None:
    """Return the built-in profile whose name or alias a user probably meant; None if no name is similar."""
    meant = _plain(word)
    names = {_plain(known): one.name for one in shipped_profiles() for known in (one.name, *one.aliases)}
    if meant in names:
        return names[meant]
    begins = {profile for known, profile in names.items() if len(meant) > 2 and known.startswith(meant)}
    if len(begins) == 1:
        return begins.pop()
    near = get_close_matches(meant, names, n=1, cutoff=0.75)
    return names[near[0]] if near else None


def _plain(name: str) -> str:
    return re.sub(r"[\s._-]+", "", name).lower()
