"""The option tables against the getopt tables of the real binaries, and split() against the getopt_long(3) of glibc."""

from __future__ import annotations

import ctypes
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_slurm.domain.options.option_help import read_help
from jupyter_slurm.domain.options.option_parser import HET, Arity, OptionTable, words_of
from jupyter_slurm.errors import OptionError, UsageError

DATA = Path(__file__).parents[2] / "data" / "options"
VERSIONS = ["22.05", "24.11", "26.05"]
RECORDED: dict[str, dict[str, Any]] = {
    version: json.loads((DATA / version / "getopt.json").read_text()) for version in VERSIONS
}
CASES = [(version, command) for version in VERSIONS for command in RECORDED[version]]


def release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


@pytest.mark.parametrize(("version", "command"), CASES)
def test_tables_are_those_of_the_binaries(version: str, command: str) -> None:
    real = RECORDED[version][command]
    specs = OptionTable.for_command(command, release(version)).specs
    assert {name: spec.arity.value for spec in specs for name in spec.names} == real["long"]
    assert {spec.short: spec.arity.value for spec in specs if spec.short} == real["letters"]
    by_letter = {name: spec.short for spec in specs for name in spec.names if spec.short}
    assert by_letter == real["letter_of"]
    assert sorted(sorted(spec.names) for spec in specs if len(spec.names) > 1) == real["same"]


@pytest.mark.parametrize("command", RECORDED["26.05"])
def test_without_a_version_nothing_that_some_version_takes_is_refused(command: str) -> None:
    table = {name: spec.arity for spec in OptionTable.for_command(command).specs for name in spec.names}
    for version in VERSIONS:
        for name, arity in RECORDED[version].get(command, {"long": {}})["long"].items():
            assert table[name].value == arity or table[name] is Arity.OPTIONAL, (version, name)


@pytest.mark.parametrize(
    "version", [(22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5), (99, 1)]
)
@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_one_option_is_there_once_in_each_version(command: str, version: tuple[int, int]) -> None:
    names = [name for spec in OptionTable.for_command(command, version).specs for name in spec.names]
    assert len(names) == len(set(names)) > 90


@pytest.mark.parametrize(
    ("version", "command"), [case for case in CASES if (DATA / case[0] / f"{case[1]}.help.txt").exists()]
)
def test_the_help_of_the_same_version_adds_words_only(version: str, command: str) -> None:
    table = OptionTable.for_command(command, release(version))
    helped = table.with_help((DATA / version / f"{command}.help.txt").read_text())
    assert [spec._replace(help="") for spec in helped.specs] == list(table.specs)


@pytest.mark.parametrize("version", VERSIONS)
def test_help_texts(version: str) -> None:
    table = OptionTable.for_command("sbatch", release(version)).with_help(
        (DATA / version / "sbatch.help.txt").read_text()
    )
    said = {spec.name: spec.help for spec in table.specs}
    assert said["gpus"] == "count of GPUs required for the job"
    assert said["cpu-freq"] == "requested cpu frequency (and governor)"  # one blank before it
    assert said["comment"] == "arbitrary comment"
    assert said["deadline"].endswith("deadline (start > (deadline - time[-min]))")  # over two lines
    assert said["extra-node-info"].startswith("combine request of sockets per node, cores per socket")
    assert said["hint"] == ""  # not in the help, but accepted
    assert said["wrap"] == "wrap command string in a sh script and submit"  # [=command string]
    entries = read_help((DATA / version / "scancel.help.txt").read_text())  # =name | integer
    assert {entry.name: entry.help for entry in entries}["signal"].startswith("signal to send to job")


def test_an_option_of_a_newer_version_is_learned() -> None:
    lines = [
        "-y, --yonder=PLACE   over there",
        "    --opt[=x]  y",
        "    --flag  z",
        "    --maybe=[N]   m",
        "-t, --twice=n  t",
    ]
    text = "".join(f"  {line}\n" for line in lines)
    table = OptionTable("sbatch", OptionTable.for_command("sbatch").specs).with_help(text)
    new = {spec.name: spec for spec in table.specs if spec.name in {"yonder", "opt", "flag", "maybe", "twice"}}
    assert (new["yonder"].short, new["yonder"].arity) == ("y", Arity.REQUIRED)
    assert [new[name].arity for name in ("opt", "flag", "maybe")] == [Arity.OPTIONAL, Arity.NONE, Arity.OPTIONAL]
    assert new["twice"].short == ""  # -t is --time
    assert table.split(["-y", "x", "--opt", "script"]).rest == ["script"]


