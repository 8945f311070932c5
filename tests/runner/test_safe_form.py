"""Safe form of values: what is read is what was written, and nothing that is read runs code."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from jupyter_slurm.runner.variables import safe_form, values_file


def there_and_back(value: Any) -> Any:
    pieces, _ = safe_form.encode(value)
    return safe_form.decode([memoryview(bytearray(piece)) for piece in pieces])


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, 2**63, -(2**70), 1.5, float("inf"), 1 + 2j, "a\ud800é", b"", b"a\0", bytearray(b"x")),
        *([], [1, 2], [1.0, 2.0], [2**70], [1, "a", None, [True], ()], (1, (2,)), set(), {1, "a"}, frozenset({1})),
        {"a": [1], 2: {(1, 2): {3}}, None: "", "i": ["i", "b"]},
        *(np.float64(1.5), np.int8(3), np.bool_(True), np.str_("a"), np.datetime64("2020-01-01")),
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    found = there_and_back(value)
    assert (found, type(found), repr(found)) == (value, type(value), repr(value))


@pytest.mark.parametrize(
    "array",
    [
        *(np.arange(5), np.zeros((2, 3), order="F"), np.arange(10)[::2], np.array(3.0), np.zeros((0, 3))),
        *(np.array(["a", "bc"]), np.array([b"x"]), np.array(["2020-01-01"], "M8[D]"), np.array([1, 2], ">i4")),
        *(np.array([True]), np.arange(6, dtype="c8").reshape(2, 3).T, np.ones(3, "f2")),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back_as_they_were_and_can_be_changed(array: Any) -> None:
    found = there_and_back({"it": array})["it"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert (found == array).all()
    assert found.flags.f_contiguous == np.asarray(array, order="K").copy(order="A").flags.f_contiguous
    found[...] = found


def test_tables_of_pandas_come_back_as_they_were() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "a": [1, 2],
            "b": ["x", None],
            "c": [1.5, np.nan],
            "d": pandas.to_datetime(["2020-01-01", "2021-01-01"]),
            "e": pandas.array([1, None], dtype="Int64"),
            "f": [[1], {"a": 2}],
            "g": pandas.Series(["x", "y"], dtype=object, index=["p", "q"]).to_numpy(),
            3: [True, False],
        },
        index=["p", "q"],
    )
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    empty, plain = pandas.DataFrame(), pandas.DataFrame(np.eye(3))
    for table in (frame, twice, empty, plain, frame.set_index("d"), pandas.DataFrame({"a": [1, 1]}, index=[3, 3])):
        pandas.testing.assert_frame_equal(table, there_and_back(table))
    series = pandas.Series([1, 2], name=("a", 1), index=[3, 4])
    pandas.testing.assert_series_equal(series, there_and_back(series))
    numbers = pandas.Categorical([1, 2])
    others = [pandas.DataFrame({"a": pandas.Categorical(["x"])}), frame.set_index(["a", "b"]), frame.index]
    others += [pandas.DataFrame({"a": numbers}), pandas.Series(numbers), pandas.Series([1, 2], index=numbers)]
    others += [pandas.DataFrame([[1, 2]], columns=numbers), pandas.Series(pandas.arrays.SparseArray([0.0, 1.0]))]
    for other in others:
        with pytest.raises(safe_form.NoSafeForm):
            safe_form.encode(other)


def _twice() -> list[Any]:
    part = [1]
    return [part, part]


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


def _circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    [
        *(_twice(), _deep(), _circle(), object(), len, type("Own", (dict,), {})(), np.array([object()])),
        *(np.ma.array([1]), np.zeros(2, [("a", "i4")]), [1, object()], {"a": range(3)}, np.str_(""), np.bytes_(b"")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_have_none_and_become_a_pickle(value: Any) -> None:
    with pytest.raises(safe_form.NoSafeForm):
        safe_form.encode(value)


def test_what_is_too_large_is_refused_before_it_is_copied() -> None:
    for value in (np.zeros(10_000)[::2], "a" * 200, b"a" * 200, [1.0] * 200, ["a" * 60, "b" * 60]):
        with pytest.raises(values_file.SizeLimitExceeded):
            safe_form.encode(value, 100)


@pytest.mark.parametrize(
    "form",
    [
        *(["a", "O", [1], "C", 1], ["a", "i4,O", [1], "C", 1], ["a", "<f8", [9], "C", 1], ["a", "<f8", [1], "C", 7]),
        *(["n", "O", "00" * 8], ["T", "Tensor", [1], False, 1], ["e", "object", [1]], ["__class__"], ["x", 1, 2]),
        *(["value", ["l", []]], [], [["l"]], ["d", [["l", []], 1]], ["s", [["l", []]]], ["i", "__import__('os')"]),
    ],
    ids=json.dumps,
)
def test_a_forged_form_is_an_error(form: Any) -> None:
    item = {"kind": "pickle", "safe": True, "name": "x", "sizes": [1, 1, 8]}
    with pytest.raises(values_file.Unreadable):
        values_file.unpack(item, [b"", json.dumps(form).encode(), bytearray(8)], {"python": "3.11.2"})


def test_a_returned_value_is_safe_if_its_type_allows_it(tmp_path: Any) -> None:
    shared = [1]
    space = {"x": {"loss": [1.0]}, "array": np.ones(3), "other": range(3), "one": [shared], "two": (shared,)}
    values_file.leave(str(tmp_path / "out.values"), list(space), space, 10**6, {})
    with (tmp_path / "out.values").open("rb") as file:
        header, items = values_file.read(file)
    assert {item["name"]: values_file.is_safe(item) for item, _ in items} == {
        "x": True,
        "array": True,
        "other": False,
        "one, two": False,  # they stay one
    }
    old = {item["name"]: pickle.loads(pieces[0], buffers=pieces[1:]) for item, pieces in items}
    assert (old["x"], old["array"].tolist()) == ({"loss": [1.0]}, [1, 1, 1]), "earlier versions read them, too"
    found = {name: value for item, pieces in items for name, value in values_file.unpack(item, pieces, header).items()}
    assert found["one"][0] is found["two"][0]
    assert (found["x"], found["array"].tolist()) == ({"loss": [1.0]}, [1, 1, 1])
