"""Tests of the file of values, written and read by the runner: with and without cloudpickle."""

from __future__ import annotations

import gc
import io
import json
import linecache
import os
import re
import resource
import subprocess
import sys
import types
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.jobs.returned_values import read_outputs
from jupyter_slurm.client.submission.in_out_variables import parcel
from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.runner.variables import values_file as values
from jupyter_slurm.runner.variables.packing import TooLarge
from jupyter_slurm.runner.variables.packing import packed as several
from jupyter_slurm.services.jobdir.ownership import read_values

LOADER = str(resources.files("jupyter_slurm.runner").joinpath("loader.py"))


def packed(name: str, value: object) -> tuple[dict, list]:
    one = values.PackedValue({name: value})
    return one.item, one.pieces


def _file(*items: tuple[dict, list]) -> bytes:
    header = json.dumps({"format": 1, "python": "3.11.2", "items": [item for item, _ in items]}).encode()
    pieces = b"".join(bytes(piece) for _, pieces in items for piece in pieces)
    return values.MAGIC + len(header).to_bytes(8, "big") + header + pieces


def test_arrays_travel_beside_their_pickle_without_a_second_copy() -> None:
    array = __import__("numpy").arange(100_000)
    item, pieces = packed("array", array)
    assert item["sizes"][1] == array.nbytes
    array[0] = 7
    assert memoryview(pieces[1]).cast("B")[0] == 7, "it is a view"
    # A finalizer of a file with views of it raises a BufferError that is only printed (a cycle, Python 3.13).
    assert isinstance(memoryview(pieces[0]).obj, bytes)
    content = bytearray(_file((item, pieces)))
    for file in (io.BytesIO(content), values.Content(content)):
        header, found = values.read(file)
        back = values.unpack(*found[0], header)["array"]
        assert (back == array).all()
        back[0] = 8  # it is writable
    content[-8:] = bytes(8)
    assert back[-1] == 0, "it stays where it was received"


def test_a_cycle_of_packed_values_ends_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check what a kernel prints in red if a file is finalized before the views of it (Python 3.13 and newer)."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    for safe in (False, True):
        one = values.PackedValue({"x": [1]}, safe=safe)
        one.myself = one  # type: ignore[attr-defined]
        del one
        gc.collect()
    assert told == []


def test_values_that_have_in_common_what_can_be_changed_stay_one() -> None:
    class Tensor(list):  # as one of torch: hashed by its content
        def __hash__(self) -> int:  # type: ignore[override]
            return id(self)

    numpy, shared = __import__("numpy"), [1.0]
    kind, tensor = numpy.dtype("float32"), Tensor()
    assert (values._is_fixed(kind), values._is_fixed(tensor)) == (True, False)
    named = {
        "model": {"weights": shared, "kind": kind, "name": "a name"},
        "other": {"kind": kind, "name": "a name", "made": (1, 2)},
        "optimizer": [(shared, 0.1)],
        "array": numpy.zeros(3, kind),
        "another": numpy.ones(3, kind),
    }
    one = {name: values.PackedValue({name: value}, compared=True) for name, value in named.items()}
    assert values.together(one) == [["model", "optimizer"], ["other"], ["array"], ["another"]]
    with_functions = {name: values.PackedValue({name: [numpy.sin, len, print]}, compared=True) for name in "ab"}
    assert values.together(with_functions) == [["a"], ["b"]], "what is found by its name is nobody's"
    found = values.PackedValue({name: named[name] for name in ("optimizer", "model")})
    back = values.unpack(found.item, found.pieces, {"python": "3.11.2"})
    assert list(back) == ["optimizer", "model"]
    assert back["optimizer"][0][0] is back["model"]["weights"]
    outputs = read_outputs(bytearray(_file(({**found.item, "sizes": [4]}, [b"junk"]))))
    assert (dict(outputs), sorted(outputs.errors)) == ({}, ["model", "optimizer"])


def test_values_with_objects_in_common_come_back_as_large_as_each_may_be(tmp_path: Path) -> None:
    shared = ["in common"]
    namespace = {"one": [shared, b"x" * 800], "other": [shared, b"y" * 800], "large": [shared, b"z" * 1000]}
    values.leave(str(tmp_path / "out.values"), list(namespace), namespace, 1000, {})
    outputs = read_outputs(bytearray((tmp_path / "out.values").read_bytes()))
    assert (sorted(outputs), sorted(outputs.errors)) == (["one", "other"], ["large"])
    assert outputs["one"][0] is outputs["other"][0]


