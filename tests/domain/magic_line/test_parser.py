"""Magic line: quoting as in a shell, Slurm options and keywords, and the separation of the two."""

from __future__ import annotations

import subprocess
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jupyter_slurm.domain.magic_line.expand import MISSING
from jupyter_slurm.domain.magic_line.parser import command_arguments, parse_cell_line, parse_line_magic
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.options.option_parser import HET, OptionTable
from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.domain.scripts.sweep_parameters import Sweep
from jupyter_slurm.errors import OptionError, SlurmError, UsageError

SBATCH = OptionTable.for_command("sbatch")
SQUEUE = OptionTable.for_command("squeue")
WORDS = {"as": True, "in": True, "wait": False, "show": False}
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


def lookup(values: dict[str, Any]) -> Any:
    return lambda name: values.get(name, MISSING)


def part(line: str, error: SlurmError) -> str:
    """Return the part of the line to which an error points."""
    start, end = error.details["span"]
    return line[start:end]


# Words ---------------------------------------------------------------------------------------------------------------


@given(st.lists(TEXT))
def test_quoted_words_come_back(words: list[str]) -> None:
    line = quote_argv(words)
    assert [token.text for token in tokenize(line)] == words


@given(st.lists(st.text(st.sampled_from("ab# \t'\"\\-={}$é\n"), max_size=12), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_words_are_those_of_sh(lines: list[str]) -> None:
    """Compare with /bin/sh; features of shells alone ($ and backquotes, lines) are escaped or left out."""
    ours = []
    script = ['show() { printf \'%s\\0\' "$#" "$@"; }']
    for line in lines:
        line = line.replace("$", "").replace("\n", "").replace("\\{", "")
        try:
            ours.append([token.text for token in tokenize(line)])
        except UsageError:
            continue
        script.append(f"show {line}")
    said = subprocess.run(["/bin/sh"], input="\n".join(script).encode(), capture_output=True, check=True).stdout
    expected = "".join(f"{field}\0" for words in ours for field in (str(len(words)), *words))
    assert said.decode() == expected


@given(TEXT)
def test_every_word_knows_its_place(line: str) -> None:
    refusal = None
    try:
        tokens = tokenize(line)
    except UsageError as error:
        refusal = error
    if refusal is not None:
        assert part(line, refusal)
        return
    ends = [0, *(token.end for token in tokens)]
    starts = [*(token.start for token in tokens), len(line)]
    between = [line[end:start].strip() for end, start in zip(ends, starts, strict=True)]
    assert not any(between[:-1])
    assert between[-1][:1] in ("", "#"), "but for a comment"
    for token in tokens:
        (again,) = tokenize(line[token.start : token.end])
        assert again.text == token.text
        assert token.typed == len(token.text)


@pytest.mark.parametrize(
    ("line", "where"),
    [("-p 'a b", "'a b"), ('as="x', '"x'), ("-n1 \\", "\\"), ("a \0 b", "\0")],
)
def test_lines_that_have_no_words(line: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        tokenize(line)
    assert part(line, caught.value) == where
    assert caught.value.hint


# A cell's line -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "options", "words", "args"),
    [
        ("", [], {}, []),
        ("-p arandu --gpus 1 --time 2:00:00   in=x,y as=job wait   -- arg1 -x 'a b'",
         ["-p", "arandu", "--gpus", "1", "--time", "2:00:00"], {"in": "x,y", "as": "job", "wait": None},
         ["arg1", "-x", "a b"]),
        ("wait -p arandu as=job -n4", ["-p", "arandu", "-n4"], {"wait": None, "as": "job"}, []),
        ("-p wait", ["-p", "wait"], {}, []),  # the value of -p
        ("--gpus as=job", ["--gpus", "as=job"], {}, []),  # as sbatch parses it
        ("-p x --time=5   # my first 'job", ["-p", "x", "--time=5"], {}, []),  # a comment, as in a shell
        ("# only a comment", [], {}, []),
        ("--comment=a#b wait -- '#c' d#e # f", ["--comment=a#b"], {"wait": None}, ["#c", "d#e"]),
        ("--nice wait", ["--nice"], {"wait": None}, []),  # an optional value is attached or absent
        ("-k wait", ["-k"], {"wait": None}, []),
        ("-Hn 2 wait", ["-Hn", "2"], {"wait": None}, []),
        ("--comm 'as=job wait' --part=x", ["--comm", "as=job wait", "--part=x"], {}, []),
        ('"--comment=a b" as="j"', ["--comment=a b"], {"as": "j"}, []),
        ("-n1 : -n2 wait", ["-n1", ":", "-n2"], {"wait": None}, []),
        ("-- --", [], {}, ["--"]),
        ("'--' x", [], {}, ["x"]),
        ("-J '=x' --comment==x", ["-J", "=x", "--comment==x"], {}, []),
        ("in=a=b", [], {"in": "a=b"}, []),
        ("-p a -- wait", ["-p", "a"], {}, ["wait"]),
    ],
)  # fmt: skip
def test_cell_lines(line: str, options: list[str], words: dict[str, str | None], args: list[str]) -> None:
    parsed = parse_cell_line(line, SBATCH, WORDS)
    assert (parsed.options, parsed.keywords, parsed.args, parsed.rest) == (options, words, args, [])
    assert [token for option in parsed.parsed.options for token in option.tokens] == options
    for (start, end), option in zip(parsed.spans, options, strict=True):
        assert tokenize(line[start:end])[0].text == option


@pytest.mark.parametrize(
    ("line", "where", "message", "hint"),
    [
        (
            "-p x wiat",
            "wiat",
            "'wiat' is neither an option of Slurm nor a keyword of jupyter_slurm.",
            "Did you mean wait?",
        ),
        (
            "ass=job",
            "ass=job",
            "'ass=job' is neither an option of Slurm nor a keyword of jupyter_slurm.",
            "Did you mean as?",
        ),
        ("hello", "hello", None, "The keywords are as, in, show, wait. Write arguments after --."),
        ("-n 1 as", "as", "The keyword as needs a value.", "Write as=VALUE without spaces."),
        ("as= x", "as=", "The keyword as needs a value.", None),
        ("wait=1", "wait=1", "The keyword wait takes no value.", "Write only wait."),
        ("wait -n1 wait", "wait", "The keyword wait is given twice.", "Give it once."),
        ("''", "''", None, None),
        ("-", "-", None, None),
        ("--gpu-per-node 1", "--gpu-per-node", None, "Did you mean --gpus-per-node?"),
        ("-n1 in=x, y", "y", None, "Leave out the blank after the comma, or put the value in quotes."),
        ("-n1 -n=4", "-n=4", "No = may stand between -n and its value.", "Write -n 4 or --ntasks=4."),
        ("-t=1:00:00", "-t=1:00:00", None, "Write -t 1:00:00 or --time=1:00:00."),
        ("-J='my run'", "-J='my run'", None, "Write -J 'my run' or --job-name='my run'."),
        ("-n=2 -o=log.txt", "-n=2", None, "Write -n 2 or --ntasks=2."),
        ("-o=log.txt", "-o=log.txt", None, "Write -o log.txt or --output=log.txt."),
        ("-p= gpu", "-p= gpu", "No blank may stand beside the = of -p.", "Write -p gpu"),
        ("wait --gpus", "--gpus", "--gpus needs a value.", "Write --gpus=VALUE."),
        ("wait '--hold=1' -n1", "'--hold=1'", "--hold takes no value.", None),
        ("-- a :", ":", "sbatch drops an argument that is only a colon.", None),
    ],
)
def test_cell_lines_that_are_refused(line: str, where: str, message: str | None, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cell_line(line, SBATCH, WORDS)
    assert part(line, caught.value) == where
    assert message in (None, caught.value.message)
    assert hint in (None, caught.value.hint)


def test_a_word_that_may_have_a_value_is_said_with_and_without_it() -> None:
    words = {**WORDS, "kernel": None}
    for line in ("kernel kernel=far", "kernel=far kernel", "kernel=far"):
        assert parse_cell_line(line, SBATCH, words).keywords == {"kernel": "far"}
    for line in ("kernel kernel", "kernel=far kernel=near", "kernel kernel=far kernel=far"):
        with pytest.raises(UsageError, match="kernel is given twice"):
            parse_cell_line(line, SBATCH, words)
    with pytest.raises(UsageError, match="kernel needs a value"):
        parse_cell_line("kernel kernel=", SBATCH, words)


# A line magic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "options", "words", "rest"),
    [
        ("job.sh", [], {}, ["job.sh"]),
        ("wait as=j -p x job.sh a -n2 'b c'", ["-p", "x"], {"wait": None, "as": "j"}, ["job.sh", "a", "-n2", "b c"]),
        ("job.sh wait as=j", [], {}, ["job.sh", "wait", "as=j"]),
        ("-n2 -- wait", ["-n2"], {}, ["wait"]),
        ("-n1 : -n2 job.sh -- x", ["-n1", ":", "-n2"], {}, ["job.sh", "--", "x"]),
        ("FOO=1 job.sh", [], {}, ["FOO=1", "job.sh"]),
        ("show --wrap 'echo a b'", ["--wrap", "echo a b"], {"show": None}, []),
        ("- a", [], {}, ["-", "a"]),
        ("as", [], {}, ["as"]),
        ("wait in FOO=1 python", [], {"wait": None}, ["in", "FOO=1", "python"]),
        ("-n2 in x", ["-n2"], {}, ["in", "x"]),
    ],
)
def test_line_magics(line: str, options: list[str], words: dict[str, str | None], rest: list[str]) -> None:
    parsed = parse_line_magic(line, SBATCH, WORDS)
    assert (parsed.options, parsed.keywords, parsed.rest, parsed.args) == (options, words, rest, [])
    assert parsed.parsed == SBATCH.split(options)._replace(rest=rest, options=parsed.parsed.options)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("-p x wait job.sh", "wait"),
        ("-p x as=j", "as=j"),
        ("ass=j job.sh", "ass=j"),
        ("wait=1 job.sh", "wait=1"),
        ("as= job.sh", "as="),
        ("-n=4 job.sh", "-n=4"),
        ("--gpu 1 job.sh", "--gpu"),
        ("job.sh a :", ":"),
    ],
)
def test_line_magics_that_are_refused(line: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_line_magic(line, SBATCH, WORDS)
    assert part(line, caught.value) == where


@pytest.mark.parametrize(
    ("line", "rest"), [("env", ["env"]), ("env FOO=1 python x.py", ["env", "FOO=1", "python", "x.py"])]
)
def test_a_command_may_have_the_name_of_a_keyword_that_needs_a_value(line: str, rest: list[str]) -> None:
    table, words = OptionTable.for_command("srun"), {"env": True, "wait": False}
    assert parse_line_magic(line, table, words).rest == rest
    assert parse_line_magic(f"env=torch wait {line}", table, words).rest == rest
    assert parse_line_magic(f"-n1 {line}", table, words).rest == rest


@pytest.mark.parametrize("line", ["env = torch python x.py", "env =torch x.py", "wait env = torch x.py"])
@pytest.mark.parametrize("command", ["srun", "sbatch"])
def test_a_keyword_with_a_blank_before_its_equals_sign_is_not_taken_for_a_command(line: str, command: str) -> None:
    table, words = OptionTable.for_command(command), {"env": True, "wait": False}
    with pytest.raises(UsageError, match="The keyword env needs a value") as caught:
        parse_line_magic(line, table, words)
    assert caught.value.hint == "Write env=VALUE without spaces."
    assert part(line, caught.value) == "env"
    assert parse_line_magic("env '=torch'", table, words).rest == ["env", "=torch"]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("-K=1 hostname", "Write -K1 or --kill-on-bad-exit=1."),
        ("-I=5 hostname", "Write -I5 or --immediate=5."),
        ("-K= 1 hostname", "Write -K1"),
        ("-n=4 hostname", "Write -n 4 or --ntasks=4."),
    ],
)
def test_an_optional_value_is_no_word_of_its_own(line: str, hint: str) -> None:
    table = OptionTable.for_command("srun")
    with pytest.raises(OptionError) as caught:
        parse_line_magic(line, table, {})
    assert caught.value.hint == hint
    meant = hint.removeprefix("Write ").split(" or ")[0]
    assert parse_line_magic(f"{meant} hostname", table, {}).rest == ["hostname"]


