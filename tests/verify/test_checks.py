"""Entry points, consistency, shared libraries, the interpreter and the stack's own checks, each with real faults."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verifykit import Stack, by_name

from stackyard.host.machine import probe
from stackyard.host.machine.probe import GpuDevice
from stackyard.inputs.models import Check, Site
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind
from stackyard.verify.checks.commands import interpreter_of
from stackyard.verify.checks.own import table_of
from support import programs

pytestmark = pytest.mark.usefixtures("no_systems")

CHECK_BUILD = """Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [X] Gloo
"""


# --------------------------------------------------------------------------- entry points


def test_entry_points(stack: Stack) -> None:
    stack.install(
        "tools",
        {"tools/__init__.py": "def main(): pass", "tools/bad.py": "import nowhere", "tools/kind.py": KIND,
         "tools/cli.py": "def run(): pass"},
        scripts={
            "good": "tools:main", "submodule": "tools:cli.run",
            "no-module": "tools.gone:main", "no-object": "tools:absent.run",
            "no-import": "tools.bad:main", "with-extra": "tools.bad:main [plots]", "optional": "tools.kind:main",
            "excepted": "tools.bad:main", "no-file": "tools:main", "bad-line": "tools:main", "other": "tools:main",
        },
    )  # fmt: skip
    stack.change(exceptions={"commands": ["excepted"]})
    directory = stack.prefix / "bin"
    (directory / "no-file").unlink()
    (directory / "bad-line").write_text("#!/no/such/python\n")
    (directory / "other").write_text("#!/usr/bin/perl\n" if Path("/usr/bin/perl").exists() else "#!/usr/bin/env bash\n")
    report = stack.verify("command")
    results = by_name(report, "command")
    status = {name: check.status for name, check in results.items()}
    assert (status["good"], status["submodule"]) == ("passed", "passed")
    failing = ("no-module", "no-object", "no-import", "no-file", "bad-line", "other")
    assert {name: status[name] for name in failing} == dict.fromkeys(failing, "failed")
    skipped = ("with-extra", "optional", "excepted")
    assert {name: (status[name], results[name].required) for name in skipped} == dict.fromkeys(
        skipped, ("skipped", False)
    )
    assert "No module named 'tools.gone'" in results["no-module"].detail
    assert "has no attribute 'absent'" in results["no-object"].detail
    assert "/no/such/python, which does not exist" in results["bad-line"].detail
    assert "not the stack's own interpreter" in results["other"].detail
    assert "hub_of_somebody" in results["optional"].detail


KIND = """
try:
    import hub_of_somebody
except ImportError as error:
    raise ImportError("install hub_of_somebody to use this") from error
