"""The stand-ins themselves: what they refuse and take, where they place ranks, and that jobs really run."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from stackyard.host.run.command import run, which
from support.processes import wait_for
from support.standins import DIRECTORY, Family, placed, standins

FILES = DIRECTORY / "files"


def rows(name: str) -> list[list[str]]:
    lines = (DIRECTORY / name).read_text(encoding="utf-8").splitlines()
    return [[part.strip() for part in line.split(" ## ")] for line in lines if line.strip() and line[0] != "#"]


def environment(tmp_path: Path, where: str) -> dict[str, str]:
    """In an allocation, except for the programs that submit."""
    family, _, outside = where.partition("-")
    return standins(tmp_path, family, inside=not outside)  # type: ignore[arg-type]


def call(tmp_path: Path, where: str, command: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    env = environment(tmp_path, where)
    words = shlex.split(command.replace("{f}", str(FILES)))
    done = subprocess.run(
        words, env=env, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, check=False
    )
    return done, env


def jobs(env: dict[str, str]) -> list[str]:
    directory = Path(env["STANDIN_STATE"]) / "jobs"
    return sorted(path.name for path in directory.iterdir() if path.name.isdigit()) if directory.is_dir() else []


@pytest.mark.parametrize(("where", "command", "answer", "why"), rows("wrong_commands.txt"))
def test_a_wrong_command_is_refused(tmp_path: Path, where: str, command: str, answer: str, why: str) -> None:
    done, env = call(tmp_path, where, command)
    assert done.returncode not in (0, 127), why
    assert answer in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert jobs(env) == []
    assert not Path(env["STANDIN_PLACEMENT"]).exists()


@pytest.mark.parametrize(("where", "command", "what"), rows("right_commands.txt"))
def test_a_right_command_is_taken(tmp_path: Path, where: str, command: str, what: str) -> None:
    done, env = call(tmp_path, where, command)
    assert (done.returncode, done.stderr) == (0, ""), what
    submitted = command.split(maxsplit=1)[0] in ("bsub", "qsub") or command.startswith("flux batch")
    assert bool(jobs(env)) == submitted
    assert submitted or placed(env)
    for number in jobs(env):
        wait_for(lambda n=number: job(env, n)["state"] == "ended")  # type: ignore[misc]
        assert job(env, number)["result"] == "done"


def test_there_are_enough_wrong_commands() -> None:
    found = rows("wrong_commands.txt")
    assert len(found) >= 50
    assert len({command for _, command, *_ in found}) == len(found)
    programs = {command.split()[0] for _, command, *_ in found}
    assert programs == {"jsrun", "bsub", "bjobs", "bkill", "qsub", "qstat", "qdel", "mpiexec", "flux"}


def test_no_code_is_shared_with_what_they_test() -> None:
    files = [
        *(DIRECTORY / "parts").glob("*.py"),
        *(p for f in ("lsf", "pbs", "pals", "flux") for p in (DIRECTORY / f).iterdir()),
    ]
    for path in files:
        if path.is_dir():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("stackyard") for name in names), path


def test_every_option_names_the_manual_that_has_it() -> None:
    for path in (DIRECTORY / "parts").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for line in re.findall(r"^\s+-{1,2}[A-Za-z?].* \| .*$", text, re.MULTILINE):
            source = re.split(r"\s\|\s", line.strip())[2].strip()
            assert re.search(rf"^{source}\s+\S+", text, re.MULTILINE), (path.name, line)


# What ranks printed on Summit: rank, hardware thread that it ran on, GPUs (OLCF's Summit user guide, jsrun examples).
# The first example was taken when another core of the second socket was kept for the system: there only GPUs count.
OLCF: dict[str, list[tuple[int, int | None, str]]] = {
    "jsrun -n12 -r6 -a1 -g1 -c1": [(0, 0, "0"), (1, 4, "1"), (2, 8, "2"), (3, None, "3"), (5, None, "5")],
    "jsrun -n12 -a2 -g1 -c2 -dpacked": [
        (0, 0, "0"), (1, 4, "0"), (2, 8, "1"), (5, 20, "2"), (6, 88, "3"), (11, 108, "5"),
    ],
    "jsrun -n 4 -a 6 -c 6 -g 3 -d packed -l GPU-CPU": [
        (0, 0, "0 1 2"), (5, 20, "0 1 2"), (6, 88, "3 4 5"), (11, 108, "3 4 5"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", OLCF)
def test_ranks_are_where_summit_put_them(tmp_path: Path, command: str) -> None:
    _, env = call(tmp_path, "lsf", command + " true")
    ranks = placed(env)
    half = len(ranks) // 2
    for rank, thread, gpus in OLCF[command]:
        for node, host in ((0, "h01n01"), (1, "h01n02")):
            there = ranks[rank + node * half]
            assert there["host"] == host
            assert thread is None or thread in there["cpus"]
            assert there["gpus"] == [int(gpu) for gpu in gpus.split()]


def test_packed_ranks_of_the_page_are_clean_of_the_socket(tmp_path: Path) -> None:
    _, env = call(tmp_path, "lsf", "jsrun -r1 -g6 -a6 -c42 -bpacked:7 true")
    for rank in placed(env):
        assert len(rank["cpus"]) == 28
        assert {cpu < 84 for cpu in rank["cpus"]} == {rank["local_rank"] < 3}


PRINTED = {
    "lsf": (
        "jsrun -n4 -r2 -a1 -c7 -g1 -X1", ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"), "0",
    ),
    "pbs": ("mpiexec -n 4 --ppn 2", ("PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID"), ""),
    "flux": ("flux run -N2 -n4 -g1", ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"), "0,1"),
}  # fmt: skip


@pytest.mark.parametrize("family", PRINTED)
def test_a_rank_finds_the_documented_variables_and_its_host(tmp_path: Path, family: Family) -> None:
    command, names, gpus = PRINTED[family]
    text = "echo " + " ".join(f"${name}" for name in names) + " $HOSTNAME/$CUDA_VISIBLE_DEVICES"
    done, env = call(tmp_path, family, f"{command} sh -c {shlex.quote(text)}")
    hosts = [rank["host"] for rank in placed(env)]
    assert sorted(done.stdout.splitlines()) == [f"{r} 4 {r % 2} {hosts[r]}/{gpus}" for r in range(4)]
    assert len(set(hosts)) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give every rank the host name of its node")
def test_a_rank_has_the_name_of_its_node_and_finds_the_others(tmp_path: Path) -> None:
    done, _ = call(tmp_path, "lsf", "jsrun -r1 sh -c 'echo $(hostname) $(getent hosts h01n02)'")
    assert sorted(done.stdout.splitlines()) == ["h01n01 127.0.1.2 h01n02", "h01n02 127.0.1.2 h01n02"]
    assert os.uname().nodename not in done.stdout


@pytest.mark.parametrize(("where", "command", "code"), [
    ("lsf", "jsrun -n2 -r1 -X1 sh -c 'test $PMIX_RANK = 0 && exit 9; sleep 600'", 9),
    ("pbs", "mpiexec -n 2 --ppn 1 sh -c 'test $PALS_RANKID = 0 && exit 9; sleep 600'", 9),
    ("flux", "flux run -N2 -o exit-on-error sh -c 'test $FLUX_TASK_RANK = 0 && exit 9; sleep 600'", 9),
    ("flux", "flux run -N2 -o exit-timeout=0.2s sh -c 'test $FLUX_TASK_RANK = 0 && exit 0; sleep 600'", 137),
])  # fmt: skip
def test_one_failed_rank_ends_the_others(tmp_path: Path, where: str, command: str, code: int) -> None:
    started = time.monotonic()
    done, _ = call(tmp_path, where, command)
    assert done.returncode == code
    assert time.monotonic() - started < 300


def test_ranks_end_with_their_launcher(tmp_path: Path) -> None:
    env = environment(tmp_path, "lsf")
    mark = tmp_path / "alive"
    command = ["jsrun", "-r1", "sh", "-c", f"echo $$ >> {mark}; exec sleep 300"]
    process = subprocess.Popen(command, env=env, cwd=tmp_path)
    wait_for(lambda: mark.exists() and len(mark.read_text().split()) == 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = [Path(f"/proc/{pid}/cmdline") for pid in mark.read_text().split()]
    wait_for(lambda: not any(line.exists() and b"sleep" in line.read_bytes() for line in lines))


def job(env: dict[str, str], number: str) -> dict[str, object]:
    value: dict[str, object] = json.loads((Path(env["STANDIN_STATE"]) / "jobs" / number / "job.json").read_text())
    return value


def test_jobs_wait_for_hosts_and_for_each_other(tmp_path: Path) -> None:
    env = environment(tmp_path, "pbs-outside")
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nwhile ! [ -e {tmp_path}/seen ]; do sleep 0.1; done\n")
    ask = ["qsub", "-l", "select=5:ncpus=1", "-l", "place=scatter"]
    first = run([*ask, str(script)], env=env, cwd=tmp_path, leaves_others=True).stdout.strip()
    second = run([*ask, str(script)], env=env, cwd=tmp_path, leaves_others=True).stdout.strip()
    third = run(
        [*ask, "-W", f"depend=afterok:{first}", str(script)], env=env, cwd=tmp_path, leaves_others=True
    ).stdout.strip()
    wait_for(lambda: job(env, first.split(".")[0])["state"] == "running")
    shown = json.loads(run(["qstat", "-f", "-F", "json", second, third], env=env).stdout)["Jobs"]
    assert [shown[name]["job_state"] for name in (second, third)] == ["Q", "H"]
    (tmp_path / "seen").touch()
    for name in (first, second, third):
        wait_for(lambda n=name: job(env, n.split(".")[0])["state"] == "ended")  # type: ignore[misc]


def test_the_programs_of_a_family_are_found_and_no_others(tmp_path: Path) -> None:
    env = standins(tmp_path, "lsf")
    assert str(which("bsub", env)).startswith(str(DIRECTORY))
    assert not str(which("qsub", env)).startswith(str(DIRECTORY))