def test_an_inserted_value_may_begin_with_an_equals_sign() -> None:
    values = lookup({"v": "=00"})
    assert parse_line_magic("-J{v} -o {v} x.sh", SBATCH, WORDS, values).options == ["-J=00", "-o", "=00"]


@pytest.mark.parametrize("word", ["resume", "resume=5"])
def test_a_keyword_with_an_optional_value_is_not_taken_for_a_script(word: str) -> None:
    line, words = f"-p gpu {word} job.sh", {"resume": None}
    with pytest.raises(UsageError, match="must come before Slurm's options") as caught:
        parse_line_magic(line, SBATCH, words)
    assert part(line, caught.value) == word
    assert parse_line_magic(f"{word} -p gpu job.sh", SBATCH, words).rest == ["job.sh"]
    assert parse_line_magic(f"-p gpu ./{word}", SBATCH, words).rest == [f"./{word}"]


# Python's values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("\u2013p", "-p"),
        ("\u2014gpus=1", "--gpus=1"),
        ("\u2013gpus", "--gpus"),
        ("\u2013-gpus", "--gpus"),
        ("-\u2013gpus", None),
        ("\u2212N", "-N"),
        ("\u2010t=1", "-t=1"),
    ],
)
def test_a_dash_of_a_text_processor_is_told(typed: str, meant: str | None) -> None:
    """Check the hint for a typographic dash: a hyphen in its place makes an option unknown to Slurm."""
    if meant is None:
        with pytest.raises(OptionError):
            parse_cell_line(f"{typed} arandu", SBATCH, WORDS)
        return
    for parse in (parse_cell_line, parse_line_magic):
        with pytest.raises(UsageError) as caught:
            parse(f"-n 1 {typed} arandu", SBATCH, WORDS)
        assert caught.value.hint == f"Did you mean {meant}?"
        assert part(f"-n 1 {typed} arandu", caught.value) == typed
    assert parse_line_magic("{script} x", SBATCH, WORDS, lookup({"script": typed})).rest == [typed, "x"]
    assert parse_line_magic(f"./{typed}", SBATCH, WORDS).rest == [f"./{typed}"]