@given(st.text())
def test_any_help_can_be_read(text: str) -> None:
    for entry in read_help(text):
        assert entry.name
        assert entry.takes in ".=?"


# Comparison with glibc -----------------------------------------------------------------------------------------------


class _GetoptOption(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("has_arg", ctypes.c_int),
        ("flag", ctypes.c_void_p),
        ("val", ctypes.c_int),
    ]


@cache
def getopt_tables(command: str, version: str) -> tuple[Any, bytes, dict[int, str]]:
    """Return the long options and the letters for getopt_long, and a long name for each of its results."""
    real = RECORDED[version][command]
    names = list(real["long"])
    groups: dict[str, int] = {name: 1000 + at for at, name in enumerate(names)}
    for same in real["same"]:
        groups.update(dict.fromkeys(same, groups[same[0]]))
    groups.update({name: ord(letter) for name, letter in real["letter_of"].items()})
    table = (_GetoptOption * (len(names) + 1))(
        *[_GetoptOption(name.encode(), ".=?".index(real["long"][name]), None, groups[name]) for name in names]
    )
    letters = ("" if real["permutes"] else "+") + "".join(
        letter + {".": "", "=": ":", "?": "::"}[arity] for letter, arity in real["letters"].items()
    )
    return table, letters.encode(), {number: name for name, number in groups.items()}


def glibc(command: str, version: str, argv: list[str]) -> tuple[list[tuple[str, str | None]], list[str]] | None:
    """Return options (a long name of each) and operands from getopt_long(3); None if it refuses them."""
    libc = ctypes.CDLL(None)
    table, letters, names = getopt_tables(command, version)
    words = [command.encode(), *(word.encode() for word in argv)]
    array = (ctypes.c_char_p * (len(words) + 1))(*words)
    optind, opterr = ctypes.c_int.in_dll(libc, "optind"), ctypes.c_int.in_dll(libc, "opterr")
    optarg = ctypes.c_char_p.in_dll(libc, "optarg")
    optind.value = opterr.value = 0
    taken: list[tuple[str, str | None]] = []
    while (value := libc.getopt_long(len(words), array, letters, table, None)) != -1:
        if value == ord("?"):
            return None
        taken.append((names.get(value, chr(value)), optarg.value.decode() if optarg.value is not None else None))
    return taken, [word.decode() for word in array[optind.value : len(words)]]


@cache
def command_lines(command: str, version: str) -> st.SearchStrategy[list[str]]:
    real = RECORDED[version][command]
    value = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=4) | st.sampled_from(
        ["-", "--", "-n", ":", "="]
    )
    name = st.sampled_from(list(real["long"])).flatmap(
        lambda name: st.integers(0, len(name)).map(lambda end: name[:end]) | st.just(name)
    )
    bundle = st.text(st.sampled_from([*real["letters"], "z", "4"]), min_size=1, max_size=4)
    word = st.one_of(
        value,
        name.map("--{}".format),
        st.tuples(name, value).map("--{0[0]}={0[1]}".format),
        bundle.map("-{}".format),
        st.tuples(bundle, value).map("-{0[0]}{0[1]}".format),
    )
    return st.lists(word, max_size=6)


@pytest.mark.parametrize(
    ("command", "version"), [("sbatch", "22.05"), ("sbatch", "26.05"), ("srun", "24.11"), ("squeue", "26.05")]
)
def test_split_does_what_getopt_long_does(command: str, version: str) -> None:
    table = OptionTable.for_command(command, release(version))
    canonical = {name: spec.name for spec in table.specs for name in (*spec.names, spec.short)}

    @settings(max_examples=1000, deadline=None)
    @given(command_lines(command, version))
    def compare(argv: list[str]) -> None:
        # sbatch and similar commands remove the separators of components before they call getopt.
        argv = [word for word in argv if word != HET]
        real = glibc(command, version, argv)
        if real is None:
            with pytest.raises(OptionError):
                table.split(argv)
            return
        ours = table.split(argv)
        assert [(option.name, option.value) for option in ours.options] == [
            (canonical[name], value) for name, value in real[0]
        ]
        assert ours.rest == real[1]

    compare()


@given(command_lines("sbatch", "26.05"))
def test_no_word_is_lost(argv: list[str]) -> None:
    refusal = None
    try:
        split = OptionTable.for_command("sbatch", (26, 5)).split(argv)
    except OptionError as error:
        refusal = error
    if refusal is not None:
        assert argv[refusal.details["index"]] == refusal.details["option"]
        return
    typed = [word for option in split.options for word in option.tokens]
    end = ["--"] if len(typed) + len(split.rest) < len(argv) else []
    assert [*typed, *end, *split.rest] == argv
    for option in split.options:
        assert argv[option.index].startswith("-") or option.name == HET


