"""Image references, and the command lines of their runtimes."""

import ast
import csv
import json
import os
import subprocess
import sys
from importlib import resources

import pytest

from jupyter_slurm.domain.containers.image_reference import RUNTIMES, check_described, is_path, reference, runtimes_for
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.container import charliecloud, image_fetch, job_memory, lock, pyxis, runtime_commands, sudo
from jupyter_slurm.runner.container.runtime_commands import ContainerRequest, RuntimeFacts

UUIDS = ["GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "GPU-8b1c4a1e-1111-2222-3333-444455556666"]


@pytest.mark.parametrize(
    "name",
    [
        "ubuntu:22.04",
        "nvcr.io/nvidia/pytorch:22.11-py3",
        "localhost:5000/a/b_c/d__e/f-g.h",
        f"ghcr.io/me/torch@sha256:{'0a' * 32}",
        f"me/torch:1@sha256:{'0a' * 32}",
        "a" * 255,
    ],
)
def test_names_of_registries_are_taken(name):
    assert reference(f"docker://{name}") == reference(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "--privileged", "-v", "a b", "a'b", 'a"', "a\nb", "$(id)", "a:b:c", "a/", "/a", "a//b", "a:", "a@b", "é", "a" * 256,
     "docker://a", "a\0", "-/a", "a:--privileged"],
)  # fmt: skip
def test_what_is_no_name_of_an_image_is_refused(name):
    with pytest.raises(UsageError, match="is not a valid image name"):
        reference(f"docker://{name}")


def test_capital_letters_are_pointed_out():
    with pytest.raises(UsageError) as raised:
        reference("docker://Ubuntu:22.04")
    assert "docker://ubuntu:22.04" in raised.value.hint


def test_paths_and_names_have_runtimes_of_their_own():
    assert is_path("~/torch.sif")
    assert not is_path("torch.sif/x")
    assert "docker" in runtimes_for("ubuntu")
    assert "docker" not in runtimes_for("/images/tree")
    assert {*runtimes_for("ubuntu"), *runtimes_for("/x")} == set(RUNTIMES)
    assert {*runtime_commands.MAKERS, "pyxis"} == set(RUNTIMES)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"runtime": "docker"}, "no image is given"),
        ({"bind": ["/a"]}, "no image is given"),
        ({"image": "ubuntu", "venv": "/a"}, "two environments"),
        ({"image": "Ubuntu"}, "is not a valid image name"),
        ({"image": "/a.sif", "runtime": "docker"}, "docker cannot run"),
        ({"image": "ubuntu", "bind": ["--privileged"]}, "not a valid directory for a container"),
        ({"image": "ubuntu", "bind": ["a:/b"]}, "not a valid directory for a container"),
        ({"image": "ubuntu", "bind": ["/a:b"]}, "not a valid directory for a container"),
        ({"image": "ubuntu", "bind": ["/a:/b:rx"]}, "not a valid directory for a container"),
        ({"image": "ubuntu", "bind": ["/a:/b:ro:x"]}, "not a valid directory for a container"),
        ({"image": "ubuntu", "bind": ["/a:/"]}, "would hide"),
        ({"image": "ubuntu", "bind": ["/proc"]}, "would hide"),
    ],
)
def test_descriptions_that_cannot_be_say_why(told, said):
    with pytest.raises(UsageError, match=said) as raised:
        check_described(told)
    assert raised.value.hint


def test_descriptions_that_can_be_are_taken():
    check_described(
        {"image": "nvcr.io/nvidia/pytorch:22.11-py3", "runtime": "docker", "bind": ["~/a", "/b:/c", "/d:/e:ro"]}
    )
    check_described({"image": "~/images/torch.sif", "runtime": "singularity"})
    check_described({"modules": ["cuda"]})


# On the node ----------------------------------------------------------------------------------------------------------


