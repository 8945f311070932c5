"""Tests of ``env=``: the environment of a job. Real virtual environments, Pythons of other minors and Modules."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.documentation import page_url

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

WORDS = 'it\'s a "quoted" $HOME `date`'


LUA = {  # modules as on sites with Lmod: Lua, a default version, one that requires another
    "base/1.lua": 'setenv("BASE", "one")\n',
    "greeting/1.0.lua": 'setenv("GREETED", "old")\n',
    "greeting/2.0.lua": 'depends_on("base/1")\nprepend_path("PATH", "{}")\nsetenv("GREETED", "two words")\n',
}


def _pythons() -> dict[str, str]:
    """Return Pythons of this machine by their minor version."""
    found = {"{}.{}".format(*sys.version_info[:2]): sys.executable}
    for minor in range(8, 15):
        kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
        path = str(kept[-1]) if kept else shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin")
        if path:
            found.setdefault(f"3.{minor}", path)
    return found


PYTHONS = _pythons()
OTHERS = [version for version in PYTHONS if version != "{}.{}".format(*sys.version_info[:2])]


def _environments(folder: Path) -> dict[str, Any]:
    """Create environments below a folder and return their descriptions."""
    shutil.rmtree(folder, ignore_errors=True)  # a worker that gets more tests of this file later recreates them
    work = folder / "work dir"
    work.mkdir(parents=True)
    for version, python in PYTHONS.items():
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder / f"it's {version}")], check=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "greet").write_text("#!/bin/sh\necho from the module\n")
    (folder / "bin" / "greet").chmod(0o755)
    # A PATH of its own, on which the programs of a module are found.
    (folder / "greeter").write_text(f"#%Module\nprepend-path PATH {folder / 'bin'}\nsetenv GREETED {{two words}}\n")
    lmod = {"MODULESHOME": str(folder / "lmod/share/lmod/lmod"), "MODULEPATH": str(folder / "lua")}
    for name, text in LUA.items():
        (folder / "lua" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "lua" / name).write_text(text.format(folder / "bin"))
    prefix = folder / "conda" / "envs" / "deep"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    kept = {
        "KEPT_BY_CONDA": WORDS,
        "TAKEN_BACK": "***unset***",
        "no=name": "x",
        "NO_VALUE": 1,
        "NUL": "a\0",
        "SLURM_CONF": "/no/such",
        "PATH": "",
    }
    (prefix / "conda-meta" / "state").write_text(json.dumps({"env_vars": kept}))
    (prefix / "etc" / "conda" / "activate.d").mkdir(parents=True)
    (prefix / "etc" / "conda" / "activate.d" / "z.sh").write_text("if [[ 1 == 1 ]]; then export ACTIVATED=yes; fi\n")
    os.symlink(os.path.realpath(next(iter(PYTHONS.values()))), prefix / "bin" / "python")
    return {
        "other": {"venv": str(folder / f"it's {OTHERS[0] if OTHERS else next(iter(PYTHONS))}")},
        "tools": {"modules": [str(folder / "greeter")]},
        "nothing": {"modules": ["no/such/module"]},
        "lua": {"modules": ["greeting"], "variables": lmod},
        "no-lua": {"modules": ["greetin"], "variables": lmod},
        "broken": {"modules": ["greeting"], "variables": {**lmod, "MODULESHOME": str(folder / "lmod/broken")}},
        "deep": {"conda": str(prefix)},
        "real": {"conda": str(folder / "conda" / "envs" / "real")},
        "named": {"conda": "deep"},
        "lost": {"venv": str(folder / "lost")},
        "full": {
            "variables": {"GIVEN": WORDS, "HF_TOKEN": "hf_secret"},
            "work_dir": str(work),
            "python": "/usr/bin/python3",
        },
    }


def _as_toml(told: dict[str, Any]) -> str:
    lines = []
    for name, one in told.items():
        lines.append(f"[env.{name}]")
        for key, value in one.items():
            said = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items()) if isinstance(value, dict) else ""
            lines.append(f"{key} = {f'{{ {said} }}' if said else json.dumps(value)}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def made(short_tmp: Path, way: Any) -> Path:
    return short_tmp / f"env-{way.carrier}"


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], home: Path, made: Path, way: Any) -> dict[str, str]:
    """Provide the environment of the kernel, on a cluster with environments for jobs."""
    told = _environments(made)
    if way.is_remote:
        profile = home / "sites" / "far.toml"
        profile.write_text(profile.read_text() + _as_toml(told))
    else:
        settings = home / "config" / "jupyter_slurm_config.json"
        chosen = json.loads(settings.read_text())
        chosen["Settings"]["environments"] = told
        settings.write_text(json.dumps(chosen))
    return environment


@pytest.fixture
def printed(kernel: Any, wait_for: Callable[..., Any]) -> Callable[[str, str], None]:
    """Return ``printed(name, text)``, which waits for output of a script; its end becomes known later by a query."""

    def wait(name: str, text: str) -> None:
        wait_for(lambda: kernel.run(f"assert {name}.stdout == {text!r}, {name}.stdout").status == "ok", text)

    return wait


@pytest.fixture
def modules(unavailable: Callable[[str], None]) -> None:
    if not os.path.exists("/usr/share/modules/init/bash"):
        unavailable("environment-modules is not installed")


@pytest.fixture
def other_python() -> None:
    if not OTHERS:  # a Debian has one Python
        pytest.skip("there is no Python of another minor than {}.{} (3.8 to 3.14)".format(*sys.version_info[:2]))


@pytest.mark.by_day("paramiko")
def test_a_virtual_environment_runs_a_cell_and_is_recorded(kernel: Any, made: Path) -> None:
    kernel.ok(
        "%%sbatch env=other out=found as=cell\nimport os, shutil, sys\nfound = sys.prefix, os.environ['VIRTUAL_ENV'], shutil.which('python')"
    )
    folder = kernel.value("cell.record['environment']['venv']")
    assert kernel.value("cell.result()") == repr((folder, folder, f"{folder}/bin/python"))
    assert kernel.value("cell.record['used']['prefix']") == folder
    kernel.ok("again = cell.resubmit()")
    assert kernel.value("again.result() == cell.result(), again.record['env']") == "True other"


@pytest.mark.usefixtures("other_python")
def test_values_travel_to_pythons_of_other_minors_and_back(kernel: Any, made: Path, way: Any) -> None:
    """These Pythons lack IPython and cloudpickle; the error names values that cannot be recreated."""
    kernel.ok(
        "import decimal\nx = {'a': [1, 2.5, 'é', None, b'\\xff', decimal.Decimal('1.1')]}\n"
        "def double(n):\n    return 2 * n\n\nclass Box:\n    def __init__(self, n):\n        self.n = n\n\nbox = Box(3)\njobs = {}"
    )
    versions = OTHERS[:1] if way.is_remote else OTHERS
    for version in versions:
        kernel.ok(
            f'%%sbatch "env={made}/it\'s {version}" in=x,double,box out=y,late,bad as=other\n'
            "import sys, asyncio\nawait asyncio.sleep(0)\n"
            "y = [x, double(box.n), '{}.{}'.format(*sys.version_info[:2])]\n"
            "late = lambda: 1\nbad = open('/dev/null')\nprint('ran')\ny[1]"
        )
        kernel.ok(f"jobs[{version!r}] = other")
    for version in versions:
        kernel.ok(f"job = jobs[{version!r}].wait()")
        assert kernel.value(f"job.outputs['y'] == [x, 6, {version!r}]") == "True", kernel.value("job.stderr")
        assert kernel.value("job.stdout") == "ran\n6\n"
        assert kernel.value(f"job.record['versions']['python'].startswith('{version}.')") == "True"
        assert kernel.value("job.record['versions']['ipython']") == "None"
        assert kernel.value("sorted(job.outputs.errors)") == "['bad', 'late']"


@pytest.mark.usefixtures("other_python")
def test_what_another_python_lacks_is_named(kernel: Any, made: Path) -> None:
    kernel.ok("import numpy as np\nvector = np.zeros(3)")
    ran = kernel.run("%%sbatch env=other wait in=vector\nvector")
    assert ran.error == "JobFailed"
    assert "vector needs the module numpy" in ran.traceback
    ran = kernel.run("%%sbatch env=other wait\n%time 1")
    assert "Magics and !commands need IPython" in ran.traceback


def test_a_module_that_the_default_python_lacks_is_followed_by_the_choice_of_an_environment(kernel: Any) -> None:
    cell = "import os, sys\nprint(sys.executable, os.environ['SLURMD_NODENAME'])\nimport no_such_module_of_anybody"
    ran = kernel.run(f"%%sbatch wait as=bare\n{cell}")
    used = " on ".join(kernel.value("bare.stdout").split())
    said = f"No environment was chosen, so this cell ran with {used}.\nAdd env=… "
    assert "No module named 'no_such_module_of_anybody'" in kernel.value("bare.stderr")
    assert said in kernel.value("bare.stderr")
    assert said.splitlines()[0] in ran.traceback
    assert page_url("how-to/choose-an-environment") in ran.traceback

    kernel.run(f"%%sbatch wait python={sys.executable} as=named\nimport no_such_module_of_anybody")
    kernel.run("%%sbatch wait env=other as=chosen\nimport no_such_module_of_anybody")
    for job in ("named", "chosen"):
        assert "No module named" in kernel.value(f"{job}.stderr")
        assert "No environment was chosen" not in kernel.value(f"{job}.stderr")


def test_a_script_runs_in_it_byte_for_byte(kernel: Any, made: Path, printed: Callable[[str, str], None]) -> None:
    text = "#!/bin/sh\nprintf '%s\\n' \"$VIRTUAL_ENV\"; command -v python\n"
    kernel.ok(f"%%sbatch env=other as=script\n{text}")
    folder = kernel.value("script.record['environment']['venv']")
    printed("script", f"{folder}\n{folder}/bin/python\n")
    assert kernel.value("script.script") == text
    shown = kernel.ok(f"%%sbatch env=other show\n{text}").result["text/plain"]
    assert "VIRTUAL_ENV=" in shown
    ran = kernel.run(f"%%sbatch env=other --export=NONE\n{text}")
    assert ran.error == "UsageError"
    assert "--export=NONE would remove the variables of the environment other from the job" in ran.traceback
    kernel.ok(f"%%sbatch env=other --export=ALL,A=1 as=script\n{text}")
    printed("script", f"{folder}\n{folder}/bin/python\n")


@pytest.mark.usefixtures("modules")
@pytest.mark.by_day("paramiko")
def test_modules_are_loaded_for_cells_and_scripts(kernel: Any, made: Path, printed: Callable[[str, str], None]) -> None:
    kernel.ok(
        "%%sbatch env=tools as=cell out=said\nimport os, subprocess\nsaid = subprocess.check_output('greet'), os.environ['GREETED']"
    )
    assert kernel.value("cell.result()") == "(b'from the module\\n', 'two words')"
    assert kernel.value("cell.record['used']['modules']") == f"['{made}/greeter']"
    assert kernel.value("cell.stdout") == ""
    kernel.ok("%%sbatch env=tools as=script\n#!/bin/sh\ngreet; echo $GREETED")
    printed("script", "from the module\ntwo words\n")


@pytest.fixture(scope="module")
def lmod(
    environment: dict[str, str],
    made: Path,
    tmp_path_factory: pytest.TempPathFactory,
    unavailable: Callable[[str], None],
) -> Path:
    """Provide Debian's Lmod, unpacked, because it conflicts with environment-modules, and one whose program crashes."""
    folder, root = tmp_path_factory.mktemp("lmod"), made / "lmod"
    if shutil.which("lua5.3") is None:
        unavailable("lua5.3 is not installed")
    root_only = [] if os.geteuid() == 0 else ["sudo", "-n"]
    download = ["apt-get", "download", "lmod"]
    for argv in (download, [*root_only, "apt-get", "-qq", "update"], download):
        if subprocess.run(argv, cwd=folder, capture_output=True).returncode == 0 and argv == download:
            break
    else:
        unavailable("apt-get cannot get Lmod")
    subprocess.run(["dpkg", "-x", str(next(folder.glob("lmod_*.deb"))), str(folder)], check=True)
    shutil.copytree(folder / "usr", root, symlinks=True)
    own = root / "share" / "lmod"
    for file in (file for file in own.rglob("*") if file.is_file()):
        text = file.read_bytes()
        file.write_bytes(text.replace(b"/usr/share/lmod", str(own).encode()))
    (root / "broken" / "init").mkdir(parents=True)
    (root / "broken" / "init" / "bash").write_text('module() { eval "$(lua5.3 /no/such/file 2>/dev/null)"; }\n')
    return own