# Error messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "suggestion"),
    [
        (["--gpu-per-node", "1"], "--gpus-per-node"),
        (["--gpu-per-node=1"], "--gpus-per-node"),
        (["--job_name=x"], "--job-name"),
        (["--Time=1"], "--time"),
        (["--tim", "5"], "--time"),  # --time or --time-min
        (["--gpu", "1"], "--gpus"),
        (["--partion", "x"], "--partition"),
        (["--memory=4G"], "--mem"),
        (["-P", "x"], "-p"),
        (["-Hz"], None),
        (["--zzzzzz"], None),
    ],
)
def test_suggestions(argv: list[str], suggestion: str | None) -> None:
    with pytest.raises(OptionError) as caught:
        OptionTable.for_command("sbatch").split(["-n1", *argv])
    assert caught.value.details["suggestion"] == suggestion
    assert caught.value.details["option"] == argv[0]
    assert caught.value.details["index"] == 1
    assert suggestion is None or caught.value.hint == f"Did you mean {suggestion}?"


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (["--gpus"], "--gpus needs a value.", "Write --gpus=VALUE."),
        (["-Hn"], "-Hn needs a value.", "Write --ntasks=VALUE."),
        (["--hold=now"], "--hold takes no value.", "Write --hold alone."),
        (["--comment=\0"], "The argument '--comment=\\x00' holds a NUL byte.", "Remove it."),
        (["x", "\0"], "The argument '\\x00' holds a NUL byte.", "Remove it."),
        (["--=x"], None, None),
    ],
)
def test_refusals(argv: list[str], message: str | None, hint: str | None) -> None:
    with pytest.raises(OptionError) as caught:
        OptionTable.for_command("sbatch").split(argv)
    assert message in (None, caught.value.message)
    assert hint in (None, caught.value.hint)


def test_optional_values_are_attached_or_absent() -> None:
    split = OptionTable.for_command("sbatch", (22, 5)).split(["--nice", "-k", "--exclusive=user", "-koff", "5"])
    assert [(option.name, option.value) for option in split.options] == [
        ("nice", None),
        ("no-kill", None),
        ("exclusive", "user"),
        ("no-kill", "off"),
    ]
    assert split.rest == ["5"]


def test_repeated_options_are_all_there_in_their_order() -> None:
    split = OptionTable.for_command("sbatch").split(["-n1", "--tasks-per-node=2", "-Hn", "3"])
    assert {option.name: option.value for option in split.options} == {
        "ntasks": "3",
        "ntasks-per-node": "2",
        "hold": None,
    }


def test_components_stand_beside_the_options() -> None:
    split = OptionTable.for_command("sbatch").split(["-n1", ":", "-n2", "--comment", ":", "job.sh", ":"])
    assert [option.name for option in split.options] == ["ntasks", HET, "ntasks", "comment"]
    assert split.rest == ["job.sh", ":"]


def test_a_command_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="'sbash'"):
        OptionTable.for_command("sbash")


def test_the_api_gets_what_builds_the_table_again() -> None:
    entry = next(entry for entry in OptionTable.for_command("sbatch").as_list() if entry["name"] == "no-kill")
    assert entry == {"name": "no-kill", "names": ["no-kill"], "short": "k", "takes_value": "optional", "help": ""}


@pytest.mark.parametrize(
    ("typed", "left_out", "words"),
    [
        (["-QH", "-n", "2"], {"quiet"}, ["--hold", "-n", "2"]),
        (["-HQ"], {"quiet"}, ["--hold"]),
        (["-Q", "--quiet", "-p", "gpu"], {"quiet"}, ["-p", "gpu"]),
        (["-Qn2", "-Hn", "3"], {"hold"}, ["-Qn2", "--ntasks=3"]),
        (["-n1", ":", "-Qn2"], {"quiet"}, ["-n1", ":", "--ntasks=2"]),
        (["-Hn", "3", "--mem=1G"], set(), ["-Hn", "3", "--mem=1G"]),
    ],
)
def test_of_a_bundle_the_letters_that_are_wanted_remain(typed: list[str], left_out: set[str], words: list[str]) -> None:
    table = OptionTable.for_command("sbatch")
    assert words_of(table.split(typed).options, lambda name: name not in left_out) == words