def _facts(**changes):
    told = {
        "uid": 1001,
        "gid": 100,
        "groups": [20, 44],
        "umask": 0o027,
        "home": "/home/me",
        "work_dir": "/scratch/me",
        "cpus": [0, 1, 2, 3, 8],
        "memory": 4 << 30,
        "shm": 1 << 30,
        "gpus": [],
        "name": "jupyter_slurm-7-1",
        "holder": "pid:[1]/2/3",
        "env": {"SLURM_JOB_ID": "7", "HF_TOKEN": "hf_secret", "HOME": "/home/me"},
        **changes,
    }
    return RuntimeFacts(**told)


def _wish(**changes):
    told = {
        "image": "ubuntu:22.04",
        "binds": [],
        "folders": ["/home/me", "/home/me/.local/jobs"],
        "argv": ["python3", "x y"],
    }
    return ContainerRequest(**{**told, **changes})


def _mounts(argv):
    words = [word.removeprefix("--mount=") for word in argv if word.startswith("--mount=")]
    return [dict(field.partition("=")[::2] for field in row) for row in csv.reader(words)]


def test_docker_gets_ids_cpus_memory_and_no_value_of_a_variable():
    argv, env = runtime_commands.docker(_wish(), _facts())
    for word in ("--user=1001:100", "--group-add=20", "--group-add=44", "--cpuset-cpus=0-3,8", f"--memory={4 << 30}",
                 "--rm", "--init", "--interactive", "--workdir=/scratch/me", "--log-driver=none",
                 "--security-opt=no-new-privileges", "--label=jupyter_slurm.job=7", "--env=HF_TOKEN"):  # fmt: skip
        assert word in argv
    assert not any("hf_secret" in word for word in argv)
    assert env["HF_TOKEN"] == "hf_secret"
    assert argv[argv.index("ubuntu:22.04") + 1] == "-c"
    assert argv[-6:] == ["0027", "ubuntu:22.04", "", "", "python3", "x y"]


def test_docker_never_gets_a_gpu_that_is_not_the_jobs():
    argv, env = runtime_commands.docker(_wish(), _facts())
    assert "--gpus" not in argv
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    argv, env = runtime_commands.docker(_wish(), _facts(gpus=UUIDS, env={"CUDA_VISIBLE_DEVICES": "2,5"}))
    assert argv[argv.index("--gpus") + 1] == f'"device={UUIDS[0]},{UUIDS[1]}"'
    assert env["NVIDIA_VISIBLE_DEVICES"] == ",".join(UUIDS)
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"  # the container has no others
    _, env = runtime_commands.docker(_wish(), _facts(gpus=UUIDS, env={"CUDA_VISIBLE_DEVICES": ",".join(UUIDS)}))
    assert env["CUDA_VISIBLE_DEVICES"] == ",".join(UUIDS)


@pytest.mark.parametrize(
    ("told", "listed", "found"),
    [
        ({}, [], []),
        ({"CUDA_VISIBLE_DEVICES": ""}, [], []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, [], []),
        ({"CUDA_VISIBLE_DEVICES": "all"}, [], []),
        ({"CUDA_VISIBLE_DEVICES": "0,all"}, [], []),
        ({"CUDA_VISIBLE_DEVICES": ",".join(UUIDS)}, [], UUIDS),
        ({"CUDA_VISIBLE_DEVICES": "MIG-5d5ba0d6"}, [], ["MIG-5d5ba0d6"]),
        # The job sees only its own two GPUs, numbered from 0; on the node they are numbers 4 and 6.
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,6"}, [("0", UUIDS[0]), ("1", UUIDS[1])], UUIDS),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [("0", UUIDS[0]), ("1", UUIDS[1])], UUIDS[1:]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "4,6"}, [], ["4", "6"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [], ["0", "1"]),
    ],
)
def test_gpus_are_those_that_slurm_gave(told, listed, found):
    assert runtime_commands.gpus_of(told, "CUDA_VISIBLE_DEVICES", listed) == found


def test_sites_may_tell_gpus_in_a_variable_of_their_own():
    env = {"CUDA_VISIBLE_DEVICES": "0", "NV_GPU": UUIDS[1]}
    assert runtime_commands.gpus_of(env, "NV_GPU", []) == UUIDS[1:]


