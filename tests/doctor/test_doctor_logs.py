"""`doctor` finds the first cause in any log, names its place and rank, and is silent about healthy logs."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stackyard.core.errors import InputError
from stackyard.doctor.logs import sources
from stackyard.doctor.logs.diagnose import EXCEPTION, Diagnosis, diagnose
from stackyard.doctor.logs.sources import log_sources
from stackyard.launch.run.causes import limits, redact
from stackyard.launch.run.causes.table import rules
from support.cli import STACKYARD, stackyard

DATA = Path(__file__).parents[1] / "data"
EXAMPLES: list[dict[str, Any]] = [
    example
    for example in YAML(typ="safe", pure=True).load((DATA / "launch/causes.yaml").read_text(encoding="utf-8"))
    if "facts" not in example
]
ACCOMPANY = {rule.name for rule in rules() if rule.kind == "vague" or rule.in_warnings}
OOM = """Traceback (most recent call last):
  File "train.py", line 30, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 39.39 GiB
"""
BAD_SAMPLE = "the program raised mylib.BadSample: sample 17 at a.py:1 in f"
TIMEOUT = (
    "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600061 ms\n"
)


def found(*files: Path, **options: Any) -> Diagnosis:
    return diagnose(log_sources([str(file) for file in files]), **options)


def written(directory: Path, text: str, name: str = "job.log") -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["rule"])
def test_a_log_of_unknown_origin_has_its_cause(example: dict[str, Any], tmp_path: Path) -> None:
    """Without an exit status or facts. What only accompanies a failure is no failure by itself."""
    text = f"epoch 3 step 120 loss 1.234\n{example.get('tail', '')}\n{example.get('launcher', '')}\n"
    diagnosis = found(written(tmp_path, text))
    accompanies = example["rule"] in ACCOMPANY and not diagnosis.failed
    assert accompanies or (diagnosis.failed and diagnosis.rule == example["rule"]), diagnosis
    assert "{" not in diagnosis.cause + diagnosis.hint


@pytest.mark.parametrize("file", sorted((DATA / "doctor/healthy").iterdir()), ids=lambda file: file.name)
def test_a_healthy_log_has_no_cause(file: Path) -> None:
    """Caught exceptions, retries, warnings of libraries, words of failure in results."""
    assert found(file) == Diagnosis(False, logs=1)


@pytest.mark.parametrize("file", sorted((DATA / "doctor/failed").iterdir()), ids=lambda file: file.name)
def test_the_first_cause_counts(file: Path) -> None:
    """Not what follows: time-outs of the other ranks, the launcher's summary, a script that goes on."""
    diagnosis = found(file)
    assert (diagnosis.failed, diagnosis.rule) == (True, file.name.split(".")[0])


@pytest.mark.parametrize(
    "prefix",
    ["[rank{}]: ", "[default{}]:[rank{}]:", "[1,{}]<stderr>:", " {}: ", "node7: [rank{}]: ", "[n1-4@1,{}]<stdout>: "],
)  # fmt: skip
def test_of_many_ranks_the_first_is_named(prefix: str, tmp_path: Path) -> None:
    """Others print on and report time-outs, one of them before the first failure was written, and went on."""

    def of(rank: int, text: str) -> str:
        mark = prefix.format(*[rank] * prefix.count("{}"))
        return "".join(mark + line for line in text.splitlines(keepends=True))

    steps = "".join(of(rank, f"step {step} loss 0.{step}\n") for step in range(60) for rank in range(4))
    later = "".join(of(rank, TIMEOUT.format(rank)) for rank in (0, 1, 3))
    diagnosis = found(written(tmp_path, steps + of(3, TIMEOUT.format(3)) + of(2, OOM) + steps[:900] + later))
    assert (diagnosis.rule, diagnosis.rank, diagnosis.line) == ("gpu-memory", "2", 245)
    assert diagnosis.others == {"nccl-timeout": 3}