class _Tensor:
    """Replacement of a tensor: torch is large, and this machine may have no GPU."""

    layout = "strided"
    copied = 0

    def __init__(self, values: list[float], device: str, requires_grad: bool) -> None:
        self.values, self.device, self.requires_grad = values, types.SimpleNamespace(type=device), requires_grad

    def detach(self) -> _Tensor:
        return _Tensor(self.values, self.device.type, False)

    def element_size(self) -> int:
        return 8

    def nelement(self) -> int:
        return len(self.values)

    def cpu(self) -> _Tensor:
        _Tensor.copied += 1
        return _Tensor(self.values, "cpu", self.requires_grad)

    def requires_grad_(self, wanted: bool) -> _Tensor:
        self.requires_grad = wanted
        return self


@pytest.mark.parametrize("wanted", [True, False])
def test_a_tensor_of_a_gpu_travels_as_one_of_the_cpu(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=_Tensor, strided=_Tensor.layout))
    tensor = _Tensor([1.0, 2.0], "cuda", wanted)
    item, pieces = packed("state", {"weights": tensor, "again": [tensor]})
    back = values.unpack(item, pieces, {"python": "3.11.2"})["state"]
    assert (back["weights"].device.type, back["weights"].requires_grad) == ("cpu", wanted)
    assert back["weights"].values == [1.0, 2.0]
    assert back["again"][0] is back["weights"]
    assert tensor.device.type == "cuda", "the cell's own stays where it is"
    before = _Tensor.copied
    with pytest.raises(values.SizeLimitExceeded, match=re.escape("it has 8.0 MB or more")):
        values.PackedValue({"large": [_Tensor([0.0] * 1_000_000, "cuda", wanted)]}, limit=1_000_000)
    assert _Tensor.copied == before, "there may be no room for it on this side of the GPU"


def test_what_is_too_large_is_not_pickled_to_its_end(tmp_path: Path) -> None:
    pickled = 0

    class Part:
        def __reduce__(self) -> Any:
            nonlocal pickled
            pickled += 1
            return str, (f"{pickled:01000x}",)

    namespace = {"small": 1, "long": [Part() for _ in range(10_000)], "text": "x" * 300_000, "numbers": bytearray(90)}
    with pytest.raises(TooLarge) as told:
        several(list(namespace), namespace, 200_000)
    assert str(told.value) == "larger than 0.2 MB: long 0.3 MB or more, text 0.3 MB or more"
    assert 90 < pickled < 500
    pickled = 0
    values.leave(str(tmp_path / "out.values"), list(namespace), namespace, 200_000, {})
    outputs = read_outputs(bytearray((tmp_path / "out.values").read_bytes()))
    assert (sorted(outputs), sorted(outputs.errors)) == (["numbers", "small"], ["long", "text"])
    assert "it has 0.3 MB or more, 0.2 MB can be returned: write a file" in outputs.errors["text"]
    assert 90 < pickled < 500


def test_a_large_value_is_written_without_a_second_copy(tmp_path: Path) -> None:
    """Written by a process whose memory limit is below twice the size."""
    code = (
        f"import pickle, resource, runpy\nvalues = runpy.run_path({LOADER!r})['load']('variables.values_file')\n"
        "class Large:\n    def __init__(self): self.raw = bytearray(2**29 + 5)\n"
        "    def __reduce_ex__(self, _): return bytearray, (pickle.PickleBuffer(self.raw),)\n"
        "large = Large()\nlarge.raw[-1] = 9\n"
        f"values.leave({str(tmp_path / 'out.values')!r}, ['large'], vars(), 2**32, dict())\n"
    )
    limit = 9 * 2**27
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert (tmp_path / "out.values").stat().st_size > 2**29


def test_a_file_that_is_cut_is_no_file(tmp_path: Path) -> None:
    whole = _file(packed("x", b"a" * 100))
    for length in (0, 10, len(values.MAGIC) + 4, len(whole) - 1):
        for file in (io.BytesIO(whole[:length]), values.Content(bytearray(whole[:length]))):
            with pytest.raises(values.Unreadable):
                values.read(file)