@pytest.mark.usefixtures("lmod")
def test_lmod_loads_modules_for_cells_and_scripts(kernel: Any, made: Path, printed: Callable[[str, str], None]) -> None:
    kernel.ok(
        "%%sbatch env=lua as=cell out=said\nimport os, subprocess\n"
        "said = subprocess.check_output('greet'), os.environ['GREETED'], os.environ['BASE']"
    )
    assert kernel.value("cell.result()") == "(b'from the module\\n', 'two words', 'one')"
    assert kernel.value("cell.record['used']['modules']") == "['base/1', 'greeting/2.0']"
    kernel.ok("%%sbatch env=lua as=script\n#!/bin/sh\ngreet; echo $GREETED")
    printed("script", "from the module\ntwo words\n")
    before = kernel.value("len(__import__('jupyter_slurm').jobs())")
    for name, said in (("no-lua", "module load greetin failed"), ("broken", "module load has loaded nothing")):
        for cell in ("1", "#!/bin/sh\ntrue"):
            ran = kernel.run(f"%%sbatch env={name}\n{cell}")
            assert (ran.error, said in ran.traceback) == ("UsageError", True), ran.traceback
    assert kernel.value("len(__import__('jupyter_slurm').jobs())") == before


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("cell", ["1", "#!/bin/sh\ntrue"])
def test_a_module_that_is_not_there_is_said_before_submission(kernel: Any, cell: str) -> None:
    before = kernel.value("len(__import__('jupyter_slurm').jobs())")
    ran = kernel.run(f"%%sbatch env=nothing\n{cell}")
    assert ran.error == "UsageError"
    assert "module load no/such/module failed" in ran.traceback
    assert "module avail" in ran.traceback
    assert kernel.value("len(__import__('jupyter_slurm').jobs())") == before


