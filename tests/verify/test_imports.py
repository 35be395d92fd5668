"""What counts as importable: real modules in a real environment, broken in every way that is known."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from verifykit import Stack, by_name

from stackyard.host.machine import probe
from stackyard.host.machine.probe import GpuDevice
from stackyard.verify.checks import tasks
from stackyard.verify.checks.distributions import modules_of
from stackyard.verify.report import CheckResult

pytestmark = pytest.mark.usefixtures("no_systems")


@pytest.mark.parametrize(
    ("files", "public"),
    [
        (["a/__init__.py", "a/b/__init__.py", "c.py"], "a c"),
        (["google/api/x.py", "google/rpc/__init__.py"], "google.api.x google.rpc"),
        (["_x/__init__.py", "x/__init__.py"], "x"),
        (["_x/__init__.py"], "_x"),
        (["a-stubs/__init__.pyi", "a.dist-info/METADATA", "a.pth", "a.libs/liba.so"], ""),
        (["tests/__init__.py", "tests/test_a.py", "setup.py", "a.py"], "a"),
        (["a.cpython-311-x86_64-linux-gnu.so", "b.abi3.so", "c.so", "libd.so", "e.pypy310-pp73-x86_64-linux-gnu.so"],
         "a b c e"),
        (["a/__init__.cpython-311-x86_64-linux-gnu.so"], "a"),
        (["data/x.json", "include/x.h", "class.py", "1a.py"], ""),
        (["a/deep/er/still/x.py"], ""),
    ],
)  # fmt: skip
def test_public_modules(files: list[str], public: str) -> None:
    assert " ".join(modules_of(files)[0]) == public


def test_distribution_that_is_called_like_a_stray_directory() -> None:
    assert modules_of(["build/__init__.py"], "build")[0] == ("build",)


BROKEN = {
    "missing": ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    "raises": ("raise RuntimeError('bad\\nthings')", "RuntimeError: bad / things"),
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "dies": ("import os; os.abort()", "killed by signal 6 (SIGABRT)"),
    "leaves": ("import os; os._exit(0)", "exited with status 0"),
    "syntax": ("def (", "SyntaxError: invalid syntax"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "killed by signal 11 (SIGSEGV)"),
}


def test_every_broken_module_is_named_with_its_cause_and_no_other(stack: Stack) -> None:
    for name, (source, _) in BROKEN.items():
        stack.install(name, {f"{name}.py": source})
    for number in range(5):
        stack.install(f"fine{number}", {f"fine{number}/__init__.py": "import json"})
    results = by_name(stack.verify("import"), "import")
    for name, (_, cause) in BROKEN.items():
        assert results[name].status == "failed"
        assert results[name].detail.startswith(f"{name}: ")
        assert cause in results[name].detail
        assert f"add {name} to `exceptions: imports:`" in results[name].remedy
    assert {name for name, check in results.items() if check.status == "passed"} == {f"fine{n}" for n in range(5)}


def test_module_that_hangs_is_stopped_in_time(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.ImportTask.__init__, "__defaults__", ((), 3.0))
    stack.install("hangs", {"hangs.py": "import ctypes; ctypes.CDLL(None).sleep(100)"})
    stack.install("zfine", {"zfine.py": ""})
    started = time.monotonic()
    results = by_name(stack.verify("import"), "import")
    assert time.monotonic() - started < 90
    assert "timed out after 3 s" in results["hangs"].detail
    assert results["zfine"].status == "passed"


def test_module_that_another_one_disturbs_is_tried_alone(stack: Stack) -> None:
    stack.install("afirst", {"afirst.py": "import builtins; builtins.disturbed = True"})
    stack.install("second", {"second.py": "import builtins\nassert not hasattr(builtins, 'disturbed')"})
    second = by_name(stack.verify("import"), "import")["second"]
    assert second.status == "passed"
    assert "only in a process of its own" in second.detail


def test_noise_on_all_streams_and_changed_directory_do_no_harm(stack: Stack) -> None:
    source = "import os, sys; print('x' * 100000); os.write(2, b'y' * 100000); sys.stdout.close(); os.chdir('/')"
    stack.install("noisy", {"noisy.py": source})
    stack.install("zfine", {"zfine.py": ""})
    results = by_name(stack.verify("import"), "import")
    assert [results[name].status for name in ("noisy", "zfine")] == ["passed", "passed"]


def test_declared_exceptions_are_skipped_and_said_so(stack: Stack) -> None:
    stack.install("gpu_only", {"gpu_only/__init__.py": "raise OSError"})
    stack.change(exceptions={"imports": ["gpu_*"]})
    report = stack.verify("import")
    assert report.state == "passed"
    assert by_name(report, "import")["gpu_only"] == CheckResult(
        "import", "gpu_only", "skipped", "a declared exception", required=False
    )


def test_extra_that_nothing_asks_for_is_no_fault_of_a_dependency(stack: Stack) -> None:
    extra = {"requires": ["nowhere; extra == 'plots'"]}
    stack.install("inline", {"inline.py": "import nowhere"}, **extra)
    asked = by_name(stack.verify("import"), "import")["inline"]
    assert asked.status == "failed"
    assert "request inline[plots]" in asked.remedy
    stack.install("user", {"user.py": ""}, requires=["inline"])
    needed = by_name(stack.verify("import"), "import")["inline"]
    assert (needed.status, needed.required) == ("skipped", False)
    assert "extra plots" in needed.detail


def compile_library(stack: Stack, name: str, needs: str) -> str:
    """An extension module that is linked to a library which is then taken away."""
    work = stack.yard.root / "c"
    work.mkdir()
    (work / "empty.c").write_text("int nothing(void) { return 0; }\n")
    (work / "mod.c").write_text("int nothing(void);\nint other(void) { return nothing(); }\n")
    library = work / needs
    subprocess.run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{needs}", "-o", library, work / "empty.c"], check=True)
    module = work / f"{name}.abi3.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", module, work / "mod.c", library], check=True)
    return str(module)


@pytest.mark.parametrize("gpu", [False, True])
def test_driver_library_needs_a_gpu_node(stack: Stack, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that fails for want of libcuda proves nothing on a machine without a GPU, and is a fault with one."""
    from dataclasses import replace

    here = replace(probe.machine(), gpus=(GpuDevice("nvidia", "H200"),) if gpu else ())
    monkeypatch.setattr("stackyard.verify.verify.machine", lambda: here)
    with open(compile_library(stack, "cudamod", "libcuda.so.1"), "rb") as stream:
        stack.install("cudamod", {"cudamod.abi3.so": stream.read()})
    report = stack.verify("import", "library")
    assert by_name(report, "import")["cudamod"].status == ("failed" if gpu else "skipped")
    assert by_name(report, "library")["libcuda.so.1"].status == ("failed" if gpu else "skipped")
    assert report.state == ("failed" if gpu else "unverified")