_ITEM = {"kind": "pickle", "name": "x", "sizes": [4]}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"null",
        b'{"items": []}',
        b'{"python": 3, "items": []}',
        *(
            json.dumps({"python": "3.11.2", "items": items}).encode()
            for items in (
                None,
                {"x": 1},
                ["x"],
                [{}],
                [{**_ITEM, "name": None}],
                [{**_ITEM, "kind": "other"}],
                [{**_ITEM, "kind": ["pickle"]}],
                [{**_ITEM, "sizes": "4"}],
                [{**_ITEM, "sizes": [-1]}],
                [{**_ITEM, "sizes": [True]}],
                [{**_ITEM, "sizes": []}],
                [{**_ITEM, "sizes": [1 << 61]}],
                [{**_ITEM, "sizes": [1 << 70]}],
                [{"kind": "source", "name": "x", "source": "raise SystemExit", "filename": "f"}],
            )
        ),
    ],
)
def test_a_header_that_is_torn_or_of_somebody_else_is_an_error_of_ours(header: bytes) -> None:
    content = bytearray(values.MAGIC + len(header).to_bytes(8, "big") + header + b"1234")
    with pytest.raises(JobError, match="The values of the job cannot be read") as raised:
        read_outputs(content)
    assert raised.value.hint


def test_one_odd_value_takes_no_other_with_it() -> None:
    outputs = read_outputs(bytearray(_file(packed("x", 1), (_ITEM, [b"junk"]))))
    assert outputs == {"x": 1}
    outputs = read_outputs(bytearray(_file(({**_ITEM, "name": "bad"}, [b"junk"]), packed("y", 2))))
    assert (dict(outputs), list(outputs.errors)) == ({"y": 2}, ["bad"])


def test_what_another_python_has_made_and_this_one_cannot_read_is_named_with_both_versions(tmp_path: Path) -> None:
    good, bad = packed("good", 1), ({"kind": "pickle", "name": "bad", "sizes": [4]}, [b"\x80\x05\xff."])
    (tmp_path / "in.values").write_bytes(_file(good, bad).replace(b'"3.11.2"', b'"3.4.10"'))
    namespace: dict[str, object] = {}
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(values.Unreadable, match=f"^bad cannot be read: .* It was made by Python 3.4, this is {here}.$"):
        values.bring(str(tmp_path / "in.values"), namespace)
    assert namespace == {"good": 1}


def test_values_are_read_from_a_private_file_only(tmp_path: Path) -> None:
    path = tmp_path / "in.values"
    values.write(str(path), [packed("x", 1)])
    assert read_values(str(path)).startswith(values.MAGIC)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for other in ("link", "pipe", "nowhere"):
        with pytest.raises(UsageError):
            read_values(str(tmp_path / other))
    (tmp_path / "secret").touch(0o600)
    with pytest.raises(UsageError):
        read_values(str(tmp_path / "secret"))
    path.chmod(0o644)
    with pytest.raises(UsageError):
        read_values(str(path))


class Notebook:
    """Cells as a kernel runs them, and their definitions for another Python."""

    def __init__(self, main: types.ModuleType, folder: Path) -> None:
        self.names, self._folder = main.__dict__, folder
        self.names["In"] = [""]

    def run(self, source: str) -> None:
        name = f"/tmp/ipykernel_1/{abs(hash(source))}.py"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        self.names["In"].append(source)
        exec(compile(source, name, "exec", dont_inherit=True), self.names)

    def send(self, names: str, expression: str, python: str = sys.executable) -> str:
        """Return the value of an expression whose names came from a file."""
        sent = parcel({"in": names}, self.names, 10**6)
        code = (
            "import sys, runpy, __main__\n"
            f"runpy.run_path({LOADER!r})['load']('variables.values_file').bring(sys.argv[1], vars(__main__))\n"
            "print(eval(sys.argv[2]))\n"
        )
        with sent.on_disk() as told:
            command = [python, "-I", "-c", code, told["file"], expression]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    before = set(linecache.cache)
    yield Notebook(main, tmp_path)
    for name in set(linecache.cache) - before:
        del linecache.cache[name]


BOTH = pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])


