"""Python values in a line: the recognised references, without running code."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.magic_line.expand import MISSING, expand_at
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.errors import UsageError


class Job:
    id = "12_3"
    _token = "secret"

    def __str__(self) -> str:
        return self.id

    def cancel(self) -> str:
        raise AssertionError("functions are not called")


VALUES: dict[str, Any] = {
    "n": 4,
    "rate": 0.5,
    "name": "two words",
    "job": Job(),
    "runs": [SimpleNamespace(folder=Path("/data/a b")), SimpleNamespace(folder=Path("/data/c"))],
    "paths": {"data": "/d", "a b": "/ab", 3: "three"},
    "nodes": ["n1", "n2"],
    "empty": "",
    "print": print,
    "math": math,
    "int": int,
}


def expanded(line: str) -> list[str]:
    return [token.text for token in tokenize(line, lambda name: VALUES.get(name, MISSING))]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{n} $n ${n} x{n}y x$n.txt", ["4", "4", "4", "x4y", "x4.txt"]),
        ("{rate}", ["0.5"]),
        ('{name} \'\' "{name}" "a $name"', ["two words", "", "two words", "a two words"]),
        ("{job} {job.id}", ["12_3", "12_3"]),
        ("{runs[0].folder} {runs[-1].folder}", ["/data/a b", "/data/c"]),
        ("{paths['data']} {paths[\"a b\"]} {paths[3]} \"{paths['a b']}\"", ["/d", "/ab", "three", "/ab"]),
        ("--nodelist={nodes}", ["--nodelist=n1,n2"]),
        ("{empty} a{empty}b", ["", "ab"]),
    ],
)
def test_references(line: str, words: list[str]) -> None:
    assert expanded(line) == words


@pytest.mark.parametrize(
    "line",
    [
        "{unknown} $unknown ${unknown} {unknown.x[0]}",
        "$HOME ${SLURM_JOB_ID} $1 $$ $? $(hostname)",
        "{1..3} {a,b} {} { n } {n }",
        "{print} $print {math} {int}",  # functions, modules and classes
        "{paths[nothing]} {unknown._token} {unknown()[0].id}",
        "{{n}} $$n {{n} ${{n}",
        "awk {print}",
    ],
)
def test_what_stays_as_typed(line: str) -> None:
    assert expanded(line) == line.split()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("'{n} $n'", "{n} $n"),
        ("\\{n}", "{n}"),
        ("\\$n", "$n"),
        ('"\\{n} \\$n"', "{n} $n"),
        ("$'{n}'", "${n}"),
        ("'a'{n}'b'", "a4b"),
    ],
)
def test_quotes_and_backslashes_keep_a_reference_from_being_one(line: str, word: str) -> None:
    assert expanded(line) == [word]


def test_a_value_is_not_looked_at_again() -> None:
    values = {"a": "{b} $b '\" \\ -n", "b": "wrong"}
    (token,) = tokenize("x{a}", lambda name: values.get(name, MISSING))
    assert token.text == "x{b} $b '\" \\ -n"
    assert token.typed == 1


@given(st.text(st.sampled_from("{}$nabc.[]'\"0-_ "), min_size=1))
def test_only_names_are_looked_up(text: str) -> None:
    def lookup(name: str) -> Any:
        assert name.isidentifier()
        return MISSING

    for at, char in enumerate(text):
        if char in "{$":
            assert expand_at(text, at, lookup) is None


HOME = {"HOME": "/home/a b", "USER": "alice", "n": "wrong", "print": "p", "evil": "-n4 $USER ~"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-o ~/x.log ~ ~/", ["-o", "/home/a b/x.log", "/home/a b", "/home/a b/"]),
        ("--output=~/x -o$HOME/x", ["--output=/home/a b/x", "-o/home/a b/x"]),
        ('user=$USER "$HOME/$USER" ${USER}s $n $print', ["user=alice", "/home/a b/alice", "alices", "4", "p"]),
        ("$evil", ["-n4 $USER ~"]),
        # as in a shell
        (
            "'~/x' '$USER' \\$USER \\~ \"~/x\" \"\"~ a~ ~alice x=~/x",
            ["~/x", "$USER", "$USER", "~", "~/x", "~", "a~", "~alice", "x=~/x"],
        ),
        ("{USER} {HOME} $NOBODY $$USER $(id) `id` $1 ${USER:-x} ${#USER}", None),
    ],
)
def test_variables_where_python_has_no_such_name(line: str, words: list[str] | None) -> None:
    tokens = tokenize(line, lambda name: VALUES.get(name, MISSING), HOME)
    assert [token.text for token in tokens] == (words or line.split())


def test_without_a_home_the_tilde_stays() -> None:
    assert [token.text for token in tokenize("~/x", None, {})] == ["~/x"]


NUMBERS = {"n": 3, "runs": [1, 2], "i": 0, "name": "x"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--array 1-{n+1}", ["--array", "1-4"]),
        ("-J 'a' {n * 2}", ["-J", "a", "6"]),
        ("{n//2} {n/2} {n%2} {n**2} {-n} {2*(n-1)}", ["1", "1.5", "1", "9", "-3", "4"]),
        ('"{runs[i]}" {runs[n-2]} {runs[:1]} {runs+runs}', ["1", "2", "1", "1,2,1,2"]),
        ("-J run{n:03d} {n/7:.2f} {name!r} {name:>3}", ["-J", "run003", "0.43", "'x'", "  x"]),
        ("{name + '.csv'} {name*2} {2*name}", ["x.csv", "xx", "xx"]),
    ],
)
def test_arithmetic(line: str, words: list[str]) -> None:
    assert [token.text for token in tokenize(line, lambda name: NUMBERS.get(name, MISSING))] == words


@pytest.mark.parametrize(
    ("line", "part", "why"),
    [
        ("{len(runs)}", "{len(runs)}", "functions are not called"),
        ("{name.upper()}", "{name.upper()}", "functions are not called"),
        ("-o {name.__class__}", "{name.__class__}", "only names and arithmetic"),
        ("{name._private}", "{name._private}", "only names and arithmetic"),
        ("{name._private + 'x'}", "{name._private + 'x'}", "only names and arithmetic"),
        ("afterok:{runs.copy()[0].real}", "{runs.copy()[0].real}", "functions are not called"),
        ("{n > 2}", "{n > 2}", "only names and arithmetic"),
        ("-J 'a' {n/i}", "{n/i}", "ZeroDivisionError: division by zero"),
        ("{n + name}", "{n + name}", "TypeError"),
        ("{runs[n]}", "{runs[n]}", "IndexError"),
        ("{n:xyz}", "{n:xyz}", "ValueError"),
        ("{name % n}", "{name % n}", "only names and arithmetic"),
        # A typing error must not fill the memory.
        ("{n ** 9 ** 9 ** 9}", "{n ** 9 ** 9 ** 9}", "OverflowError"),
        ("{name * 99999999999}", "{name * 99999999999}", "OverflowError"),
        ("{99999999999 * runs}", "{99999999999 * runs}", "OverflowError"),
    ],
)
def test_an_expression_without_a_value_is_refused_at_once(line: str, part: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        tokenize(line, lambda name: NUMBERS.get(name, MISSING))
    start, end = caught.value.details["span"]
    # In a word that a blank ends, only the braces are a reference.
    assert line[start:end] == part
    assert "{value}" in caught.value.hint


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("{job.nothing}", "Python has no such value"),
        ("{runs[7]}", "Python has no such value"),
        ("{n[0]}", "Python has no such value"),
        ("{job.cancel}", "functions are not called"),
        ("{math.sqrt}", "functions are not called"),
    ],
)
def test_what_leads_nowhere_is_refused_at_once(part: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        expanded(f"-o 'x' log-{part}.txt")
    assert caught.value.details["span"] == [11, 11 + len(part)]
    assert expanded(f"'{part}'") == [part]


@pytest.mark.parametrize(
    "line",
    [
        "awk '{print $1}'",
        "awk '{n+1}'",
        'awk "{print $1}"',
        'awk "{n++}"',
        "{m+1}",
        "{n+m}",
        "{1+1}",
        "{{n+1}}",
        "${n+1}",
        "{a,b}",
        "{n,i}",
        "{n:99999}",
        "{1..3}",
        "{",
        "{}",
        "{n + ",
        "{print(n)}",
    ],
)
def test_what_is_no_expression_of_names_that_are_there_stays(line: str) -> None:
    words = [token.text for token in tokenize(line, lambda name: NUMBERS.get(name, MISSING))]
    assert words == [token.text for token in tokenize(line)]
