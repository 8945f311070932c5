"""Sweeps, as typed and as tables."""

from __future__ import annotations

import subprocess

import pytest

from jupyter_slurm.domain.scripts.sweep_parameters import Sweep, task_script, to_literal, typed_literal
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.cell.sweep_parameters import value_of


def values(sweep: Sweep) -> list[dict[str, object]]:
    return [dict(zip(sweep.names, map(value_of, row), strict=True)) for row in sweep.rows]


def test_each_with_each_the_last_one_fastest() -> None:
    sweep = Sweep.typed("lr:1e-4,1e-3;gamma:0.9,1", zipped=False)
    assert values(sweep) == [
        {"lr": 1e-4, "gamma": 0.9},
        {"lr": 1e-4, "gamma": 1},
        {"lr": 1e-3, "gamma": 0.9},
        {"lr": 1e-3, "gamma": 1},
    ]
    assert sweep.tasks(None) == "0-3"


def test_side_by_side() -> None:
    assert values(Sweep.typed("a:1,2;b:x,y", zipped=True)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    with pytest.raises(UsageError, match="2 of a, 1 of b"):
        Sweep.typed("a:1,2;b:x", zipped=True)


@pytest.mark.parametrize("typed", ["range(3)", "np.linspace(0, 1, 5)", "1,numpy.arange(3)"])
def test_what_makes_a_list_in_python_is_no_text(typed: str) -> None:
    with pytest.raises(UsageError, match="would be one value"):
        Sweep.typed(f"x:{typed}", zipped=False)
    Sweep.typed(f"x:'{typed}',rangefinder,f(x)", zipped=False)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("True", True),
        ("None", None),
        ("adam", "adam"),
        ("007", "007"),
        ("it's", "it's"),
        ("0x1for", "0x1for"),
        ("/data/a:b", "/data/a:b"),
        ("(1,2)", (1, 2)),
        ("[1,(2,3)]", [1, (2, 3)]),
        ("'a,b;c'", "a,b;c"),
        ("'1'", "1"),
        ("inf", float("inf")),
        ("__import__('os')", "__import__('os')"),
        ("\udcff", "\udcff"),
    ],
)
def test_what_is_typed_is_a_literal_or_text(typed: str, value: object) -> None:
    (row,) = values(Sweep.typed(f"x:{typed}", zipped=False))
    assert row == {"x": value}
    assert type(row["x"]) is type(value)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("lr", "NAME:VALUE"),
        ("lr:", "NAME:VALUE"),
        ("lr:1,,2", "NAME:VALUE"),
        ("lr:1;", "NAME:VALUE"),
        ("1x:1", "'1x' is not a valid parameter name"),
        ("class:1", "'class' is not a valid parameter name"),
        ("task_index:1", "'task_index' is not a valid parameter name"),
        ("a:1;a:2", "twice"),
        ("PATH:1", "how a script finds its commands"),
        ("SLURM_JOB_ID:1", "or its job"),
        ("a:" + "x" * 5000, "longer than 4096"),
        (";".join(f"{name}:" + ",".join("0" * 100) for name in "abcd"), "100,000,000 tasks"),
    ],
)
def test_what_cannot_be_is_refused_with_an_example(typed: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Sweep.typed(typed, zipped=False)
    assert caught.value.hint


def test_tables_keep_their_values() -> None:
    numpy = pytest.importorskip("numpy")
    rows = [{"a": 1.5, "b": None, "c": ("x", [1])}, {"c": (), "b": "é\n'", "a": numpy.float64(2)}]
    assert values(Sweep.from_rows(rows)) == [rows[0], {"a": 2.0, "b": "é\n'", "c": ()}]
    with pytest.raises(UsageError, match="row 1 has the parameters a, row 0 has a, b"):
        Sweep.from_rows([{"a": 1, "b": 2}, {"a": 1}])
    for odd in (object(), numpy.zeros(3), lambda: 1, [float("inf")]):
        with pytest.raises(UsageError, match="cannot be a parameter"):
            to_literal("x", odd)
    assert value_of(to_literal("x", float("nan"))) != 0


def test_tasks_that_the_table_has() -> None:
    sweep = Sweep.typed("a:1,2,3", zipped=False)
    assert sweep.tasks("0,2%1") == "0,2%1"
    with pytest.raises(UsageError, match="no row 3"):
        sweep.tasks("1-3")


def test_a_script_gets_the_values_as_they_were_typed(tmp_path: object) -> None:
    odd = ["a b", "$HOME `x`", "two\nlines", "'", '"', "\\", "é", "*", "-n"]
    rows = [{"x": text, "lr": 1e-4} for text in odd]
    script = f"{tmp_path}/it's.script"
    with open(f"{tmp_path}/vars", "w", encoding="utf-8") as file:
        file.write(Sweep.from_rows(rows).as_shell())
    with open(script, "w", encoding="utf-8") as file:
        file.write('#! /bin/sh -e\n#SBATCH -n 1\nprintf \'%s|%s|%s|%s\' "$x" "$lr" $task_index "$1"')
    with open(script, encoding="utf-8") as file:
        text = task_script(file.read(), variables=f"{tmp_path}/vars", script=script)
    assert "\n#SBATCH -n 1\n" in text
    for task, value in enumerate(odd):
        done = subprocess.run(
            ["/bin/sh", "-c", text, "sh", "an argument"],
            env={"SLURM_ARRAY_TASK_ID": str(task), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() == f"{value}|0.0001|{task}|an argument"
    assert "lr=1e-4" in Sweep.typed("lr:1e-4", zipped=False).as_shell()
    with pytest.raises(UsageError, match="environment variable"):
        Sweep.typed("é:1", zipped=False).as_shell()
    with pytest.raises(UsageError, match="NUL"):
        Sweep.from_rows([{"x": "\0"}]).as_shell()


def test_typed_text_survives(recwarn: pytest.WarningsRecorder) -> None:
    assert typed_literal("1 is 2") == repr("1 is 2")
    assert not recwarn