def test_folders_are_bound_once_and_odd_names_stay_whole():
    odd = '/data/a,b "c" d'
    argv, _ = runtime_commands.docker(
        _wish(binds=[f"{odd}:/x,y:ro", "~/sets", "/home/me"], folders=["/home/me", odd]), _facts()
    )
    assert _mounts(argv) == [
        {"type": "bind", "src": odd, "dst": odd},
        {"type": "bind", "src": "/home/me", "dst": "/home/me"},
        {"type": "bind", "src": "/home/me/sets", "dst": "/home/me/sets"},
        {"type": "bind", "src": "/scratch/me", "dst": "/scratch/me"},
        {"type": "bind", "src": odd, "dst": "/x,y", "readonly": ""},
    ]


@pytest.mark.parametrize("work_dir", ["/", "/tmp", "/usr"])
def test_folders_of_the_system_are_not_bound_because_a_job_begins_there(work_dir):
    argv, _ = runtime_commands.docker(_wish(), _facts(work_dir=work_dir))
    assert [mount["dst"] for mount in _mounts(argv)] == ["/home/me"]


def test_podman_stays_in_the_control_group_of_the_job():
    argv, _ = runtime_commands.podman(_wish(), _facts(gpus=UUIDS[:1]))
    for word in (
        "--cgroups=disabled",
        "--userns=keep-id",
        "--group-add=keep-groups",
        f"--device=nvidia.com/gpu={UUIDS[0]}",
    ):
        assert word in argv
    assert not any(word.startswith(("--memory", "--cpuset-cpus", "--user=")) for word in argv)


def test_apptainer_gets_a_clean_environment_and_the_gpus_of_the_node(monkeypatch):
    monkeypatch.setenv("APPTAINER_CACHEDIR", "/scratch/cache")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    argv, env = runtime_commands.apptainer(_wish(binds=["/d:/e:ro"]), _facts(gpus=UUIDS))
    assert argv[:3] == ["apptainer", "exec", "--nv"]
    assert "--bind=/d:/e:ro" in argv
    assert "ubuntu:22.04" in argv
    assert (env["APPTAINER_CACHEDIR"], env["HF_TOKEN"]) == ("/scratch/cache", "hf_secret")
    assert "LD_LIBRARY_PATH" not in env
    argv, _ = runtime_commands.singularity(_wish(image="/images/a.sif"), _facts())
    assert argv[:2] == ["singularity", "exec"]
    assert "--nv" not in argv
    assert "/images/a.sif" in argv


def test_apptainer_gets_the_libraries_of_amd_on_a_node_with_such_gpus(monkeypatch, tmp_path):
    """Without AutoDetect, Slurm sets the variables of both makers."""
    facts = _facts(gpus=["0"], env={"ROCR_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"})
    monkeypatch.setattr(runtime_commands, "_AMD_DEVICE", str(tmp_path / "kfd"))
    assert "--nv" in runtime_commands.apptainer(_wish(), facts)[0]
    (tmp_path / "kfd").touch()
    argv, env = runtime_commands.apptainer(_wish(), facts)
    assert ("--rocm" in argv, "--nv" in argv, env["ROCR_VISIBLE_DEVICES"]) == (True, False, "0")