@example("=00")
@given(TEXT.filter(lambda value: value != ":"))  # sbatch drops an argument that is only a colon
def test_a_value_is_one_word_wherever_words_may_stand(value: str) -> None:
    values = lookup({"v": value})
    line = '--comment {v} --wckey="{v}" -Jx{v} -o x{v} as=x{v} wait -- {v} "$v" a${v}b'
    parsed = parse_cell_line(line, SBATCH, WORDS, values)
    assert parsed.options == ["--comment", value, f"--wckey={value}", f"-Jx{value}", "-o", f"x{value}"]
    assert parsed.keywords == {"as": f"x{value}", "wait": None}
    assert parsed.args == [value, value, f"a{value}b"]


@pytest.mark.parametrize(
    "line",
    [
        "{v}",
        "-n1 {v}",
        "--{v}",
        "-{v}",
        "-H{v}",
        "--nice {v}",
        "{v}=x",
        "a{v}",
        "w{v}",
        "$v",
        '""{v}',
        "'-'{v}",
        "--gp{v}",
    ],
)
@pytest.mark.parametrize(
    "value", ["-n4", "--wrap=x", "wait", "as=job", "s=job", "ait", "n4", "H", "us=1", "--", ":", "x"]
)
def test_a_value_never_becomes_an_option_or_a_word_of_ours(line: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cell_line(line, SBATCH, WORDS, lookup({"v": value}))
    assert "v" in part(line, caught.value)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--gpus={v}", ["--gpus=4"]),
        ("-n{v}", ["-n4"]),
        ("-Hn{v}", ["-Hn4"]),
        ("--nice={v}", ["--nice=4"]),
        ("-n {v}", ["-n", "4"]),
    ],
)
def test_a_value_is_the_value_of_an_option(line: str, options: list[str]) -> None:
    assert parse_cell_line(line, SBATCH, WORDS, lookup({"v": 4})).options == options


