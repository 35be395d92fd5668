"""The probe in Python processes: by itself in every Python of this machine, and in the ranks of a step."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stackyard.launch.run.agentfile import probe_files
from support.watched import Running, local_line, make_plan

TRACE = """
import os, sys
def start(options):
    if options.get("shapes"):
        raise ValueError("no shapes")
    global wanted
    wanted = options
def stop():
    path = os.path.join(wanted["output_dir"], "rank-%05d" % wanted["rank"])
    open(path, "a").write(str(os.getpid()) + " ")
    return {"files": [path], "steps": None}
"""
"""A trace that writes one word, in the directory of the probe as the real ones are."""


def pythons() -> list[str]:
    """Each Python of this machine, old ones too."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [str(path) for path in sorted(root.glob("versions/*/bin/python"))]
    return [sys.executable, *found]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The probe with a trace of torch and one of no framework, a site's own sitecustomize, and a small "torch"."""
    for name, text in {**probe_files(), "torch_trace.py": TRACE, "other_trace.py": TRACE}.items():
        path = tmp_path / "probe" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.of_site = __file__\n")
    (own / "torch.py").write_text("")
    return tmp_path


def run(place: Path, code: str, python: str = sys.executable, **environ: str) -> subprocess.Popen[str]:
    """A Python with the probe, started from a shell as jobs do it."""
    script = place / "train.py"
    script.write_text(code)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("STACKYARD", "PYTHON", "RANK"))}
    words = ["bash", "-c", f"{python} {script} {place}/rank-00003; exit $?"]
    path = f"{place}/probe:{place}/own"
    return subprocess.Popen(words, env={**kept, "PYTHONPATH": path, "STACKYARD_TASK": "3", **environ}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def end(process: subprocess.Popen[str]) -> str:
    """What it printed, without a word of the probe."""
    out, err = process.communicate(timeout=60)
    assert "stackyard" not in err, err
    return out


def ask(place: Path, **request: Any) -> dict[str, Any]:
    """The answer of the only process that listens."""
    until = time.monotonic() + 60
    while not (found := list((place / "probe").glob("*.sock"))) and time.monotonic() < until:
        time.sleep(0.02)
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(60)
        stream.connect(str(found[0]))
        stream.sendall(json.dumps(request).encode() + b"\n")
        return dict(json.loads(stream.makefile().readline()))


@pytest.mark.parametrize("python", pythons())
def test_any_python_starts_as_without_it(place: Path, python: str) -> None:
    code = "import os, sys, threading\nimport torch, sitecustomize\nprint(sys.of_site == sitecustomize.__file__)\n" \
           "print([p for p in sys.path if 'probe' in p], threading.active_count(), sys.version_info[0])"  # fmt: skip
    traced = {"STACKYARD_TRACE_TORCH": json.dumps({"output_dir": str(place)}), "STACKYARD_PROBE_SIGNAL": "43"}
    said = end(run(place, code, python, **traced)).split("\n")
    assert said[:2] == ["True", said[1]]
    assert said[1].startswith("[] 1 ") or said[1].startswith("([], 1, 2)"), said
    assert (place / "rank-00003").exists() is ("2)" not in said[1])
    assert not [path for path in (place / "probe").iterdir() if path.suffix in (".sock", ".stacks")]


def test_a_site_without_its_own_and_one_that_fails(place: Path) -> None:
    (place / "own" / "sitecustomize.py").write_text("import no_such_module\n")
    process = run(place, "print('went on')")
    out, err = process.communicate(timeout=60)
    assert out == "went on\n"
    assert "no_such_module" in err, "said as without the probe"
    (place / "own" / "sitecustomize.py").unlink()
    assert end(run(place, "import sys; print([p for p in sys.path if 'probe' in p])")) == "[]\n"


def test_requests_are_answered_while_the_program_waits_in_c(place: Path) -> None:
    code = "import torch, ctypes\nctypes.CDLL(None).sleep(300)"
    process = run(place, code)
    state = ask(place, do="state")
    assert (state["rank"], state["worker"], state["frameworks"], state["traces"]) == (3, False, ["torch"], {})
    (sock,) = (place / "probe").glob("*.sock")
    assert sock.stat().st_mode & 0o777 == 0o600
    options = {"output_dir": str(place)}
    assert ask(place, do="start", trace="torch", options={**options, "shapes": True}) == {
        "ok": False, "error": "no shapes",
    }  # fmt: skip
    assert ask(place, do="start", trace="../own/torch", options=options)["error"].startswith("no such trace")
    assert ask(place, do="start", trace="torch", options=options) == {"ok": True}
    assert ask(place, do="start", trace="torch", options=options)["error"] == "torch is traced already"
    assert ask(place, do="state")["traces"]["torch"]["running"]
    stopped = ask(place, do="stop")["stopped"]["torch"]
    assert stopped == {"files": [f"{place}/rank-00003"], "steps": None}
    assert ask(place, do="recorder", output="/x")["error"] == "this PyTorch has no flight recorder"
    assert ask(place, do="nothing")["error"] == "no such request: nothing"
    os.kill(state["pid"], signal.SIGKILL)
    process.communicate()


def test_seconds_end_a_trace(place: Path) -> None:
    process = run(place, "import torch, time\ntime.sleep(300)")
    pid = ask(place, do="state")["pid"]
    ask(place, do="start", trace="torch", options={"output_dir": str(place), "seconds": 0.2})
    until = time.monotonic() + 60
    while ask(place, do="state")["traces"]["torch"]["running"] and time.monotonic() < until:
        time.sleep(0.05)
    assert (place / "rank-00003").read_text() == f"{pid} "
    os.kill(pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        ("", 143),
        (
            "def saves(*_):\n"
            " while not (os.path.exists(sys.argv[1]) and os.path.getsize(sys.argv[1])): time.sleep(0.01)\n"
            " os._exit(5)\n"
            "signal.signal(signal.SIGTERM, saves)",
            5,
        ),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(6))", 6),
        ("stuck", 143),
    ],
)
def test_sigterm_writes_the_traces_once(place: Path, handler: str, code: int) -> None:
    """Of a program with its own handler too, and of one that waits in C for ever."""
    wait = "import ctypes\nwhile True: ctypes.CDLL(None).sleep(300)" if handler == "stuck" else "time.sleep(300)"
    program = f"import os, signal, sys, time, torch\n{handler.replace('stuck', '')}\nprint('up', flush=True)\n{wait}"
    process = run(place, program, STACKYARD_TRACE_TORCH=json.dumps({"output_dir": str(place)}))
    pid = ask(place, do="state")["pid"]
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert (place / "rank-00003").read_text() == f"{pid} "


def test_workers_are_not_traced(place: Path) -> None:
    """Of spawn, fork and forkserver: they have the variables of their rank, and some import the framework again."""
    code = """
import multiprocessing, os, sys
def work(): import torch
if __name__ == "__main__":
    import torch
    for method in ("spawn", "fork", "forkserver"):
        worker = multiprocessing.get_context(method).Process(target=work)
        worker.start(); worker.join(); assert worker.exitcode == 0
    if os.fork() == 0: sys.exit(0)
    os.wait()
    print(os.getpid())
"""
    pid = end(run(place, code, STACKYARD_TRACE_TORCH=json.dumps({"output_dir": str(place)})))
    assert (place / "rank-00003").read_text().split() == [pid.strip()]


def test_sigterm_of_a_forked_worker_is_its_own(place: Path) -> None:
    """They share the descriptors of the parent; the end of a worker of a DataLoader is an ordinary thing."""
    code = """
import multiprocessing, os, signal, sys, time, torch
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
worker.start(); worker.terminate(); worker.join()
ready, tell = os.pipe()
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    os.write(tell, b"1")
    while True: time.sleep(0.01)
os.read(ready, 1)
os.kill(child, signal.SIGTERM)
print(worker.exitcode, os.waitpid(child, 0)[1] >> 8)
time.sleep(2)
print(open(sys.argv[1]).read() if os.path.exists(sys.argv[1]) else "traces go on")
"""
    traced = {"STACKYARD_TRACE_TORCH": json.dumps({"output_dir": str(place)})}
    assert end(run(place, code, **traced)) == "-15 7\ntraces go on\n"


def test_a_trace_of_no_framework_begins_with_the_program(place: Path) -> None:
    environ = {"STACKYARD_TRACE_OTHER": json.dumps({"output_dir": str(place), "rank": 1})}
    assert end(run(place, "import sys; print('torch' in sys.modules)", **environ)) == "False\n"
    assert (place / "rank-00001").exists()


def test_off_and_broken(place: Path) -> None:
    code = "import sys, torch; print('stackyard_probe' in sys.modules, sys.of_site is None)"
    assert end(run(place, code, STACKYARD_PROBE="off")) == "False False\n"
    (place / "probe" / "listen.py").write_text("raise OSError('no room')")
    out, err = run(place, code).communicate(timeout=60)
    assert (out, err.count("the probe is off")) == ("True False\n", 1)


def test_ranks_have_it_first_on_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/own")
    code = "echo $PYTHONPATH $STACKYARD_PROBE_SIGNAL; ls ${PYTHONPATH%%:*} || true"
    for probe in (True, False):
        plan = make_plan(local_line(1, 2), 1, 2, "/bin/sh", "-c", code)
        step = Running(tmp_path / f"step{probe}", plan, probe=probe, probe_signal=43 * probe)
        assert step.end().state == "done"
        said = step.step.rank_log(1).read_text().split()
        assert (said[0] == "/own") is not probe
        assert not probe or (said[0].endswith("/probe:/own") and said[1] == "43" and "sitecustomize.py" in said)
    assert not list(tmp_path.glob("stackyard-*")), "removed with the node's directory"