"""


def test_helper_scripts_of_packages_only_warn(stack: Stack) -> None:
    for name, line in {
        "helper.csh": "#!/no/such/csh",
        "helper": "#!/usr/bin/env nothing-like-it",
        "ok": "#!/bin/sh",
    }.items():
        (stack.prefix / "bin" / name).write_text(f"{line}\n")
    report = stack.verify("command")
    results = by_name(report, "command")
    assert {name: results[name].status for name in ("helper.csh", "helper")} == {
        "helper.csh": "warned",
        "helper": "warned",
    }
    assert "ok" not in results
    assert report.state == "passed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/opt/x/bin/python -I\n", ("/opt/x/bin/python", "-I")),
        ("#!/usr/bin/env python3\n", ("/usr/bin/env", "python3")),
        ("#!/bin/sh\n'''exec' \"/opt/a b/bin/python\" \"$0\" \"$@\"\n' '''\n", ("/opt/a b/bin/python",)),
        ("#!/bin/sh\n'''exec' \"/opt/x/bin/python\" \"$0\" \"$@\" #'''\n", ("/opt/x/bin/python",)),
        ("#!/bin/sh\n'''exec' /opt/x/bin/python \"$0\" \"$@\"\n' '''\n", ("/opt/x/bin/python",)),
        ("#!/bin/sh\nexec ls\n", ("/bin/sh",)),
        ("plain\n", None),
    ],
)  # fmt: skip
def test_first_line(tmp_path: Path, text: str, words: tuple[str, ...] | None) -> None:
    (tmp_path / "script").write_text(text)
    assert interpreter_of(tmp_path / "script") == words


def test_first_line_relative_to_the_script(tmp_path: Path) -> None:
    line = '\'\'\'exec\' "$(dirname -- "$(realpath -- "$0")")"/\'python\' "$0" "$@"'
    (tmp_path / "script").write_text(f"#!/bin/sh\n{line}\n' '''\n")
    assert interpreter_of(tmp_path / "script") == (f"{tmp_path}/python",)


# --------------------------------------------------------------------------- consistency


def test_pip_consistency(stack: Stack) -> None:
    stack.install("needy", {"needy.py": ""}, requires=["absent>=2", "old>=2"])
    stack.install("old", {"old.py": ""})
    stack.install("fussy", {"fussy.py": ""}, requires=["absent"])
    stack.change(exceptions={"distributions": ["Fussy"]})
    report = stack.verify("consistency")
    (check,) = (c for c in report.checks if c.name != "files")
    assert (check.name, check.status) == ("pip needy", "failed")
    assert "absent>=2" in check.detail
    assert "old>=2" in check.detail
    assert report.exceptions() == {"distributions": ["needy"]}
    stack.change(exceptions={"distributions": ["fussy", "needy"]})
    assert stack.verify("consistency").state == "passed"


def test_a_file_that_is_gone_is_named_with_what_to_do(stack: Stack) -> None:
    stack.install("whole", {"whole/__init__.py": "import whole.part", "whole/part.py": ""})
    assert by_name(stack.verify("consistency"), "consistency")["files"].status == "passed"
    (stack.site_packages / "whole" / "part.py").unlink()
    report = stack.verify("consistency", "import")
    lost = by_name(report, "consistency")["files"]
    assert lost.status == "warned" and "whole/part.py" in lost.detail
    assert f"`stackyard verify --repair {stack.record.module}`" in lost.remedy
    assert "whole installed whole/part.py" in by_name(report, "import")["whole"].remedy


def conda_meta(stack: Stack, name: str, version: str, **fields: Any) -> None:
    directory = stack.prefix / "conda-meta"
    directory.mkdir(exist_ok=True)
    value = {
        "name": name, "version": version, "build": "h1_0", "build_number": 0, "subdir": "linux-64", "files": [],
        "fn": f"{name}-{version}-h1_0.conda", "url": f"https://example.org/linux-64/{name}-{version}-h1_0.conda",
        "channel": "https://example.org", "depends": [], "constrains": [],
        "paths_data": {"paths": [], "paths_version": 1}, **fields,
    }  # fmt: skip
    (directory / f"{name}-{version}-h1_0.json").write_text(json.dumps(value))


def test_conda_consistency(stack: Stack) -> None:
    conda_meta(stack, "lib", "1.5")
    conda_meta(stack, "good", "1.0", depends=["lib >=1,<2", "__glibc >=2.17", "__cuda >=99"])
    assert by_name(stack.verify("consistency"), "consistency")["conda"].status == "passed"
    conda_meta(stack, "old", "1.0", depends=["lib >=2"])
    conda_meta(stack, "alone", "1.0", depends=["absent", "__glibc >=99"])
    conda_meta(stack, "strict", "1.0", constrains=["lib <1.5"])
    results = by_name(stack.verify("consistency"), "consistency")
    assert {name for name, check in results.items() if check.status == "failed"} == {
        "conda old", "conda alone", "conda strict",
    }  # fmt: skip
    assert "requires lib >=2, but lib 1.5 h1_0 is installed" in results["conda old"].detail
    assert "absent, but it is not installed" in results["conda alone"].detail
    assert "__glibc >=99, but this machine has" in results["conda alone"].detail
    assert "allows only lib <1.5" in results["conda strict"].detail


# --------------------------------------------------------------------------- libraries


def compile_pair(directory: Path, name: str, *flags: str) -> tuple[Path, Path]:
    """A library ``lib<name>.so.1`` and a module linked to it, in two directories."""
    programs.need("gcc")
    (directory / "lib").mkdir(parents=True, exist_ok=True)
    (directory / "module").mkdir(exist_ok=True)
    library, module = directory / "lib" / f"lib{name}.so.1", directory / "module" / f"{name}.abi3.so"
    (directory / "a.c").write_text("int one(void) { return 1; }\n")
    (directory / "b.c").write_text("int one(void); int two(void) { return one() + 1; }\n")
    build = ["gcc", "-shared", "-fPIC"]
    subprocess.run([*build, f"-Wl,-soname,{library.name}", "-o", library, directory / "a.c"], check=True)
    subprocess.run([*build, *flags, "-o", module, directory / "b.c", library], check=True)
    return library, module


@pytest.mark.parametrize("tag", ["--enable-new-dtags", "--disable-new-dtags"])
@pytest.mark.parametrize("origin", ["$ORIGIN/../lib", "${ORIGIN}/../lib"])
def test_library_found_by_its_search_path_and_missed_without_it(stack: Stack, tag: str, origin: str) -> None:
    library, _ = compile_pair(stack.prefix / "lib" / "pair", "pair", f"-Wl,{tag},-rpath,{origin}")
    assert stack.verify("library").state == "passed"
    library.unlink()
    report = stack.verify("library")
    (check,) = report.checks
    assert (check.name, check.status) == ("libpair.so.1", "failed")
    assert "required by lib/pair/module/pair.abi3.so" in check.detail
    stack.change(exceptions={"libraries": ["libpair.so*"]})
    assert stack.verify("library").state == "passed"


def test_library_that_another_file_loads_first(stack: Stack) -> None:
    compile_pair(stack.prefix / "lib" / "pair", "pair")
    (check,) = stack.verify("library").checks
    assert check.status == "passed"
    assert "1 of their libraries are found only because another file loads them" in check.detail


def test_fabric_library_is_a_warning(stack: Stack) -> None:
    library, _ = compile_pair(stack.prefix / "lib" / "pair", "psm2")
    library.unlink()
    report = stack.verify("library")
    assert by_name(report, "library")["libpsm2.so.1"].status == "warned"
    assert report.state == "passed"


def test_what_only_an_unlinked_library_of_a_wheel_needs_is_a_warning(stack: Stack) -> None:
    """On a host without Fortran: torch's wheel has a libgfortran that needs libquadmath, and nothing needs it."""
    directory = stack.site_packages / "torch/lib"
    library, module = compile_pair(directory, "quadmath")
    module.rename(directory / "libgfortran.so.5")
    library.unlink()
    report = stack.verify("library")
    assert by_name(report, "library")["libquadmath.so.1"].status == "warned" and report.state == "passed"
    (directory / "libgfortran.so.5").rename(directory / "libother.so.5")
    assert by_name(stack.verify("library"), "library")["libquadmath.so.1"].status == "failed"