def test_package_that_conda_installed_without_metadata(stack: Stack) -> None:
    meta = stack.prefix / "conda-meta"
    meta.mkdir()
    relative = os.path.relpath(stack.site_packages, stack.prefix)
    (stack.site_packages / "bare").mkdir()
    (stack.site_packages / "bare" / "__init__.py").write_text("import nowhere")
    (meta / "bare-1.0-0.json").write_text(
        f'{{"name": "bare", "version": "1.0", "files": ["{relative}/bare/__init__.py", "bin/bare"]}}'
    )
    bare = by_name(stack.verify("import"), "import")["bare"]
    assert bare.status == "failed"
    assert "No module named 'nowhere'" in bare.detail


def test_python_2_worker_source_has_no_newer_syntax() -> None:
    """The worker runs in a stack's interpreter, which may be Python 2.7; checked where one is there."""
    import ast

    tree = ast.parse(tasks._source())
    newer = (ast.JoinedStr, ast.AnnAssign, ast.Nonlocal, ast.AsyncFunctionDef, ast.NamedExpr, ast.Starred)
    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None
            assert not node.args.kwonlyargs


def test_a_broken_command_is_a_warning_where_the_file_is_of_another_tool(stack: Stack) -> None:
    stack.install(
        "fabric",
        {"fabric/__init__.py": "", "fabric/cli.py": "import click_that_is_missing\ndef main(): pass\n"},
        scripts={"fabric": "fabric.cli:main"},
    )
    stack.install("torn", {"torn/__init__.py": "import nowhere\n"}, scripts={"torn": "torn:main"})
    strict = by_name(stack.verify("command"), "command")
    assert {name: strict[name].status for name in ("fabric", "torn")} == {"fabric": "failed", "torn": "failed"}
    stack.change(exceptions={"broken_commands": "warn"})
    report = stack.verify("command", "import")
    command = by_name(report, "command")["fabric"]
    assert (command.status, command.required) == ("warned", False)
    assert "click_that_is_missing" in command.detail and "add the package that provides" in command.remedy
    assert [check.name for check in report.tolerated()] == ["fabric", "torn"]
    assert by_name(report, "import")["torn"].status == "failed" and report.state == "failed", "imports are required"
    (stack.site_packages / "torn" / "__init__.py").write_text("def main(): pass\n")
    assert stack.verify("command", "import").state == "passed"
    (stack.prefix / "bin" / "fabric").unlink()
    assert by_name(stack.verify("command"), "command")["fabric"].status == "failed", "a missing file is damage"