def test_an_exception_without_a_rule_precedes_what_follows_from_it(tmp_path: Path) -> None:
    own = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nmylib.BadSample: sample 17\n'
    diagnosis = found(written(tmp_path, f"step 1 loss 2\n{own}{TIMEOUT.format(0)}"))
    assert (diagnosis.rule, diagnosis.line, diagnosis.cause) == (EXCEPTION, 4, BAD_SAMPLE)


SITE = "/opt/py/lib/python3.11/site-packages/torch/nn.py"
STACKS = {
    "KeyError: 'x' at u/train.py:7 in main; it came from ValueError: bad": f"""Traceback (most recent call last):
  File "{SITE}", line 3, in get
    return self.table[key]
ValueError: bad

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/train.py", line 41, in <module>
    main()
  File "/home/u/train.py", line 7, in main
    config["x"]
  File "{SITE}", line 5, in __getitem__
    raise KeyError(key) from error
KeyError: 'x'
""",
    "AssertionError (assert count > 0) at u/data.py:42 in __init__": """Traceback (most recent call last):
  File "/home/u/data.py", line 42, in __init__
    assert count > 0
AssertionError
""",
    "ValueError: no rows at /home/u/run.py:3 in load": """Traceback (most recent call last)
Cell In[2], line 1
----> 1 load()
File /home/u/run.py:3, in load()
      1 def load():
      2     rows = []
----> 3     raise ValueError("no rows")
      4
      5 def other():
      6     pass
ValueError: no rows
""",
    "KeyError: 'x' at a.py:4 in __getitem__": f"""Traceback (most recent call last):
  File "a.py", line 1, in <module>
    next(loader)
KeyError: Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "{SITE}", line 9, in fetch
    return dataset[index]
  File "a.py", line 4, in __getitem__
    return self.rows[index]
KeyError: 'x'
""",
    "ValueError: bad at b.py:3 in train": """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    ray.get(job)
ray.exceptions.RayTaskError(ValueError): ray::train() (pid=3, ip=10.0.0.1)
  File "b.py", line 3, in train
    raise ValueError("bad")
ValueError: bad
""",
    "socket.timeout: timed out at a.py:1 in f": """Traceback (most recent call last):
  File "a.py", line 1, in f
socket.timeout: timed out
""",
}  # fmt: skip


@pytest.mark.parametrize("told", STACKS)
def test_an_exception_of_the_program_is_told_with_its_place(told: str, tmp_path: Path) -> None:
    """The innermost frame in a file of the user's, not of an installed package; a bare assertion with its line."""
    diagnosis = found(written(tmp_path, f"step 1 loss 2\n{STACKS[told]}"))
    where = told.replace("/home/u/run.py", "u/run.py")
    assert (diagnosis.rule, diagnosis.cause) == (EXCEPTION, f"the program raised {where}")


def test_a_traceback_that_was_cut_off_is_told_with_its_place(tmp_path: Path) -> None:
    cut = 'step 1\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
    assert (
        found(written(tmp_path, cut)).cause
        == "the program raised an exception, which the log does not name, at a.py:1 in f"
    )


def test_a_crash_in_compiled_code_is_told_with_its_place(tmp_path: Path) -> None:
    stack = (
        f'Current thread 0x7f (most recent call first):\n  File "{SITE}", line 3 in get\n  File "a.py", line 9 in f\n'
    )
    diagnosis = found(written(tmp_path, f"Fatal Python error: Segmentation fault\n\n{stack}"))
    assert diagnosis.cause.endswith(", at torch/nn.py:3 in get, called from a.py:9 in f")