def test_damaged_and_foreign_files_are_no_error(stack: Stack) -> None:
    directory = stack.prefix / "lib"
    (directory / "cut.so").write_bytes(Path("/bin/ls").read_bytes()[:200])
    (directory / "text.so").write_text("INPUT(libz.so.1)\n")
    (directory / "empty.so").write_bytes(b"")
    foreign = bytearray(Path("/bin/ls").read_bytes())
    foreign[18:20] = (183 if foreign[18] != 183 else 62).to_bytes(2, "little")
    (directory / "foreign.so").write_bytes(foreign)
    (check,) = stack.verify("library").checks
    assert check.status == "passed"
    assert "1 files are for another architecture" in check.detail


# --------------------------------------------------------------------------- the interpreter


def test_interpreter_of_another_version_fails(stack: Stack) -> None:
    stack.change(interpreter={"source": "host", "version": "3.1"})
    (check,) = stack.verify("interpreter").checks
    assert check.status == "failed"
    assert "expected 3.1" in check.detail


def test_record_with_a_python_that_is_not_there(stack: Stack) -> None:
    shutil.rmtree(stack.prefix / "bin")
    report = stack.verify("interpreter", "import")
    assert [check.status for check in report.checks] == ["failed"]


def test_stack_without_python(stack: Stack) -> None:
    shutil.rmtree(stack.prefix)
    (stack.prefix / "bin").mkdir(parents=True)
    (stack.prefix / "bin" / "tool").write_text("#!/bin/sh\necho works\n")
    (stack.prefix / "bin" / "tool").chmod(0o755)
    stack.change(interpreter={"source": "none"}, checks=({"name": "tool", "run": ["tool"], "expect": "^works$"},))
    report = stack.verify()
    assert report.state == "passed", [check.line() for check in report.problems()]
    assert {check.kind for check in report.checks} == {"load", "symmetry", "content", "library", "own"}


def test_python_that_sees_a_foreign_directory_fails(stack: Stack, tmp_path: Path) -> None:
    (stack.site_packages / "foreign.pth").write_text(f"{tmp_path}\n")
    (check,) = stack.verify("interpreter").checks
    assert check.status == "failed"
    assert f"imports from {tmp_path}" in check.detail


# --------------------------------------------------------------------------- the stack's own checks