@pytest.mark.parametrize(
    ("present", "variable", "expected"),
    [
        (("kfd", "dri"), "ROCR_VISIBLE_DEVICES", ["kfd", "dri"]),
        (("dri",), "ZE_AFFINITY_MASK", ["dri"]),
        (("dri", "nvidiactl"), "ZE_AFFINITY_MASK", None),  # a display of the node's mainboard
        ((), "ROCR_VISIBLE_DEVICES", None),
    ],
)
def test_docker_and_podman_get_the_devices_of_amd_and_intel(monkeypatch, tmp_path, present, variable, expected):
    """A job whose GPUs are counted from 0 gets the numbers on the node with Docker, whose daemon shows all of them."""
    for name, path in (("_AMD_DEVICE", "kfd"), ("_RENDER_DEVICES", "dri"), ("_NVIDIA_DEVICE", "nvidiactl")):
        monkeypatch.setattr(runtime_commands, name, str(tmp_path / path))
    for path in present:
        (tmp_path / path).touch()
    facts = _facts(gpus=["0"], env={variable: "0", "CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "3"})
    for make, number in ((runtime_commands.docker, "3"), (runtime_commands.podman, "0")):
        argv, env = make(_wish(), facts)
        devices = [word for word in argv if word.startswith("--device=/")]
        if expected is None:
            assert (devices, env[variable]) == ([], "0")
            assert "--gpus" in argv or "--device=nvidia.com/gpu=0" in argv
        else:
            assert devices == [f"--device={tmp_path / path}" for path in expected]
            assert env[variable] == number
            assert "--gpus" not in argv
            assert not any("nvidia.com" in word for word in argv)
    options = {"--rocm", "--nv"} & {*runtime_commands.apptainer(_wish(), facts)[0]}
    assert options == ({"--nv"} if expected is None else {"--rocm"} if "kfd" in present else set())


@pytest.mark.parametrize(
    ("make", "change", "said"),
    [
        (runtime_commands.apptainer, {"binds": ["/a,b"]}, "cannot bind a folder"),
        (runtime_commands.charliecloud, {"image": "/tree", "binds": ["/a:/b:ro"]}, "read-only"),
    ],
)
def test_what_a_runtime_cannot_do_is_refused_in_words(make, change, said):
    with pytest.raises(runtime_commands.RuntimeRefused, match=said):
        make(_wish(**change), _facts())


def test_memory_is_that_of_the_job():
    assert job_memory.memory_of({}) == 0
    assert job_memory.memory_of({"SLURM_MEM_PER_NODE": "2048"}) == 2 << 30
    assert job_memory.memory_of({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "4"}) == 4 << 30
    assert job_memory.memory_of({"SLURM_MEM_PER_GPU": "200", "SLURM_GPUS_ON_NODE": "2"}) == 400 << 20


def test_a_container_gets_what_belongs_to_the_job_and_nothing_of_the_nodes_own():
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_JWT": "x",
        "LD_PRELOAD": "x",
        "PATH": "x",
        "MINE": "1",
        "https_proxy": "p",
        "USER": "me",
    }
    found = runtime_commands.variables(env, ["MINE"])
    assert {name for name in found if name in env} == {"SLURM_JOB_ID", "MINE", "https_proxy", "USER"}
    assert found["LOGNAME"] == "me"


def test_the_runner_is_python_3_8():
    for name in (
        "container/run.py",
        "container/image_fetch.py",
        "session/install.py",
        "container/lock.py",
        "container/runtime_commands.py",
    ):
        ast.parse(resources.files("jupyter_slurm.runner").joinpath(name).read_text(), feature_version=(3, 8))


def test_files_are_called_after_images_and_never_lie_elsewhere():
    assert image_fetch.file_name("nvcr.io/nvidia/pytorch:24.01-py3") == "nvcr.io%nvidia%pytorch+24.01-py3"
    long = [image_fetch.file_name(f"{'a/' * 100}b:{tag}") for tag in ("1", "2")]
    assert long[0] != long[1]
    assert all(len(name) <= 180 and "/" not in name for name in long)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("8b6bda0aaaaa: Already exists", "1 of 1 layers"),
        ("layer 2/7: 7fbab8b: downloading: 3.0/24.4 MiB (12%)", "1 of 7 layers"),
        ("layer 2/7: 7fbab8b: downloading: 100%", "2 of 7 layers"),
        ("\x1b[34mINFO:   \x1b[0m Extracting OCI image...", "extracting OCI image"),
        ("Digest: sha256:0a", ""),
        ("\x1b]0;x\x07", ""),
    ],
)
def test_what_programs_say_while_they_fetch_an_image_is_understood(line, said):
    assert runtime_commands.Progress().read(line) == said


