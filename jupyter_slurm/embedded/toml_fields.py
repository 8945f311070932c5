"""Parser of one table of a description: each key at most once, each value matched in full."""

from __future__ import annotations

import difflib
import os
import re
from types import TracebackType
from typing import Any, Final

from ClusterShell.NodeSet import NodeSet, NodeSetException

from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import ConfigError

__all__ = ["DESCRIPTION_HINT", "Table"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
LOGIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")
# "1g.10gb" of MIG, "2080_ti"; a plain number would be a count.
GPU_TYPE = re.compile(r"\d{0,4}_?[A-Za-z][A-Za-z0-9_.-]{0,31}")
GRES_NAME = re.compile(r"[A-Za-z]\w{0,31}(:\d{0,4}_?[A-Za-z][A-Za-z0-9_.-]{0,31})?", re.ASCII)  # "npu:910b"
# Numbers have at most four digits, so that a range never expands to more than 10,000 names.
HOSTS = re.compile(
    r"[A-Za-z][A-Za-z0-9.-]{0,31}(\[\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?){0,31}\])?(\.[A-Za-z0-9.-]{1,63})?"
)
TIME = re.compile(r"(UNLIMITED|INFINITE|\d{1,6}|\d{1,6}:\d{1,2}(:\d{1,2})?|\d{1,4}-\d{1,2}(:\d{1,2}){0,2})")
MEMORY = re.compile(r"(\d{1,6})([KMGT])B?", re.IGNORECASE)
PHRASE = re.compile(r"[A-Za-z0-9 ._/()+-]{0,80}")
LIMIT_KEY = re.compile(r"[A-Za-z]{3,40}")
LIMIT_VALUE = re.compile(r"[A-Za-z0-9_.,=:/+-]{1,200}")
# One "Key=value …" line of slurm.conf(5). A comment or a continuation would change the text after it.
LINE = re.compile(r"[A-Za-z][A-Za-z0-9]*=[^\x00-\x1f\x7f#\\]*")
_COMMA = re.compile(r",(?![^\[]*\])")  # outside brackets
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_MISSING = object()

DESCRIPTION_HINT: Final = f"See the keys of a description: {page_url('reference/embedded-cluster')}"


class Table:
    """A TOML table, for use with ``with``: keys not read by the end of the block are unknown keys."""

    def __init__(self, data: Any, path: str) -> None:
        if not isinstance(data, dict):
            raise ConfigError(f"{path or 'description'}: this must be a table.", hint=DESCRIPTION_HINT)
        self._data = data
        self._path = path
        self._used_keys: list[str] = []

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None:
            return
        for key in self._data:
            if key not in self._used_keys:
                near = difflib.get_close_matches(key, self._used_keys, n=1)
                raise ConfigError(
                    f"{self._key(key)} is not a valid key.",
                    hint=f"Did you mean {near[0]}?" if near else f"The valid keys are {', '.join(self._used_keys)}.",
                    suggestion=near[0] if near else None,
                )

    def _key(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _wrong(self, key: str, value: Any, expected: str) -> ConfigError:
        return ConfigError(f"{self._key(key)}: {value!r} is not {expected}.", hint=DESCRIPTION_HINT)

    def _get(self, key: str, default: Any = _MISSING) -> Any:
        self._used_keys.append(key)
        value = self._data.get(key, default)
        if value is _MISSING:
            raise ConfigError(f"{self._key(key)}: this key is missing.", hint=DESCRIPTION_HINT)
        return value

    def _text(self, key: str, pattern: re.Pattern[str], expected: str, default: Any) -> str:
        value = self._get(key, default)
        if key in self._data and not (isinstance(value, str) and pattern.fullmatch(value)):
            raise self._wrong(key, value, expected)
        return str(value)

    def _list(self, key: str) -> list[Any]:
        value = self._get(key, [])
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        return value

    def name(self, key: str, default: Any = _MISSING) -> str:
        """Read a name of letters, digits, ``_``, ``.`` and ``-``."""
        return self._text(key, NAME, "a name (letters, digits, '_', '.', '-')", default)

    def login(self, key: str) -> str:
        """Read a login name."""
        return self._text(key, LOGIN, "a login name", _MISSING)

    def phrase(self, key: str) -> str:
        """Read a few plain words on one line."""
        return self._text(key, PHRASE, "a short plain text", "")

    def matching(self, key: str, pattern: str) -> str:
        """Read a text that matches the pattern in full; empty if missing."""
        return self._text(key, re.compile(pattern), f"of the form {pattern}", "")

    def time(self, key: str) -> str:
        """Read a time limit in the form of sbatch(1); empty if missing."""
        return self._text(key, TIME, "a time limit (minutes, 'H:MM:SS', 'D-HH:MM:SS' or 'UNLIMITED')", "")

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Read one of several words; empty if missing."""
        value = self._get(key, "")
        if key in self._data and value not in choices:
            raise self._wrong(key, value, f"one of {', '.join(choices)}")
        return str(value)

    def choices(self, key: str, choices: tuple[str, ...]) -> tuple[str, ...]:
        """Read a list of words, each one of several."""
        values = self._list(key)
        for value in values:
            if value not in choices:
                raise self._wrong(key, value, f"one of {', '.join(choices)}")
        return tuple(values)

    def names(self, key: str) -> tuple[str, ...]:
        """Read a list of names."""
        values = self._list(key)
        for value in values:
            if not (isinstance(value, str) and NAME.fullmatch(value)):
                raise self._wrong(key, value, "a name (letters, digits, '_', '.', '-')")
        return tuple(values)

    def lines(self, key: str) -> tuple[str, ...]:
        """Read a list of whole ``Key=value`` lines of slurm.conf."""
        values = self._list(key)
        for value in values:
            if not (isinstance(value, str) and LINE.fullmatch(value)):
                raise self._wrong(key, value, "one Key=value line of slurm.conf")
        return tuple(values)

    def flag(self, key: str) -> bool:
        """Read true or false; false if missing."""
        value = self._get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def integer(self, key: str, *, default: int, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """Read a whole number within bounds."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self._wrong(key, value, f"a whole number from {minimum} to {maximum}")
        return value

    def optional_integer(self, key: str, *, minimum: int = 0, maximum: int = 2**31 - 1) -> int | None:
        """Read a whole number within bounds, or None if missing."""
        if key not in self._data:
            self._used_keys.append(key)
            return None
        return self.integer(key, default=minimum, minimum=minimum, maximum=maximum)

    def memory(self, key: str, default: Any = _MISSING) -> int:
        """Read an amount of memory such as ``"64G"``, in MiB."""
        value = self._get(key, default)
        match = MEMORY.fullmatch(value) if isinstance(value, str) else None
        amount = int(int(match[1]) * _MIB[match[2].upper()]) if match else 0
        if amount < 1:
            raise self._wrong(key, value, "an amount of memory such as '64G'")
        return amount

    def optional_memory(self, key: str) -> int | None:
        """Read an amount of memory in MiB, or None if missing."""
        if key not in self._data:
            self._used_keys.append(key)
            return None
        return self.memory(key)

    def directories(self, key: str) -> tuple[str, ...]:
        """Read absolute paths."""
        values = self._list(key)
        for value in values:
            if not (isinstance(value, str) and os.path.isabs(value) and "\0" not in value):
                raise self._wrong(key, value, "an absolute path")
        return tuple(values)

    def hosts(self, key: str) -> tuple[str, ...]:
        """Read a node list such as ``"dgx01,n[1-4,7]"``, or a list of node lists, expanded."""
        value = self._get(key)
        names: list[str] = []
        items = value if isinstance(value, list) else [value]
        for item in [one for text in items for one in (_COMMA.split(text) if isinstance(text, str) else [text])]:
            if not (isinstance(item, str) and HOSTS.fullmatch(item)):
                raise self._wrong(key, item, "a node list such as 'dgx01,n[1-4]'")
            try:
                names.extend(str(name) for name in NodeSet(item))
            except NodeSetException as error:
                raise ConfigError(f"{self._key(key)}: {item!r}: {error}.", hint=DESCRIPTION_HINT) from error
        return tuple(names)

    def gpus(self, key: str) -> dict[str, int]:
        """Read the GPUs of a node: a count, or counts by type."""
        value = self._get(key, {})
        counts = {None: value} if isinstance(value, int) else value
        if not isinstance(counts, dict):
            raise self._wrong(key, value, "a count or a table of counts by type such as { a100 = 8 }")
        for kind, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 64:
                raise self._wrong(key, count, "a number of GPUs from 0 to 64")
            if kind is not None and not GPU_TYPE.fullmatch(kind):
                raise self._wrong(key, kind, "a GPU type such as 'a100' or '1g.10gb'")
        return {kind or "": count for kind, count in counts.items() if count}

    def gres(self, key: str) -> dict[str, int]:
        """Read counts of generic resources other than GPUs by name and type."""
        counts = self._get(key, {})
        if not isinstance(counts, dict):
            raise self._wrong(key, counts, 'a table of counts such as { "npu:910b" = 8 }')
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 4096:
                raise self._wrong(key, count, "a number from 1 to 4096")
            if not GRES_NAME.fullmatch(name) or name.partition(":")[0] == "gpu":
                raise self._wrong(key, name, "a generic resource such as 'npu:910b'; GPUs belong to `gpus`")
        return dict(counts)

    def limits(self, key: str) -> dict[str, str]:
        """Read limits with sacctmgr's own names, as texts."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table such as { MaxJobs = 10 }")
        for word, limit in value.items():
            if not LIMIT_KEY.fullmatch(word):
                raise self._wrong(key, word, "a limit of sacctmgr")
            if isinstance(limit, bool) or not isinstance(limit, str | int) or not LIMIT_VALUE.fullmatch(str(limit)):
                raise self._wrong(f"{key}.{word}", limit, "a limit")
        return {word: str(limit) for word, limit in value.items()}

    def table(self, key: str) -> Table:
        """Read a table within this table; empty if missing."""
        return Table(self._get(key, {}), self._key(key))

    def tables(self, key: str) -> list[Table]:
        """Read a list of tables (``[[key]]``)."""
        return [Table(item, self._key(key)) for item in self._list(key)]