def test_a_value_is_a_script_and_its_arguments() -> None:
    parsed = parse_line_magic("-n1 {path} {v} wait", SBATCH, WORDS, lookup({"path": "my job.sh", "v": "-n4"}))
    assert parsed.rest == ["my job.sh", "-n4", "wait"]
    assert parsed.options == ["-n1"]
    assert parse_line_magic("{w}", SBATCH, WORDS, lookup({"w": "wait"})).rest == ["wait"]


@given(st.text(st.sampled_from("ab{}$ '\"-=n1:\\."), max_size=20))
def test_without_known_names_a_line_stays_as_typed(line: str) -> None:
    def words(values: Any) -> Any:
        try:
            return tokenize(line, values)
        except UsageError as error:
            return error.message

    assert words(lookup({})) == words(None)


# Commands with unchanged words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('-o "%i|%T" -t all', ["-o", "%i|%T", "-t", "all"]),
        ("-u {name} x", ["-u", "a b", "x"]),
        ("-S {dash}", ["-S", "-n4"]),  # sorts backwards: the value of a typed option
        ("--no-such {name} -Z", ["--no-such", "a b", "-Z"]),  # squeue will report it
        ("-- {dash}", ["--", "-n4"]),
    ],
)
def test_words_of_a_command(line: str, words: list[str]) -> None:
    assert command_arguments(line, SQUEUE, lookup({"name": "a b", "dash": "-n4"})) == words