@pytest.mark.root
def test_what_a_group_shares_stays_shared_and_the_cache_is_of_one_person(short_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(short_path))
    before = os.umask(0o002)
    try:
        shared, cache = ({"image_dir": str(short_path / "shared")}, {})
        folders = [
            image_fetch.make_folder(shared, "jupyter"),
            image_fetch.make_folder(shared),
            image_fetch.make_folder(cache),
        ]
    finally:
        os.umask(before)
    assert [oct(os.stat(path).st_mode & 0o7777) for path in folders] == ["0o775", "0o775", "0o700"]
    os.chmod(folders[1], 0o2770)
    for path in folders:
        os.chown(path, 12345, -1)
    assert image_fetch.make_folder(shared) == folders[1]
    assert os.stat(folders[1]).st_mode & 0o7777 == 0o2770
    with pytest.raises(image_fetch.RuntimeRefused, match=r"belongs to another user \(uid 12345\)\. Remove it"):
        image_fetch.make_folder(cache)


# Its client receives the signal to end before Popen has returned.
_EARLY = """
import os, runpy, signal, subprocess, sys
contain = runpy.run_path(sys.argv[1])
class Told(subprocess.Popen):
    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        os.kill(os.getpid(), signal.SIGTERM)
contain["subprocess"].Popen = Told
sys.exit(contain["follow"](["sleep", "60"], dict(os.environ), "no-such-container", "image"))
"""


def test_a_signal_that_comes_while_the_client_of_a_container_starts_is_not_lost():
    with resources.as_file(resources.files("jupyter_slurm.runner")) as runner:
        done = subprocess.run(
            [sys.executable, "-c", _EARLY, str(runner / "container" / "client.py")], check=False, timeout=60
        )
    assert done.returncode == 128 + 15


def test_a_process_is_taken_for_gone_only_where_it_was(monkeypatch):
    boot, space, pid, begun = lock.holder().split("/")
    assert not lock.has_ended(f"{boot}/{space}/{pid}/{begun}")
    assert lock.has_ended(f"{boot}/{space}/{pid}/1")
    assert lock.has_ended(f"{boot}/{space}/4194999/{begun}")
    for label in (
        f"other/{space}/4194999/1",
        f"{boot}/pid:[1]/4194999/1",
        f"{space}/4194999/1",
        "/x",
        f"{boot}/{space}",
    ):
        assert not lock.has_ended(label), label
    monkeypatch.setattr(lock, "_boot", str)  # on a system without a boot ID
    assert not lock.has_ended(f"/{space}/4194999/1")


