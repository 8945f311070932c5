"""Values sent to a job and back, in one file: ``in.values``, ``out.values`` (``out.TASK.values``).

The file has a line ``jupyter-slurm values 1``, the length of the header (8 bytes, big-endian), the header (JSON), and
the pieces in the order of the header. An item of the header is one of::

    {"kind": "pickle", "safe": true, "name": …, "sizes": [of a pickle for earlier versions, which decodes the others,
     of the JSON (``safe_form.py``), of each of its buffers]}
    {"kind": "pickle", "name": …, "sizes": [of the pickle (protocol 5), of each of its buffers],
     "names": the names, if the pickle is a dict of several values}
    {"kind": "source", "name": …, "source": a function or class, "filename": its name in tracebacks,
     "future": names of ``__future__`` that its cell was compiled with}
    {"kind": "import", "source": an import statement}
    {"kind": "error",  "name": …, "error": the reason why the value is missing}

Values that a notebook gets are safe where their types allow it, because a pickle can run code where it is loaded.
Each value is separate, so that an unreadable value does not affect the others. Values that share objects, such
as a model and its optimizer, are one pickle, so that they share the objects on the remote side, too. Buffers (arrays)
are written and read without copies. Python 3.8+; cloudpickle if installed.
"""

from __future__ import annotations
import __future__

import contextlib
import gc
import io
import json
import linecache
import os
import pickle
import platform
import sys
import types
from typing import TYPE_CHECKING, Any, BinaryIO, Mapping

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import PackedItem, ValuesHeader, ValuesItem

try:  # a job loads its files by themselves
    safe_form: Any = load("variables.safe_form")  # type: ignore[name-defined]
except NameError:
    from . import safe_form

SizeLimitExceeded = safe_form.SizeLimitExceeded
MAGIC = b"jupyter-slurm values 1\n"
LEFT_OUT = "{} is not returned to the notebook: {}"

try:
    from cloudpickle import Pickler as _Pickler
except ImportError:
    _Pickler = pickle.Pickler  # type: ignore[misc, assignment, unused-ignore]


class Pickler(_Pickler):  # type: ignore[misc, unused-ignore]
    """Pickler with separate buffers. GPU tensors become CPU tensors; objects sent as source are pickled by name."""

    named: Any = None
    met: Any = None
    limit: float = float("inf")

    def reducer_override(self, value: Any) -> Any:
        """Return the reduction of a value."""
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__" and self._is_named(value):
            return value.__qualname__
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.device.type != "cpu":
            parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
            if parameter is not None and type(value) is parameter:
                return NotImplemented  # reduced to a tensor, which is pickled here as well, and its constructor
            size = value.element_size() * value.nelement()
            if value.layout is torch.strided and size > self.limit:
                raise SizeLimitExceeded(size)  # before the copy from the GPU
            return value.detach().cpu().requires_grad_(value.requires_grad).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        inherited = getattr(super(), "reducer_override", None)
        return NotImplemented if inherited is None else inherited(value)

    def _is_named(self, value: Any) -> bool:
        """Return whether a function or class, or the class that contains it, is sent as source."""
        own, *inner = value.__qualname__.split(".")
        found = self.named.get(own)
        for name in inner:
            found = getattr(found, name, None)
        if found is value:
            self.met.add(own)
        return found is value


