"""Safe form of values: JSON and buffers, which run no code when they are read. A pickle runs what it says.

The first piece is JSON. None, bool, int, float and str are themselves, and any other value is a list: a letter for its
type, and its parts. Bytes and the data of arrays are the other pieces, named by their numbers. It holds numbers, texts,
bytes, lists, tuples, dicts, sets, arrays and scalars of NumPy, tensors of PyTorch, tables of pandas, and any nesting of
these. Objects of other types, of subclasses, and objects that occur twice (two copies would be read) have none.

Python 3.8+, standard library only; NumPy, PyTorch and pandas if the program has imported them.
"""

from __future__ import annotations

import json
import pickle
import sys
from importlib import import_module
from typing import Any, Callable

__all__ = ["NoSafeForm", "SizeLimitExceeded", "decode", "encode", "for_earlier_versions"]

_MAX_INT = 1 << 63
_KINDS = "biufcSUmM"  # of NumPy: no objects, no records
_TENSORS = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
_EXTENSIONS = (
    "str string boolean Float32 Float64 Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64".split()
)  # of pandas


class NoSafeForm(Exception):
    """A value has no safe form."""


class SizeLimitExceeded(Exception):
    """A value has at least ``size`` bytes, which exceeds the limit: its packing was aborted."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it has {size / 1e6:.1f} MB or more")
        self.size = size


def encode(value: Any, limit: float = float("inf")) -> tuple[list[Any], dict[int, Any]]:
    """Return the pieces of a value, and its objects that can be changed, by id.

    Raises
    ------
    NoSafeForm
        It has no safe form.
    SizeLimitExceeded
        It has more than ``limit`` bytes.
    """
    encoder = _Encoder(limit)
    try:
        text = json.dumps(encoder.form(value), separators=(",", ":")).encode("ascii")
    except (NoSafeForm, SizeLimitExceeded):
        raise
    except Exception as error:  # whatever a library of another version does
        raise NoSafeForm(str(error)) from error
    return [memoryview(text), *encoder.buffers], encoder.seen


def for_earlier_versions(pieces: list[Any]) -> bytes:
    """Return a pickle with which versions that know no safe form read these pieces. This version never loads it."""
    if "__file__" not in globals():  # sent as text to both kernels of a move, which thus have the same version
        return b""
    return pickle.dumps(_Earlier(pieces), protocol=5, buffer_callback=lambda buffer: None)


class _Earlier:
    """Value whose pickle decodes the pieces beside it, in a program without this file."""

    def __init__(self, pieces: list[Any]) -> None:
        self._pieces = pieces

    def __reduce__(self) -> Any:
        run = "(lambda names: (exec(source, names), names['decode'](pieces))[1])({'__name__': 'safe_form'})"
        pieces = [pickle.PickleBuffer(piece) for piece in self._pieces]
        with open(__file__, encoding="utf-8") as file:
            return eval, (run, {"source": file.read(), "pieces": pieces})


class _Encoder:
    """Encoder of one value."""

    def __init__(self, limit: float) -> None:
        self.buffers: list[Any] = []
        self.seen: dict[int, Any] = {}  # which also keeps the ids from being reused
        self._limit, self._size = limit, 0

    def form(self, value: Any) -> Any:
        """Return the JSON form of a value."""
        kind = type(value)
        self._count(len(value) if kind is str else 2)
        if value is None or kind in (bool, float, str):
            return value
        if kind is int:
            return value if -_MAX_INT < value < _MAX_INT else ["i", hex(value)]
        if kind is complex:
            return ["c", value.real, value.imag]
        if kind is bytes:
            return ["b", self._buffer(memoryview(value))]
        if kind in (tuple, frozenset):
            return ["t" if kind is tuple else "f", [self.form(part) for part in value]]
        library = self._library(value)
        if library is None and kind not in (list, dict, set, bytearray):
            raise NoSafeForm(kind.__name__)
        if id(value) in self.seen:
            raise NoSafeForm("an object that occurs twice")
        self.seen[id(value)] = value
        if library is not None:
            return library(value)
        if kind is bytearray:
            return ["B", self._buffer(memoryview(value))]
        if kind is dict:
            return ["d", [self.form(part) for pair in value.items() for part in pair]]
        return ["l" if kind is list else "s", self._parts(value)]

    def _parts(self, values: Any) -> list[Any]:
        """Return the forms of the parts of a list or a set, for many numbers in one step."""
        kinds = set(map(type, values))
        if kinds == {float} or (kinds == {int} and max(values) < _MAX_INT and min(values) > -_MAX_INT):
            self._count(2 * len(values))
            return list(values)
        return [self.form(part) for part in values]

    def _count(self, size: int) -> None:
        self._check(size)
        self._size += size

    def _check(self, size: int) -> None:
        if self._size + size > self._limit:
            raise SizeLimitExceeded(self._size + size)

    def _buffer(self, view: memoryview) -> int:
        self._count(view.nbytes)
        self.buffers.append(view.cast("B") if view.nbytes else memoryview(b""))
        return len(self.buffers)

    def _library(self, value: Any) -> Callable[[Any], Any] | None:
        """Return the encoder of a value of NumPy, PyTorch or pandas."""
        numpy, torch, pandas = (sys.modules.get(name) for name in ("numpy", "torch", "pandas"))
        if numpy is not None and type(value) is getattr(numpy, "ndarray", None):
            return self._array
        if numpy is not None and isinstance(value, getattr(numpy, "generic", ())):
            return self._scalar
        if torch is not None and type(value) is getattr(torch, "Tensor", None):
            return self._tensor
        if pandas is not None and type(value) is getattr(pandas, "DataFrame", None):
            return self._frame
        if pandas is not None and type(value) is getattr(pandas, "Series", None):
            return self._series
        return None

    def _array(self, array: Any) -> Any:
        if not _is_plain(array.dtype):
            raise NoSafeForm(f"an array of {array.dtype}")
        self._check(array.nbytes)  # before the copy of an array that is not contiguous
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        flat = array.ravel(order=order)
        data = memoryview(flat.view("u1")) if flat.size else memoryview(b"")
        return ["a", array.dtype.str, list(array.shape), order, self._buffer(data)]

    def _scalar(self, scalar: Any) -> Any:
        if not _is_plain(scalar.dtype) or type(scalar) is not scalar.dtype.type:
            raise NoSafeForm(type(scalar).__name__)
        return ["n", scalar.dtype.str, scalar.tobytes().hex()]

    def _tensor(self, tensor: Any) -> Any:
        torch = import_module("torch")
        name = str(tensor.dtype).rpartition(".")[2]
        special = tensor.layout is not torch.strided or not tensor.is_leaf or tensor.is_conj() or tensor.is_neg()
        if special or name not in _TENSORS or vars(tensor):
            raise NoSafeForm("a tensor of another kind")
        storage = tensor.untyped_storage().data_ptr()
        if tensor.numel() and self.seen.setdefault(-storage, tensor) is not tensor:  # ids are positive
            raise NoSafeForm("tensors that share their memory")
        self._check(tensor.element_size() * tensor.numel())  # before the copy from the GPU
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")
        return ["T", name, list(tensor.shape), bool(tensor.requires_grad), self._buffer(data)]

    def _frame(self, frame: Any) -> Any:
        if frame.attrs or not frame.flags.allows_duplicate_labels:
            raise NoSafeForm("a DataFrame with attributes")
        columns = [self._column(frame.iloc[:, number]) for number in range(frame.shape[1])]
        return ["D", self._index(frame.index), self._index(frame.columns), columns]

    def _series(self, series: Any) -> Any:
        if series.attrs or not series.flags.allows_duplicate_labels:
            raise NoSafeForm("a Series with attributes")
        return ["S", self._index(series.index), self.form(series.name), self._column(series)]

    def _index(self, index: Any) -> Any:
        pandas = import_module("pandas")
        if isinstance(index, pandas.RangeIndex):
            return ["r", index.start, index.stop, index.step, self.form(index.name)]
        if isinstance(index, pandas.MultiIndex) or getattr(index, "freq", None) is not None:
            raise NoSafeForm(type(index).__name__)
        return ["x", self._column(index), self.form(index.name)]

    def _column(self, column: Any) -> Any:
        kind = str(column.dtype)
        if kind == "object":
            return ["o", [self.form(part) for part in column]]
        if kind in _EXTENSIONS:
            gaps = column.isna()
            return ["e", kind, [None if gap else self.form(part) for part, gap in zip(column.astype(object), gaps)]]
        if not isinstance(column.dtype, import_module("numpy").dtype):  # its values would be those of another dtype
            raise NoSafeForm(f"a column of {kind}")
        return self._array(column.to_numpy())


def _is_plain(dtype: Any) -> bool:
    """Return whether the name of a dtype of NumPy says all about it; that of an empty text does not."""
    return dtype.kind in _KINDS and bool(dtype.itemsize) and not dtype.metadata


def decode(pieces: list[Any]) -> Any:
    """Return the value. No part of it can run code; any error stands for a damaged file."""
    return _Decoder(pieces).value(json.loads(bytes(pieces[0])))


_READERS = (
    "i:int c:complex b:bytes B:bytearray t:tuple f:frozenset l:list s:set d:dict a:array n:scalar T:tensor D:frame "
    "S:series r:range x:index o:objects e:extension"
)
_NAMES = dict(pair.split(":") for pair in _READERS.split())


class _Decoder:
    """Decoder of one value; arrays are views of the pieces."""

    def __init__(self, pieces: list[Any]) -> None:
        self._pieces = pieces

    def value(self, form: Any) -> Any:
        """Return the value of a form."""
        if not isinstance(form, list):
            return form
        letter, *parts = form
        return getattr(self, f"_read_{_NAMES[letter]}")(*parts)

    def _values(self, forms: list[Any]) -> list[Any]:
        if set(map(type, forms)) <= {int, float}:
            return forms
        return [self.value(form) for form in forms]

    def _read_int(self, text: str) -> int:
        return int(text, 16)

    def _read_complex(self, real: float, imaginary: float) -> complex:
        return complex(real, imaginary)

    def _read_bytes(self, number: int) -> bytes:
        return bytes(self._pieces[number])

    def _read_bytearray(self, number: int) -> bytearray:
        return bytearray(self._pieces[number])

    def _read_tuple(self, forms: list[Any]) -> Any:
        return tuple(self._values(forms))

    def _read_frozenset(self, forms: list[Any]) -> Any:
        return frozenset(self._values(forms))

    def _read_list(self, forms: list[Any]) -> Any:
        return self._values(forms)

    def _read_set(self, forms: list[Any]) -> Any:
        return set(self._values(forms))

    def _read_dict(self, forms: list[Any]) -> Any:
        parts = iter(self._values(forms))
        return dict(zip(parts, parts))

    def _dtype(self, name: str) -> Any:
        numpy = import_module("numpy")
        dtype = numpy.dtype(name)
        if dtype.kind not in _KINDS or dtype.hasobject:
            raise ValueError(f"an array of {name}")
        return dtype

    def _read_array(self, name: str, shape: list[int], order: str, number: int) -> Any:
        numpy = import_module("numpy")
        data = self._pieces[number]  # frombuffer refuses an empty one
        flat = numpy.frombuffer(data, self._dtype(name)) if len(data) else numpy.empty(0, self._dtype(name))
        return flat.reshape(shape, order=order)

    def _read_scalar(self, name: str, data: str) -> Any:
        numpy = import_module("numpy")
        return numpy.frombuffer(bytes.fromhex(data), self._dtype(name))[0]

    def _read_tensor(self, name: str, shape: list[int], requires_grad: bool, number: int) -> Any:
        torch = import_module("torch")
        if name not in _TENSORS:
            raise ValueError(f"a tensor of {name}")
        data, kind = self._pieces[number], getattr(torch, name)
        flat = torch.frombuffer(bytearray(data), dtype=kind) if len(data) else torch.empty(0, dtype=kind)
        return flat.reshape(shape).requires_grad_(requires_grad)

    def _read_frame(self, index: Any, names: Any, columns: list[Any]) -> Any:
        pandas = import_module("pandas")
        rows = self.value(index)
        found = {number: self._series(self.value(column), rows) for number, column in enumerate(columns)}
        frame = pandas.DataFrame(found, index=rows)
        frame.columns = self.value(names)
        return frame

    def _read_series(self, index: Any, name: Any, column: Any) -> Any:
        return self._series(self.value(column), self.value(index)).rename(self.value(name))

    def _series(self, column: Any, index: Any) -> Any:
        return import_module("pandas").Series(column, index=index, dtype=column.dtype)  # which it would guess

    def _read_range(self, start: int, stop: int, step: int, name: Any) -> Any:
        pandas = import_module("pandas")
        return pandas.RangeIndex(start, stop, step, name=self.value(name))

    def _read_index(self, column: Any, name: Any) -> Any:
        pandas = import_module("pandas")
        found = self.value(column)
        return pandas.Index(found, dtype=found.dtype, name=self.value(name))

    def _read_objects(self, forms: list[Any]) -> Any:
        numpy = import_module("numpy")
        found = numpy.empty(len(forms), object)
        found[:] = [self.value(form) for form in forms]
        return found

    def _read_extension(self, kind: str, forms: list[Any]) -> Any:
        pandas = import_module("pandas")
        if kind not in _EXTENSIONS:
            raise ValueError(f"a column of {kind}")
        return pandas.array([self.value(form) for form in forms], dtype=kind)