@pytest.mark.parametrize("line", ["{dash}", "-u root {dash}", "x {dash}", "-{dash}", "--{dash}"])
def test_a_value_never_becomes_an_option_of_a_command(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        command_arguments(line, SQUEUE, lookup({"dash": "-n4"}))
    assert not isinstance(caught.value, OptionError)
    assert "{dash}" in part(line, caught.value)


def test_the_separator_of_components_is_among_the_options() -> None:
    assert [option.name for option in parse_cell_line("-n1 : -n2", SBATCH, WORDS).parsed.options] == [
        "ntasks",
        HET,
        "ntasks",
    ]


def test_a_variable_is_a_value_and_never_an_option() -> None:
    variables = {"WHERE": "-n4", "HOME": "/h"}
    parsed = parse_cell_line("-o $WHERE --error=~/e wait -- $WHERE ~/x", SBATCH, WORDS, lookup({}), variables)
    assert parsed.options == ["-o", "-n4", "--error=/h/e"]
    assert parsed.args == ["-n4", "/h/x"]
    with pytest.raises(UsageError):
        parse_cell_line("$WHERE", SBATCH, WORDS, lookup({}), variables)
    sacctmgr = OptionTable.for_command("sacctmgr")
    assert command_arguments("show user $HOME user=$WHERE", sacctmgr, None, variables)[2:] == ["/h", "user=-n4"]
    with pytest.raises(UsageError):
        command_arguments("show $WHERE", sacctmgr, None, variables)


@pytest.mark.parametrize(("line", "value"), [("--nice {v}", "-1"), ("--nice {v}", "5"), ("--nice 5", "")])
def test_an_optional_value_stands_behind_an_equals_sign(line: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cell_line(line, SBATCH, WORDS, lookup({"v": value}))
    assert "--nice=" in caught.value.hint
    with pytest.raises(UsageError, match="keyword of jupyter_slurm") as caught:
        parse_cell_line("--nice wiat", SBATCH, WORDS)
    assert "wait" in caught.value.hint
    parsed = parse_cell_line("--nice wait --nice={v}", SBATCH, WORDS, lookup({"v": -1}))
    assert (parsed.options, parsed.keywords) == (["--nice", "--nice=-1"], {"wait": None})


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ('sweep=name:"a,b",c', "name:'a,b',c"),
        ("sweep=name:'a b',\"it's\"", "name:'a b',\"it's\""),
        ("sweep=shape:[1,2],[3,'x']", "shape:[1,2],[3,'x']"),
        ("sweep='name:a b,c'", "name:a b,c"),
        ("sweep=name:it\\'s,b", "name:it's,b"),
        ('sweep=name:"{x} $x",c', "name:'1 1',c"),
        ('as=name:"a,b"', "name:a,b"),
    ],
)
def test_quotes_within_a_sweep_are_those_of_its_values(typed: str, value: str) -> None:
    assert tokenize(typed, {"x": 1}.__getitem__)[0].text.partition("=")[2] == value