def test_a_failure_without_a_rule_is_told_in_the_words_of_the_log(tmp_path: Path) -> None:
    """The last error before the launcher's report; a last line that reports one, but none that work went on after."""
    ended = "srun: error: n1: task 0: Exited with exit code 3\n"
    diagnosis = found(written(tmp_path, f"step 1\nwaterlevel below zero: Error 17 in cell 4\nwriting dump\n{ended}"))
    assert "status 3; the last error that it reports: waterlevel below zero: Error 17" in diagnosis.cause
    last = "solver: error: matrix is singular\n"
    assert found(written(tmp_path, f"step 1\n{last}")).cause == "the program reports an error: matrix is singular"
    ends = "[n1:7] pml_ob9.c:3 error: out of credits\n[n1:7] pml_ob9.c:8 FATAL\n"
    told = found(written(tmp_path, f"step 1\n{ends}")).cause
    assert told.endswith("reports: [n1:7] pml_ob9.c:3 error: out of credits")
    for line in (
        "max error: 0.01",
        "errors: none",
        "on error: stop",
        "[x] error: 3",
        "relative error : 1e-3",
        "0 error: ",
    ):
        assert not found(written(tmp_path, f"step 1\n{line}\n")).failed
    assert found(written(tmp_path, "run.sh: line 4: python: command not found\ndone\n")).rule == "program-not-found"
    assert found(written(tmp_path, "start\nCRITICAL:root:no data in x\n")).cause.endswith("error: no data in x")
    assert not found(written(tmp_path, f"step 1\n{last}step 2\nstep 3\n")).failed
    assert not found(written(tmp_path, f"step 1\n{last}Job finished successfully\n")).failed


@pytest.mark.parametrize(
    "record",
    [
        lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2024-01-01T00:00:01Z"}) + "\n",
        lambda line: f"2024-01-01T00:00:01.{len(line):09}Z stderr F {line}\n",
        lambda line: f"{line}\r\n",
    ],
)
def test_a_traceback_in_records_of_other_programs(record: Callable[[str], str], tmp_path: Path) -> None:
    """Docker's, Kubernetes', with the line ends of Windows; and in one record of a structured logger."""
    stack = STACKS["AssertionError (assert count > 0) at u/data.py:42 in __init__"]
    lines = "".join(map(record, ["step 1 loss 2", *stack.splitlines()]))
    told = "the program raised AssertionError (assert count > 0) at u/data.py:42 in __init__"
    assert found(written(tmp_path, lines)).cause == told
    whole = {"levelname": "ERROR", "message": "failed", "exc_info": stack}
    assert found(written(tmp_path, f'{{"level": "info", "message": "start"}}\n{json.dumps(whole)}\n')).cause == told
    for text in ('{"a": 1}', '{"log": 3}', '{"message"}', '{"level": 3, "message": "no error"}', '{"log": ""}', "{}"):
        assert not found(written(tmp_path, f"{text}\n")).failed


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  cannot open mesh\n",
            "a C++ program ended with an exception: std::runtime_error: what():  cannot open mesh",
        ),
        ("Fatal error:\nToo many warnings (1).\n", "the program reports: Too many warnings (1)."),
        (
            "[0] --> FOAM FATAL ERROR: \n[0] face 175 area does not match\n[0] \nFOAM parallel run exiting\n",
            "the program reports: FOAM FATAL ERROR: face 175 area does not match",
        ),
        (
            'Error in makeCluster(8, type = "FORK") : \n  could not find function "makeCluster"\nExecution halted\n',
            'an R program ended with an error: makeCluster(8, type = "FORK"): could not find function "makeCluster"',
        ),
        ("run.sh: line 8: 2476 Aborted  ./mdrun > log\n", "a program was ended by signal 6 (SIGABRT), and no log"),
        ("main.py exits with return code = -9\n", "the rank was killed by SIGKILL"),
    ],
)
def test_a_message_in_the_next_line_is_told(lines: str, told: str, tmp_path: Path) -> None:
    assert found(written(tmp_path, f"step 1\n{lines}")).cause.startswith(told)