class _Bounded(io.BytesIO):
    """File with a size limit in bytes."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        size = self.tell() + memoryview(data).nbytes
        if size > self._limit:
            raise SizeLimitExceeded(size)
        return super().write(data)


class Unreadable(Exception):
    """Some values cannot be used in this Python; the message gives names and reasons."""


class PackedValue:
    """Values as one item: ``item`` and its ``pieces``, of which the large ones are views of the values themselves.

    Functions and classes of ``__main__`` in ``named`` exist on the remote side, which has their source. An object that
    merely has such a name does not count. Those that the values need are in ``met``. With ``compared``, ``parts`` holds
    the objects of the values by id, which also keeps the ids from being reused. Data to be copied is limited to
    ``limit`` bytes; beyond that, :class:`SizeLimitExceeded` is raised. With ``safe``, one value gets its safe form, if
    it has one.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        named: dict[str, object] | None = None,
        compared: bool = False,
        limit: float = float("inf"),
        safe: bool = False,
    ) -> None:
        self.met: set[str] = set()
        self.pieces: list[Any] = []
        self.parts: dict[int, Any] = {}
        self.item: ValuesItem = {"kind": "pickle", "name": ", ".join(values)}
        try:
            if not safe or len(values) > 1:
                raise safe_form.NoSafeForm
            pieces, self.parts = safe_form.encode(*values.values(), limit)
            self.pieces = [memoryview(safe_form.for_earlier_versions(pieces)), *pieces]
            self.item["safe"] = True
        except safe_form.NoSafeForm:
            self._pickle(values, named or {}, compared, limit)
        self.item["sizes"] = [piece.nbytes for piece in self.pieces]

    def _pickle(self, values: Mapping[str, object], named: dict[str, object], compared: bool, limit: float) -> None:
        buffers: list[pickle.PickleBuffer] = []
        file = _Bounded(limit)
        pickler = Pickler(file, protocol=5, buffer_callback=buffers.append)
        pickler.limit = limit
        pickler.named, pickler.met = named, self.met
        names, several = list(values), len(values) > 1
        pickler.dump(dict(values) if several else values[names[0]])
        # getvalue() makes no copy either. In a cycle, a file with views of it is finalized with an error (Python 3.13).
        self.pieces = [memoryview(file.getvalue()), *(buffer.raw() for buffer in buffers)]
        if several:
            self.item["names"] = names
        self.parts = _parts(pickler) if compared else {}

    @property
    def size(self) -> int:
        """Size in bytes."""
        return size_of(self.item)


def _parts(pickler: Any) -> dict[int, Any]:
    collects = gc.isenabled()
    gc.disable()  # the collector would scan perhaps millions of objects again and again
    try:
        return {id(part): part for _, part in pickler.memo.copy().values() if type(part) not in _FIXED}
    finally:
        if collects:
            gc.enable()