@BOTH
@pytest.mark.parametrize(
    ("cells", "names", "expression", "told"),
    [
        (["n = 1; f = lambda x: (x,\n  g(x)); other = f", "g = lambda x: -x"], "f", "f(3)", "(3, -3)"),
        (["import enum\nfrom collections import namedtuple", "Pair = namedtuple('Pair', 'a b'); Color = enum.Enum('Color', 'RED')", "x = Pair(1, Color.RED)\ndef f(p: Pair): return p.a"], "x,f,Color", "f(x), type(x) is Pair, x.b is Color.RED", "(1, True, True)"),
        (["from dataclasses import dataclass", "@dataclass\nclass P:\n    x: int = 3", "p = P(4)"], "P,p", "p, P() == P(3), type(p) is P", "(P(x=4), True, True)"),
        (["import enum", "class Color(enum.Enum):\n    RED = 1", "red = Color.RED"], "red", "red is Color.RED", "True"),
        (["from enum import IntFlag, auto", "class Mode(IntFlag):\n    R = auto()\n    W = auto()", "m = Mode.R | Mode.W"], "Mode,m", "m == Mode(3)", "True"),
        (["from typing import NamedTuple", "class Point(NamedTuple):\n    x: int\n    y: int = 2", "o = Point(1)"], "Point,o", "o, Point(5)", "(Point(x=1, y=2), Point(x=5, y=2))"),
        (["import contextlib\n@contextlib.contextmanager\ndef opened(x):\n    yield x + 1", "def f(x):\n    with opened(x) as y: return y"], "f", "f(1)", "2"),
        (["from functools import lru_cache\n@lru_cache(maxsize=None)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)"], "fib", "fib(60)", "1548008755920"),
        (["import functools\ndef loud(f):\n    @functools.wraps(f)\n    def run(*a): return f(*a) + '!'\n    return run", "@loud\ndef hello(x): return x", "h = hello"], "h", "h('a')", "a!"),
        (["class Empty: pass", "class Kept(Empty): value = 3"], "Kept,Empty", "Kept.value, Empty in Kept.__mro__", "(3, True)"),
        (["class Twice: x = 1", "class Twice: x = 2", "class Twice: x = 1"], "Twice", "Twice.x", "1"),
        (["def f(): return 1\ndef f(): return 2"], "f", "f()", "2"),
        (["from pathlib import Path\nfrom os.path import join\nimport os.path as place", "def f(): return Path(join('a', 'b')).name + place.basename('x/y')"], "f", "f()", "by"),
        (["e, helper, x, N = [1], [2], [3], [4]", "def f(x):\n    try: return x / 0\n    except ZeroDivisionError as e: return str(e)", "def g(v):\n    def helper(y): return y\n    return helper(v)", "def h(v):\n    import os.path as helper\n    return helper.basename(v)", "class K:\n    N = 5\n    def get(self): return [x for x in range(self.N)]"], "f,g,h,K", "f(1), g(2), h('a/b'), K().get()", "('division by zero', 2, 'b', [0, 1, 2, 3, 4])"),
        (["import enum\nclass A: pass\nBase, RATE = A, 3\nclass Color(enum.Enum): RED = 1", "class B(Base): rate = RATE\nREDS = [Color.RED]\ndef times(n): return lambda f: lambda *a: n * f(*a)", "def f(reds=REDS, kind=B): return reds[0].name, kind.rate, isinstance(kind(), Base)", "@times(RATE)\ndef g(): return 2\ncache = {1: f}\ndef h(): return cache[1]()[1]"], "f,RATE,REDS,Color,h,cache", "f(), h()", "(('RED', 3, True), 3)"),
        (["import urllib.request\nimport xml.dom.minidom as md, xml as x\ndef f(): return urllib.request.__name__, x.dom.minidom is md"], "f", "f()", "('urllib.request', True)"),
        (["from math import pow\nid = 7\ndef sum(x): return 'mine'\ndef f(): return pow(2, 3), id, sum([]), len('ab')"], "f,id", "f()", "(8.0, 7, 'mine', 2)"),
        (["from dataclasses import dataclass", "from __future__ import annotations\n@dataclass\nclass Late:\n    x: Nowhere = 1\nclass Later:\n    def f(self, x: Nowhere): return 1\ndef late(x: Nowhere): return Later().f(x)", "@dataclass\nclass Now:\n    x: int = 2\ndef now(x: int): return Now"], "Late,late,Now,now", "Late.__annotations__, late(1), Now.__annotations__, now.__annotations__", "({'x': 'Nowhere'}, 1, {'x': <class 'int'>}, {'x': <class 'int'>})"),
        (["class Outer:\n    class Inner: v = 1\n    one = Inner()\ninner, more = Outer.Inner(), [Outer.Inner()]"], "inner,more", "type(inner) is type(more[0]) is Outer.Inner", "True"),
    ],
    ids=["lambda", "made", "dataclass", "enum", "flag", "namedtuple", "contextmanager", "lru_cache", "wraps", "base", "again", "last", "imports", "own names", "as they are made", "submodules", "names of Python", "annotations", "inner"],
)  # fmt: skip
def test_what_a_notebook_defines_travels_as_it_stands_there(
    notebook: Notebook, python: str, cells: list[str], names: str, expression: str, told: str
) -> None:
    for cell in cells:
        notebook.run(cell)
    assert notebook.send(names, expression, python) == told


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("import functools\ndef f(): return 1\ng = functools.lru_cache(f)", "g cannot be sent: its source is unknown"),
        ("def f(): return 1\nh = f\ndef f(): return 2\ndef g(): return f(), h()", "h cannot be sent: its name f belongs to another object that is sent"),
        ("import functools\n@functools.singledispatch\ndef g(x): return 0\n@g.register\ndef _(x: int): return 1", "g cannot be sent"),
        ("lock = []\ndef g():\n    def inner(): return lock\n    return inner", "g uses lock, which is not sent"),
        ("class A: pass\na = A()\ndef g(): return a", "g uses a, which is not sent"),
        ("id = 7\ndef g(): return id", "g uses id, which is not sent"),
        ("def f(): return 1\ndef g(): return 2\nx = g; g = f", "g cannot be sent: its name g belongs to another object that is sent"),
    ],
    ids=["wrapped later", "defined anew", "singledispatch", "from within", "value of a class", "name of Python", "swapped"],
)  # fmt: skip
def test_what_would_arrive_as_something_else_is_refused_once(notebook: Notebook, cell: str, told: str) -> None:
    notebook.run(cell)
    with pytest.raises(UsageError) as raised:
        notebook.send("g,x" if "x = " in cell else "g", "g")
    assert raised.value.message.count(told) == 1
    assert len(raised.value.message.splitlines()) == 1