def test_a_missing_file_may_follow_from_an_earlier_failure(tmp_path: Path) -> None:
    """A script goes on without the output of its first program."""
    stack = 'Traceback (most recent call last):\n  File "{}", line 9, in <module>\n{}\n'
    first = stack.format("convert.py", "NotImplementedError: Please use HDF reader for matlab v7.3 files")
    later = stack.format("train.py", "FileNotFoundError: [Errno 2] No such file or directory: 'train.npz'")
    assert found(written(tmp_path, first + later)).text.startswith("NotImplementedError")
    assert found(written(tmp_path, later + first)).rule == "file-not-found"


@pytest.mark.parametrize("before", ["INFO model loaded\n", "WARNING: retrying\n"])
def test_a_traceback_at_the_end_of_a_log_counts_whatever_was_logged_before_it(before: str, tmp_path: Path) -> None:
    """Where the program goes on, it belongs to the warning."""
    assert found(written(tmp_path, before + OOM)).rule == "gpu-memory"
    assert found(written(tmp_path, before + OOM + "0 successful operations.\n\n")).rule == "gpu-memory"
    assert not found(written(tmp_path, before + OOM + "epoch 1 loss 0.5\n" * 20)).failed


def test_of_several_files_the_time_decides(tmp_path: Path) -> None:
    full, gone = "OSError: [Errno 28] No space left on device", "ModuleNotFoundError: No module named 'x'"
    written(tmp_path, f"2026-11-28 10:00:05,000 start\n{full}\n", "logs/rank-00000.log")
    written(tmp_path, f"2026-11-28 10:00:01,500 start\n{gone}\n", "logs/rank-00001.log")
    diagnosis = found(tmp_path / "logs")
    assert (diagnosis.rule, diagnosis.rank, diagnosis.logs) == ("module-not-found", "1", 2)
    for number, text in enumerate((full, gone)):  # without times in them: what was written last is later
        file = written(tmp_path, f"{text}\n", f"other/{number}/stderr.log")
        os.utime(file, (1000 - number, 1000 - number))
    diagnosis = found(tmp_path / "other")
    assert (diagnosis.rule, diagnosis.rank) == ("module-not-found", "1")


def test_logs_by_gzip_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "job.out.gz"
    packed.write_bytes(gzip.compress(OOM.encode()))
    assert found(packed).rule == "gpu-memory"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(OOM.encode()))))
    assert found(Path("-")).log == "standard input"
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot read .*job\.out\.gz: Compressed file ended"):
        found(packed)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not text: it cannot be a log"):
        found(Path(sys.executable))
    with pytest.raises(InputError, match="is not a file"):
        found(Path("/dev/null"))
    with pytest.raises(InputError, match="no readable logs in"):
        found(tmp_path)
    with pytest.raises(InputError, match="is compressed"):
        (tmp_path / "a.xz").write_bytes(b"\xfd7zXZ\0\0\0")
        found(tmp_path / "a.xz")
    (tmp_path / "core.log").write_bytes(os.urandom(9000))
    written(tmp_path, OOM, "job.log")
    diagnosis = found(tmp_path)
    assert diagnosis.rule == "gpu-memory" and "core.log is not text" in diagnosis.notes[0]


