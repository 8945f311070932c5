"""Changes between two states of a site profile."""

from __future__ import annotations

from dataclasses import fields

from jupyter_slurm.sites.profile import Profile

__all__ = ["changed_keys"]

_TABLES = {
    "login": ("host", "jump", "user", "port", "ssh_config", "carrier", "max_age", "vpn"),
    "shell": ("prelude", "login_shell", "patience"),
    "slurm": ("slurm_conf", "job_root", "poll_shortest"),
    "tunnels": ("ports", "ways", "node_ports", "unproven"),
}
_KEY_OF_FIELD = {
    **{name: f"{table}.{name}" for table, names in _TABLES.items() for name in names},
    "slurm_conf": "slurm.conf",
    "python": "python.path",
    "environments": "env",
}


def changed_keys(old: Profile, new: Profile) -> list[str]:
    """Return the keys, or tables, of a profile whose values differ, as they are written in the file."""
    changed = list[str]()
    for field_ in fields(Profile):
        before, after = getattr(old, field_.name), getattr(new, field_.name)
        if before == after:
            continue
        if field_.name == "known":
            changed += [name for name in {**before, **after} if before.get(name) != after.get(name)]
        else:
            changed.append(_KEY_OF_FIELD.get(field_.name, field_.name))
    return changed