@pytest.mark.by_day("paramiko")
def test_what_is_not_there_is_said_before_submission(kernel: Any, made: Path, wait_for: Callable[..., Any]) -> None:
    ran = kernel.run("%%sbatch env=othr\n1")  # logs in if needed; completion does not
    assert "There is no environment 'othr'. Did you mean other?" in ran.traceback
    wait_for(lambda: kernel.complete("%%sbatch env=oth") == (["other"], ["venv"]), "the environment, offered")
    ran = kernel.run("%%sbatch env=lost\n#!/bin/sh\ntrue")
    assert "The environment lost cannot be used" in ran.traceback
    assert f"{made}/lost/pyvenv.cfg" in ran.traceback
    ran = kernel.run(f"%%sbatch env={made}/bin\n1")
    assert "is not an environment on" in ran.traceback
    assert ran.error == "UsageError"


def test_what_a_node_does_not_have_is_said_at_the_end(kernel: Any, made: Path) -> None:
    """The environment was removed between submission and start."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made / "going")], check=True)
    kernel.ok(f"%%sbatch --hold env={made}/going as=gone\n1")
    shutil.rmtree(made / "going")
    kernel.ok("%scontrol release {gone}")
    ran = kernel.run("gone.wait()")
    assert ran.error == "JobFailed"
    assert f"there is no {made}/going" in ran.traceback


def test_variables_working_directory_and_python(kernel: Any, made: Path, printed: Callable[[str, str], None]) -> None:
    kernel.ok(
        "%%sbatch env=full as=cell out=got\nimport os, sys\ngot = os.environ['GIVEN'], os.getcwd(), sys.executable"
    )
    assert kernel.value("cell.result()") == repr((WORDS, str(made / "work dir"), "/usr/bin/python3"))
    assert kernel.value("cell.record['work_dir']") == str(made / "work dir")
    variables = {"GIVEN": WORDS, "HF_TOKEN": "(hidden)"}  # a notebook is shown to others
    assert kernel.value("cell.record['environment']['variables']") == repr(variables)
    kernel.ok(f'%%sbatch env=full -D {made} as=script\n#!/bin/sh\nprintf \'%s\\n\' "$GIVEN" "$PWD"')
    printed("script", f"{WORDS}\n{made}\n")


def test_a_folder_that_is_laid_out_by_conda(kernel: Any, made: Path, printed: Callable[[str, str], None]) -> None:
    """The effects of conda's activation, on a folder with conda's layout: unusual values, and a removed one."""
    prefix = f"{made}/conda/envs/deep"
    kernel.ok(
        "%%sbatch env=deep as=cell out=got\nimport os, sys\ngot = [os.environ[n] for n in ('CONDA_PREFIX', 'CONDA_DEFAULT_ENV', 'ACTIVATED', 'KEPT_BY_CONDA')]\ngot.append('TAKEN_BACK' in os.environ)"
    )
    assert kernel.value("cell.result()") == repr([prefix, "deep", "yes", WORDS, False])
    assert kernel.value("cell.record['used']['conda']") == prefix
    kernel.ok(
        f'%%sbatch env={prefix} as=script\n#!/bin/sh\nprintf \'%s\\n\' "$ACTIVATED" "$KEPT_BY_CONDA"; command -v python'
    )
    printed("script", f"yes\n{WORDS}\n{prefix}/bin/python\n")


@pytest.fixture(scope="module")
def real_conda(
    environment: dict[str, str],
    made: Path,
    tmp_path_factory: pytest.TempPathFactory,
    unavailable: Callable[[str], None],
) -> Path:
    """Provide an environment made by a conda package manager, from a package with everything that activation reads."""
    try:
        import rattler
    except ImportError:
        unavailable("py-rattler is not installed")
    folder, prefix = tmp_path_factory.mktemp("conda"), made / "conda" / "envs" / "real"
    package = _package(folder / "tool-1.0-0.tar.bz2")

    async def install() -> None:
        record = await rattler.RepoDataRecord.from_package_archive(package)
        await rattler.install([record], prefix, cache_dir=folder / "cache", show_progress=False)

    asyncio.run(install())
    state = {"env_vars": {"BOTH": "its own"}}
    (prefix / "conda-meta" / "state").write_text(json.dumps({"version": 1, **state}))
    return prefix


def _package(path: Path) -> Path:
    """Make a conda package, with a file that contains its own path, variables and activation scripts."""
    place = "/placeholder" + "_x" * 100
    files = {
        "bin/greet": f"#!/bin/sh\necho from {place}\n",
        "etc/conda/activate.d/a.sh": 'export FIRST="$CONDA_PREFIX, ${OF_PACKAGE:-not yet}"\n',
        "etc/conda/activate.d/b.sh": "if [[ -n $FIRST ]]; then export SECOND=yes; fi\n",
        "etc/conda/env_vars.d/tool.json": json.dumps({"OF_PACKAGE": "two words", "BOTH": "package"}),
    }
    index = {"name": "tool", "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": "linux-64"}
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "size_in_bytes": len(text),
            **({"prefix_placeholder": place, "file_mode": "text"} if place in text else {}),
        }
        for name, text in files.items()
    ]
    info = {"info/index.json": json.dumps(index), "info/files": "\n".join(files)}
    info["info/paths.json"] = json.dumps({"paths_version": 1, "paths": paths})
    with tarfile.open(path, "w:bz2") as archive:
        for name, text in {**info, **files}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o755 if name.startswith("bin/") else 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_a_real_environment_of_conda_is_activated_as_its_own_tools_do_it(
    kernel: Any, real_conda: Path, printed: Callable[[str, str], None]
) -> None:
    from rattler.shell import ActivationVariables, Shell, activate

    names = ["FIRST", "SECOND", "OF_PACKAGE", "BOTH", "CONDA_PREFIX", "CONDA_SHLVL"]
    shown = "".join(f'printf "%s\\n" "${{{name}-}}"\n' for name in names)
    own = activate(real_conda, ActivationVariables(None, ["/usr/bin", "/bin"]), Shell.bash).script
    done = subprocess.run(
        ["bash", "-c", f"{own}\n{shown}greet"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    said = [f"{real_conda}, two words", "yes", "two words", "its own", str(real_conda), "1", f"from {real_conda}"]
    assert done.stdout.splitlines() == said
    kernel.ok(f"%%sbatch env=real as=script\n#!/bin/bash\n{shown}greet")
    printed("script", done.stdout)
    kernel.ok(
        f"%%sbatch env=real as=cell out=got\nimport os, subprocess\ngot = [os.environ.get(name, '') for name in {names}]"
        "\ngot.append(subprocess.check_output('greet', text=True).strip())"
    )
    assert kernel.value("cell.result()") == repr(said)


@pytest.mark.here_only("over SSH, variables of the notebook do not say where conda's environments are")
def test_a_conda_environment_is_found_by_its_name(kernel: Any, made: Path) -> None:
    ran = kernel.run("%%sbatch env=named\n1")
    assert ran.error == "UsageError"
    assert "The conda environment 'deep' is not clear" in ran.traceback
    kernel.ok(f"import os\nos.environ['CONDA_ENVS_PATH'] = '/nowhere:{made}/conda/envs'")
    kernel.ok("%%sbatch env=named show\n1")
    assert f"CONDA_PREFIX={made}/conda/envs/deep" in kernel.ok("print(_)").stdout
    (made / "conda" / "more" / "deep" / "conda-meta").mkdir(parents=True)
    kernel.ok(f"os.environ['CONDA_ENVS_PATH'] += ':{made}/conda/more'")
    ran = kernel.run("%%sbatch env=named\n1")
    assert "is not clear" in ran.traceback
    assert "there are several, " in ran.traceback
    kernel.ok("del os.environ['CONDA_ENVS_PATH']")