@pytest.mark.parametrize(
    ("value", "literals"),
    [
        (["Hello, world", "Bye; then"], ["'Hello, world'", "'Bye; then'"]),
        (["1", "02", 1], ["'1'", "'02'", "1"]),
        (range(3), ["0", "1", "2"]),
        ([[1, 2], None], ["[1, 2]", "None"]),
        ({7}, ["7"]),
        (0.1, ["0.1"]),
        ("1e-4,1e-3", ["1e-4", "1e-3"]),
        ([PurePosixPath("a, b.csv")], ["'a, b.csv'"]),
    ],
)
@pytest.mark.parametrize("line", ["sweep=p:{v} wait", 'wait sweep="p:{v}"', "sweep=p:$v"])
def test_values_of_python_are_the_values_of_a_sweep(line: str, value: Any, literals: list[str]) -> None:
    typed = parse_cell_line(line, SBATCH, WORDS | {"sweep": True}, lookup({"v": value})).keywords["sweep"]
    assert [row[0] for row in Sweep.typed(typed or "", zipped=False).rows] == literals


def test_arrays_are_values_of_a_sweep_and_other_objects_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    line = "sweep=lr:{lrs};b:{bs}"
    given = {"lrs": numpy.array([0.1, 0.2], "f4"), "bs": (numpy.int64(8),)}
    typed = parse_cell_line(line, SBATCH, WORDS | {"sweep": True}, lookup(given)).keywords["sweep"]
    assert Sweep.typed(typed or "", zipped=False).rows == (("0.1", "8"), ("0.2", "8"))
    with pytest.raises(UsageError, match="is a object, which cannot be a parameter"):
        parse_cell_line(line, SBATCH, WORDS | {"sweep": True}, lookup({**given, "bs": [object()]}))


def test_only_the_keyword_of_a_sweep_has_literals() -> None:
    """A program has arguments of that name, too."""
    given, words = lookup({"v": ["a", "b"]}), WORDS | {"sweep": True}
    assert parse_cell_line("sweep=x:1 -- sweep={v}", SBATCH, words, given).args == ["sweep=a,b"]
    assert parse_cell_line("--comment='sweep=a' --comment=\"x sweep={v}\"", SBATCH, words, given).options == [
        "--comment=sweep=a",
        "--comment=x sweep=a,b",
    ]
    assert parse_line_magic("sweep=x:1 -p gpu job.sh sweep={v} sweep=:'a'", SBATCH, words, given).rest == [
        "job.sh",
        "sweep=a,b",
        "sweep=:a",
    ]
    assert parse_line_magic("python train.py sweep={v}", OptionTable.for_command("srun"), WORDS, given).rest == [
        "python",
        "train.py",
        "sweep=a,b",
    ]