def test_a_lock_is_taken_from_a_holder_of_another_node_that_was_not_heard_of(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_EXPIRY_S", 0.2)
    path, waited = tmp_path / "lock", []
    path.write_text(
        json.dumps({"job": "12", "node": "gpu07", "holder": f"another/{os.readlink('/proc/self/ns/pid')}/4194999/3"})
    )
    with lock.held(str(path), lambda: False, waited.append) as is_ours:
        assert is_ours
        assert waited == ["job 12 on gpu07"]
        other = path.read_text().replace(str(os.getpid()), "1")
        path.write_text(other)  # another process has taken it in turn
    assert path.read_text() == other
    with lock.held(str(path), lambda: True, waited.append) as is_ours:
        assert not is_ours
    path.write_text("\xff{")
    with lock.held(str(path), lambda: False, waited.append) as is_ours:
        assert is_ours
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_written_as_the_kernel_does():
    assert runtime_commands.ranges([8, 0, 1, 2, 3]) == "0-3,8"
    assert runtime_commands.ranges([5]) == "5"
    assert runtime_commands.ranges([]) == ""


def test_what_begins_in_a_container_is_posix_shell():
    argv, _ = runtime_commands.docker(_wish(), _facts())
    text = argv[argv.index("-c") + 1]
    assert subprocess.run(["dash", "-n"], input=text, text=True, check=False).returncode == 0


def test_mpi_of_a_container_has_the_variables_and_the_folder_of_pmix(tmp_path):
    env = {"PMIX_RANK": "1", "PMI_FD": "9", "PMIX_SERVER_TMPDIR": str(tmp_path), "OTHER": "x"}
    described = {"image": "/a.sif", "variables": {"HF": "y"}, "bind": ["/data"]}
    made = runtime_commands.with_mpi(described, "apptainer", env)
    assert made["bind"] == ["/data", f"{tmp_path}:{tmp_path}"]
    assert set(made["variables"]) == {"HF", "PMIX_RANK", "PMI_FD", "PMIX_SERVER_TMPDIR"}
    for runtime in ("docker", "podman"):
        with pytest.raises(runtime_commands.RuntimeRefused, match=f"does not work with {runtime}"):
            runtime_commands.with_mpi(described, runtime, env)


def test_images_of_pyxis_have_the_names_of_enroot():
    names = {
        "ubuntu:22.04": "ubuntu:22.04",
        "me/torch": "me/torch",
        "nvcr.io/nvidia/pytorch:24.01-py3": "nvcr.io#nvidia/pytorch:24.01-py3",
        "localhost:5000/a/b:1": "localhost:5000#a/b:1",
        "localhost/a": "localhost#a",
        "/images/torch.sqsh": "/images/torch.sqsh",
    }
    assert {name: pyxis.image_name(name) for name in names} == names
    hubs = {"docker.io/library/ubuntu:22.04": "library/ubuntu:22.04", "index.docker.io/me/torch": "me/torch"}
    assert {name: pyxis.image_name(name) for name in hubs} == hubs
    assert runtimes_for("/images/torch.sqsh") == ("pyxis", "apptainer", "singularity", "charliecloud")
    assert runtimes_for("me/x:1.sqsh") == RUNTIMES
    check_described({"image": "/data/torch.sqsh", "runtime": "apptainer"})
    check_described({"image": "me/x:1.sqsh", "runtime": "docker"})
    with pytest.raises(UsageError, match="docker cannot run") as raised:
        check_described({"image": "/data/torch.sqsh", "runtime": "docker"})
    assert raised.value.hint.startswith("Use one of these for .sqsh files: pyxis, apptainer")
    assert "pyxis" not in runtimes_for("/images/torch.sif")


def test_an_srun_without_pyxis_or_without_its_newer_options():
    wish = ContainerRequest("ubuntu", [], ["/home/a b"], ["python3"])
    facts = RuntimeFacts(
        1, 1, [], 0o22, "/h", "/w", [0], 0, 0, ["GPU-1"], "n", "h", {"HOME": "/h", "SLURM_NTASKS": "4"}
    )
    with pytest.raises(pyxis.RuntimeRefused, match="no --container-image"):
        pyxis.command(wish, facts, [], "  -n, --ntasks=ntasks\n")
    with pytest.raises(pyxis.RuntimeRefused, match="cannot bind a folder"):
        pyxis.command(wish, facts, [], "      --container-image=IMAGE\n")
    wish.folders = []
    argv, env = pyxis.command(wish, facts, ["--gres=gpu:1"], "      --container-image=IMAGE\n  -s, --overlap   share\n")
    assert [word.partition("=")[0] for word in argv if word.startswith("--container") or word == "--overlap"] == [
        "--overlap",
        "--container-image",
        "--container-workdir",
        "--container-mounts",
    ]
    entry = argv[argv.index("/bin/sh") :]
    assert entry[3:] == ["n", *runtime_commands.entry(wish, facts)[3:]]
    assert (env["NVIDIA_VISIBLE_DEVICES"], "SLURM_NTASKS" in env) == ("GPU-1", False)
    assert ("--job-name=container" in argv, "--disable-status" in argv) == (True, False)


def test_the_step_of_pyxis_has_all_cpus_and_gpus_of_its_job():
    of_tasks = {"SLURM_CPUS_PER_TASK": "2", "SLURM_GPU_BIND": "single:1", "SLURM_TRES_BIND": "gres/gpu:single:1"}
    facts = _facts(env={**of_tasks, "SLURM_JOB_NAME": "interactive", "SLURM_JOB_ID": "7"})
    help_text = "      --container-image=IMAGE\n      --disable-status   quiet\n"
    argv, env = pyxis.command(_wish(), facts, [], help_text)
    assert [name for name in env if name.startswith("SLURM")] == ["SLURM_JOB_NAME", "SLURM_JOB_ID"]
    assert {"--job-name=interactive", "--disable-status"} <= set(argv)
    assert "export SLURM_CPUS_PER_TASK=2\n" in argv[argv.index("/bin/sh") + 2]


def _choose(tmp_path, programs, image, runtime=None):
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    code = (
        "import runpy, sys\nrun = runpy.run_path(sys.argv[1])\n"
        "try: print(run['choose'](sys.argv[2], sys.argv[3] or None))\n"
        "except run['RuntimeRefused'] as error: print(error)\n"
    )
    with resources.as_file(resources.files("jupyter_slurm.runner")) as runner:
        argv = [sys.executable, "-c", code, str(runner / "container" / "run.py"), str(image), runtime or ""]
        done = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_a_file_of_enroot_runs_without_pyxis_too(tmp_path):
    image = tmp_path / "torch.sqsh"
    image.touch()
    assert "no apptainer nor singularity nor ch-run nor srun" in _choose(tmp_path, {}, image)
    assert _choose(tmp_path, {"srun": "echo '  -n, --ntasks=N'"}, image) == "pyxis"  # which says what is missing
    assert _choose(tmp_path, {"apptainer": ""}, image) == "apptainer"
    assert _choose(tmp_path, {"srun": "echo '      --container-image=IMAGE  x'"}, image) == "pyxis"
    assert _choose(tmp_path, {}, image, "apptainer") == "apptainer"


def test_an_old_charliecloud_gets_no_option_that_it_lacks(tmp_path):
    (tmp_path / "ch").mkdir()
    (tmp_path / "ch" / "environment").touch()
    facts = _facts(env={"USER": "me"})
    argv, _ = runtime_commands.charliecloud(_wish(image=str(tmp_path), argv=["x", "--home"]), facts)
    assert f"--set-env={tmp_path}/ch/environment" in argv
    assert charliecloud.accepted(argv, "      --home   mount\n") == argv
    old = charliecloud.accepted(argv, "      --no-home   do not mount\n")
    assert (old.index("--"), old[-1]) == (argv.index("--") - 1, "--home")
    assert "--home" not in old[: old.index("--")]


_PODMAN = """import json, runpy, sys
client = runpy.run_path(sys.argv[1])
client["sudo"].use_for({"sudo": True})
class Process:
    def send_signal(self, number): print("signal", number)
    def poll(self): return None
calls = client["sudo"].pass_on = lambda *told: print("by sudo", told[1])
client["send"](Process(), 15, "name", "podman")
client["send"](Process(), 15, "name", "docker")
"""


def test_only_a_program_that_runs_by_sudo_gets_its_signals_by_sudo():
    with resources.as_file(resources.files("jupyter_slurm.runner")) as runner:
        argv = [sys.executable, "-c", _PODMAN, str(runner / "container" / "client.py")]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "signal 15\nby sudo 15\n"


def test_a_warning_of_sudo_is_not_its_refusal():
    sudo.use_for({"sudo": True})
    try:
        warning = "sudo: unable to resolve host n1: Name or service not known\n"
        assert not sudo.refusal("docker", warning + "Cannot connect to the Docker daemon\n")
        assert "(sudo: a password is required)" in sudo.refusal("docker", warning + "sudo: a password is required\n")
    finally:
        sudo.use_for({})


def test_pyxis_starts_no_step_in_a_step(tmp_path):
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "srun").chmod(0o755)
    job = {"key": "k", "environment": {"image": "me/torch:1", "runtime": "pyxis"}, "run": ["true"], "launcher": "srun"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    with resources.as_file(resources.files("jupyter_slurm.runner")) as runner:
        argv = [sys.executable, str(runner / "container" / "run.py"), str(tmp_path)]
        env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Pyxis runs only the cell, the script or the session" in done.stderr) == (125, True), done