_FIXED = (str, bytes, tuple, frozenset, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def _is_fixed(part: Any) -> bool:
    """Return whether two values may share an object without consequences, because it cannot be changed."""
    if isinstance(part, (*_FIXED, types.CodeType)):
        return True
    try:
        if callable(part) and isinstance(getattr(part, "__name__", None), str):
            return True  # pickled by name, as functions of Cython and NumPy are
        own: Any = type(part)
        if own.__hash__ in (None, object.__hash__) or isinstance(own.__eq__, types.FunctionType):
            return False
        return hash(part) != id(part)  # the default hash, as of a tensor, means that it can be changed
    except Exception:  # noqa: BLE001 - a class of the user may raise anything
        return False


def together(packed: Mapping[str, PackedValue]) -> list[list[str]]:
    """Return the names in groups: values that share mutable objects together, each other value alone."""
    groups: dict[str, list[str]] = {}
    for name, one in packed.items():
        own = [name]
        for before in {id(group): group for group in groups.values()}.values():
            if any(_have_in_common(one.parts, packed[other].parts) for other in before):
                own = before + own
        groups.update(dict.fromkeys(own, own))
    return list({id(group): group for group in groups.values()}.values())


def _have_in_common(one: Mapping[int, Any], other: Mapping[int, Any]) -> bool:
    common = [one[part] for part in one.keys() & other.keys() if not _is_fixed(one[part])]
    if not common:
        return False
    # The remote side also has the class attributes of an imported class.
    kinds = {base for kind in set(map(type, one.values())) for base in kind.__mro__ if kind.__module__ != "__main__"}
    known = {id(value) for kind in kinds for value in vars(kind).values()}
    return any(id(part) not in known for part in common)


def names_of(item: ValuesItem) -> list[str]:
    """Return the names of the values of an item."""
    return list(item.get("names") or [item["name"]])


def is_safe(item: ValuesItem) -> bool:
    """Return whether an item is read without its pickle."""
    return item["kind"] == "pickle" and item.get("safe") is True and "names" not in item


def size_of(item: ValuesItem) -> int:
    """Return the size of an item in bytes."""
    sizes = item.get("sizes") or [len(item.get("source", ""))]
    return sum(sizes[1:] if is_safe(item) else sizes)


def write(path: str, items: list[PackedItem]) -> None:
    """Write the file atomically, readable for its owner only."""
    draft = f"{path}.tmp"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        put_down(file, items)
    os.replace(draft, path)


def put_down(file: BinaryIO, items: list[PackedItem]) -> None:
    """Write the content of such a file."""
    about = {"python": platform.python_version(), "executable": sys.executable}
    header = json.dumps({"format": 1, **about, "items": [item for item, _ in items]}).encode()
    file.write(MAGIC + len(header).to_bytes(8, "big") + header)
    for _, pieces in items:
        for piece in pieces:
            file.write(piece)


class Content:
    """Content of a file that was already read, as a file object whose pieces are views, not copies."""

    def __init__(self, content: bytearray) -> None:
        self._rest = memoryview(content)

    def read(self, size: int) -> bytes:
        """Return this many bytes."""
        return bytes(self.take(size))

    def take(self, size: int) -> memoryview:
        """Return this many bytes without a copy."""
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _take(file: BinaryIO, size: int) -> bytearray:
    piece = bytearray(size)
    view, done = memoryview(piece), 0
    while done < size and (count := file.readinto(view[done:])):  # type: ignore[attr-defined, unused-ignore]
        done += count
    return piece if done == size else piece[:done]


def read(file: Any) -> tuple[ValuesHeader, list[PackedItem]]:
    """Read a file, or a :class:`Content`. Return its header and each item with its pieces. Nothing is unpickled."""
    if file.read(len(MAGIC)) != MAGIC:
        raise Unreadable("it is not a file of values, or it has a newer format")
    try:
        header = json.loads(file.read(int.from_bytes(file.read(8), "big")))
    except (ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise Unreadable("the file of values is damaged, or was not written by jupyter_slurm") from error
    if not is_header(header):
        raise Unreadable("the file of values is damaged, or was not written by jupyter_slurm")
    found = []
    for item in header["items"]:
        pieces = []
        for size in item.get("sizes", ()):
            try:
                piece = file.take(size) if isinstance(file, Content) else _take(file, size)
            except MemoryError:
                piece = bytearray()
            if len(piece) != size:
                raise Unreadable("the file of values is incomplete")
            pieces.append(piece)
        found.append((item, pieces))
    return header, found


def is_header(header: Any) -> bool:
    """Return whether this is the header of a file of values."""
    if not (isinstance(header, dict) and isinstance(header.get("python"), str)):
        return False
    items = header.get("items")
    return isinstance(items, list) and all(isinstance(item, dict) and _is_item(item) for item in items)


def _is_item(item: dict[str, Any]) -> bool:
    texts = {"pickle": ("name",), "source": ("name", "source", "filename")}
    texts.update({"error": ("name", "error"), "import": ("source",)})
    kind, sizes = item.get("kind"), item.get("sizes", [])
    if not isinstance(kind, str) or kind not in texts or not isinstance(sizes, list):
        return False
    whole = all(type(size) is int and 0 <= size < 1 << 62 for size in sizes) and (sizes or kind != "pickle")
    names = item.get("names", ["-"])
    listed = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    return bool(whole and listed) and all(isinstance(item.get(name), str) for name in texts[kind])


def unpack(item: ValuesItem, pieces: list[Any], header: ValuesHeader) -> dict[str, object]:
    """Return the values of an item, by name.

    Raises
    ------
    Unreadable
        The item cannot be read in this Python; the message gives the reason and a remedy.
    """
    if item["kind"] == "error":
        raise Unreadable(f"{item['name']}: {item['error']}")
    try:
        if is_safe(item):
            return {item["name"]: safe_form.decode(pieces[1:])}
        value = pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301 - of this user's own job, or notebook
        return {name: value[name] for name in item["names"]} if "names" in item else {item["name"]: value}
    except ModuleNotFoundError as error:
        hint = f"Install {error.name} for {sys.executable}, or choose another Python."
        raise Unreadable(f"{item['name']} needs the module {error.name}, which is missing. {hint}") from error
    except Exception as error:  # any error of a user's class
        there, here = header["python"].rpartition(".")[0], platform.python_version().rpartition(".")[0]
        why = f" It was made by Python {there}, this is {here}." if there != here else ""
        raise Unreadable(f"{item['name']} cannot be read: {type(error).__name__}: {error}.{why}") from error


def bring(path: str, namespace: dict[str, object]) -> dict[str, object]:
    """Put the values of a file into a namespace. Return the objects that arrived as source, by name.

    Raises
    ------
    Unreadable
        Some values cannot be read in this Python; the message names all of them.
    """
    with open(path, "rb") as file:
        header, items = read(file)
    if troubles := put(items, header, namespace):
        raise Unreadable("\n".join(dict.fromkeys(troubles.values())))
    return {item["name"]: namespace[item["name"]] for item, _ in items if item["kind"] == "source"}


def put(items: list[PackedItem], header: ValuesHeader, namespace: dict[str, object]) -> dict[str, str]:
    """Put the read values into a namespace. Return the values that cannot be used, with the reasons."""
    troubles = {}
    for item, pieces in items:
        try:
            if item["kind"] in ("import", "source"):
                _run(item, namespace)
            else:
                namespace.update(unpack(item, pieces, header))
        except Unreadable as error:
            names = [item["source"]] if item["kind"] == "import" else names_of(item)
            troubles.update(dict.fromkeys(names, str(error)))
    return troubles


def _run(item: ValuesItem, namespace: dict[str, object]) -> None:
    source, filename = item["source"], item.get("filename") or "<imports>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    try:
        flags = sum(getattr(__future__, name).compiler_flag for name in item.get("future", ()))
        exec(compile(source, filename, "exec", flags, dont_inherit=True), namespace)  # noqa: S102 - code of the user
    except Exception as error:
        what = item.get("name") or source
        raise Unreadable(f"{what} does not work with {sys.executable}: {type(error).__name__}: {error}") from error


def leave(path: str, names: list[str], namespace: dict[str, object], limit: int, named: dict[str, object]) -> None:
    """Write the values that the notebook requests. For values that cannot be sent, write the reason."""
    items: list[PackedItem] = []
    found: dict[str, PackedValue] = {}
    for name in names:
        try:
            if name not in namespace:
                raise Unreadable("the cell ended without it")
            found[name] = packed = PackedValue({name: namespace[name]}, named, len(names) > 1, limit, True)
            if packed.size > limit:
                raise SizeLimitExceeded(packed.size)
        except Exception as error:  # noqa: BLE001 - one bad value does not lose the rest
            found.pop(name, None)
            said = str(error) if isinstance(error, Unreadable) else f"it cannot be pickled: {error}"
            if isinstance(error, SizeLimitExceeded):
                said = f"{error}, {limit / 1e6:.1f} MB can be returned: write a file"
            items.append(({"kind": "error", "name": name, "error": said}, []))
            sys.stderr.write(LEFT_OUT.format(name, said) + "\n")
    for group in together(found):
        come = [found[name] for name in group]
        if len(group) > 1:
            with contextlib.suppress(Exception):  # on failure each value stays alone, which is possible
                come = [PackedValue({name: namespace[name] for name in group}, named)]
        items += [(one.item, one.pieces) for one in come]
    write(path, items)