def own(stack: Stack, site: Site | None = None, **fields: Any) -> Any:
    """Run one own check, given as a stack file would give it."""
    stack.change(checks=(Check(name="one", **fields).model_dump(mode="json"),))
    return stack.verify("own", site=site)


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"run": ("echo", "{prefix}"), "expect": "yard.*prefix$"}, "passed", "prefix"),
        ({"run": ("python", "-c", "import sys; print(sys.prefix)"), "expect": "prefix$"}, "passed", "prefix"),
        ({"python": "print('a'); print('b')", "expect": "^b$"}, "passed", "b"),
        ({"python": "print('a')", "expect": "^b$"}, "failed", "does not match '^b$'"),
        ({"python": "raise SystemExit(7)"}, "failed", "exited with status 7"),
        ({"run": ("no-such-program-here",)}, "failed", "in the loaded environment"),
        ({"python": "import time; time.sleep(60)", "timeout_min": 0.01}, "failed", "0.6 s"),
        ({"python": "raise SystemExit(7)", "required": False}, "warned", "exited with status 7"),
        ({}, "failed", "missing command"),
    ],
)
def test_own_checks(stack: Stack, fields: dict[str, Any], status: str, text: str) -> None:
    (check,) = own(stack, **fields).checks
    assert check.status == status
    assert text in check.detail


@pytest.mark.parametrize(
    "fields",
    [
        {"python": "import sys\nprint('it ran')\nsys.exit(3)\n"},
        {"python": "print('it ran'); raise SystemExit(3)"},
        {"run": ("bash", "-c", "echo 'it ran'; exit 3")},
    ],
)
def test_the_hint_of_a_failed_check_repeats_it(stack: Stack, fields: dict[str, Any]) -> None:
    (check,) = own(stack, **fields).checks
    head, _, command = check.remedy.partition(" -- ")
    assert head.endswith(f": stackyard run {stack.record.module}") and "\n" not in command
    environ = {"PATH": f"{stack.record.prefix}/bin:{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("it ran\n", 3)


@pytest.mark.parametrize(("name", "mode"), [("check.sh", 0o644), ("check", 0o755), ("check.py", 0o644)])
def test_own_script(stack: Stack, tmp_path: Path, name: str, mode: int) -> None:
    script = tmp_path / name
    script.write_text("print('it ran')\n" if name.endswith("py") else "#!/bin/sh\necho it ran\n")
    script.chmod(mode)
    assert own(stack, script=str(script), expect="it ran").state == "passed"


def test_table(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "table").write_text(CHECK_BUILD)
    command = {"run": ("cat", str(tmp_path / "table"))}
    assert table_of(CHECK_BUILD)["PyTorch"] is True
    assert own(stack, **command, table=("PyTorch", "MPI", "Gloo")).state == "passed"
    (check,) = own(stack, **command, table=("PyTorch", "TensorFlow", "NCCL")).checks
    assert check.status == "failed"
    assert "TensorFlow not ticked; NCCL not in the table" in check.detail


NODES = {
    "gpu": NodeKind(platform="linux-64", gpu=Gpu(count=4, vendor="nvidia", model="H200")),
    "power": NodeKind(platform="linux-ppc64le"),
    "login": NodeKind(platform="linux-64"),
}


@pytest.mark.parametrize(
    ("needs", "gpus", "reason"),
    [
        ({"gpu": True}, 0, "requires a GPU"),
        ({"gpu": True}, 1, None),
        ({"arch": "ppc64le"}, 0, "requires ppc64le"),
        ({"arch": "x86_64"}, 0, None),
        ({"node_kind": "login"}, 0, None),
        ({"node_kind": "gpu"}, 1, "with 4 GPUs, but this machine has 1"),
        ({"node_kind": "gpu"}, 4, None),
        ({"node_kind": "power"}, 0, "linux-ppc64le"),
        ({"node_kind": "unheard"}, 0, "which the site does not define"),
    ],
)
@pytest.mark.parametrize("required", [True, False])
def test_check_that_needs_another_node_is_skipped(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, needs: dict[str, Any], gpus: int, reason: str | None, required: bool
) -> None:
    here = replace(
        probe.machine(), platform="linux-64", architecture="x86_64", gpus=(GpuDevice("nvidia", "NVIDIA H200"),) * gpus
    )
    monkeypatch.setattr("stackyard.verify.verify.machine", lambda: here)
    report = own(stack, Site(nodes=NODES), run=("true",), needs=needs, required=required)
    (check,) = report.checks
    if reason is None:
        assert check.status == "passed"
    else:
        assert check.status == "skipped"
        assert reason in check.detail
        assert report.state == ("unverified" if required else "passed")