def test_a_large_log_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ends are searched, and between them what mentions a failure; what was left out is told, lines stay exact."""
    monkeypatch.setattr(sources, "BLOCK", 1 << 12)
    monkeypatch.setattr(sources, "WHOLE", 1 << 14)
    steps = "".join(f"step {step} loss 0.{step}\n" for step in range(5000))
    file = written(tmp_path, steps + OOM + steps + TIMEOUT.format(0))
    diagnosis = found(file)
    assert (diagnosis.rule, diagnosis.line) == ("gpu-memory", 5004)
    assert "only counted" in diagnosis.notes[0]
    monkeypatch.setattr(sources, "MOST", 1 << 15)
    diagnosis = found(file)
    assert (diagnosis.rule, diagnosis.line) == ("nccl-timeout", 0)
    assert "the first and the last" in diagnosis.notes[0]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("requests.exceptions.HTTPError: 401 for url: https://me:hunter22@host/x?token=abcdef12", "hunter22|abcdef12"),
        ("RuntimeError: export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789"),
        ("ValueError: --password s3cr3t!x --epochs 3", "s3cr3t"),
        ("KeyError: {'api_key': 'k-998877', 'lr': 0.1}", "k-998877"),
        ("OSError: hf_abcdefghijklmnopqrstuvwxyz is not valid", "hf_abcdef"),
        ("RuntimeError: Authorization: Bearer abc.def.ghi", "abc.def"),
        ("ERROR: login of --password hunter22 refused (server.cpp:12)", "hunter22"),  # which the cause repeats
    ],
)
def test_no_secret_is_shown(text: str, secret: str, tmp_path: Path) -> None:
    done = stackyard("doctor", written(tmp_path, f"{text}\n"), expect=3)
    assert "***" in done.out
    for word in secret.split("|"):
        assert word not in done.out


def test_words_that_look_like_secrets_stay() -> None:
    for text in ("KeyError: 'loss'", "ValueError: max_tokens=4096 and key: epoch", "token 17 of 20 at /a/b"):
        assert redact.shown(text) == text


def test_a_resource_is_compared_with_the_limit_here(tmp_path: Path) -> None:
    file = written(tmp_path, "OSError: [Errno 24] Too many open files: 'x'\n")
    words = f"ulimit -S -n 321; exec {STACKYARD} doctor {file}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "the limit of open files is 321, up to" in " ".join(done.stdout.split())
    assert {rule.limit for rule in rules() if rule.limit} <= set(limits.LIMITS)
    assert all(limits.stated(name) for name in limits.LIMITS)


def test_the_command_line(tmp_path: Path) -> None:
    log = written(tmp_path, f"step 1\n{OOM}")
    done = stackyard("doctor", log.name, expect=3, cwd=tmp_path)
    assert done.out.startswith(
        "job.log:5: error: GPU out of memory, at train.py:30 [gpu-memory]\n    | torch.OutOfMemoryError: CUDA"
    )
    assert "hint: use a smaller batch" in done.out and "source: https://" in done.out
    value = stackyard("doctor", log, "--json", expect=3).value
    assert (value["rule"], value["line"], value["failed"]) == ("gpu-memory", 5, True)
    assert stackyard("doctor", written(tmp_path, "step 1\n", "ok.log")).out == "no failure found in 1 log\n"
    assert "no such file or run: nothing.log" in stackyard("doctor", "nothing.log", expect=2, cwd=tmp_path).err
    own = "- {name: licence-server, patterns: ['no licence for (?P<name>.*)'], cause: 'none for {name}', remedy: wait}"
    written(tmp_path, own, "causes.yaml")
    site = written(
        tmp_path, "name: a\nscheduler: {kind: none}\nnodes: {n: {cores: 2}}\ncauses: [causes.yaml]\n", "site.yaml"
    )
    log = written(tmp_path, f"no licence for abaqus\n{OOM}")
    assert stackyard("--site", site, "doctor", log, "--json", expect=3).value["cause"] == "none for abaqus"


def test_a_run_is_diagnosed_with_its_record(tmp_path: Path) -> None:
    written(tmp_path, "name: laptop\nscheduler: {kind: none}\nnodes: {here: {cores: 2, sockets: 1}}\n", "site.yaml")
    words = ("--site", "site.yaml", "--yard", "yard")
    program = "echo start; [ $RANK = 1 ] && { echo MemoryError >&2; exit 1; }; sleep 9"
    stackyard(*words, "launch", "-r", "2", "-c", "1", "--", "sh", "-c", program, expect=1, cwd=tmp_path)
    value = stackyard(*words, "doctor", "last", "--json", expect=3, cwd=tmp_path).value
    assert (value["rule"], value["rank"], value["text"], value["line"]) == ("host-memory", "1", "MemoryError", 2)
    assert value["log"].endswith("rank-00001.log")
    stackyard(*words, "launch", "true", cwd=tmp_path)
    assert "no failure found" in stackyard(*words, "doctor", "last", cwd=tmp_path).out