def test_a_function_without_source_travels_alone_as_in_a_list(notebook: Notebook) -> None:
    """As bytecode, which this Python can load; it finds functions sent as source, and no others of the same name."""
    notebook.run("def helper(n): return 10 * n\ndef make(n):\n    def g(): return helper(n)\n    return g\n")
    notebook.run("g, fs = make(1), [make(2), lambda: helper(3)]\nh = fs[1]\ndef user(): return g() + h()")
    assert notebook.send("g,fs", "g(), fs[0](), fs[1]()") == "(10, 20, 30)"
    assert notebook.send("h,helper", "h(), h.__globals__['helper'] is helper") == "(30, True)"
    assert notebook.send("user", "user()") == "40"
    notebook.run("first = make(1)\ndef g(): return -1\ngs = [first, g]")
    assert notebook.send("g,first,gs", "g(), first(), gs[0](), gs[1] is g") == "(-1, 10, 10, True)"


def test_a_class_without_source_travels_with_what_is_of_it(notebook: Notebook) -> None:
    """As a class made by a job, returned with the model that the job trained."""
    notebook.run("exec('class Net:\\n    width = 3\\n    def size(self): return helper(self.width)')\nnet = Net()")
    notebook.run(
        "def helper(n): return 10 * n\nfrom collections import namedtuple\ng = namedtuple('Pair', 'a b')\nx = g(1, 2)"
    )
    assert notebook.send("net", "net.size(), type(net).__name__") == "(30, 'Net')"
    assert notebook.send("Net,net", "type(net) is Net, net.width") == "(True, 3)"
    assert notebook.send("g,x", "type(x) is g, x") == "(True, Pair(a=1, b=2))"
    notebook.run("def trained(kind=Net): return kind().size()")
    assert notebook.send("trained", "trained()") == "30"
