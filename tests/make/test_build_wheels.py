"""Source that is compiled: what belongs to a wheel's key, patches, tools, isolation, order."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from buildbed import build, locked, sdist

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.run import command
from stackyard.host.run.view import View
from stackyard.inputs.models import BuildSpec, HostTool, PackageBuild, Variant
from stackyard.lock.lockfile.model import LockedVariant, PipPackage
from stackyard.lock.pip.snapshot import sha256_tree
from stackyard.make.wheels import compile as wheels
from stackyard.make.wheels import key as wheelkey
from stackyard.make.wheels import source
from stackyard.yard.cache.audit import audit
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from support.channel import Package, make_channel

pytestmark = pytest.mark.skipif(command.which("cc") is None, reason="C compiler not found on PATH")

SETUP = """
import os
from setuptools import Extension, setup
prefix = os.environ.get("EXT_PREFIX", "")
setup(name="cext", version="1.0", py_modules=["cext_more"], ext_modules=[Extension("cext", ["cext.c"],
      define_macros=[("ANSWER", os.environ.get("EXT_ANSWER", "1")), ("PREFIX", '"%s"' % prefix)])])
"""
CODE = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(ANSWER); }
static PyObject *prefix(PyObject *self, PyObject *args) { return PyUnicode_FromString(PREFIX); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {"prefix", prefix, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "cext", 0, -1, methods};
PyMODINIT_FUNC PyInit_cext(void) { return PyModule_Create(&module); }
"""
PATCH = """\
--- a/cext_more.py
+++ b/cext_more.py
@@ -1 +1 @@
-WORD = "original"
+WORD = "patched"
"""


@pytest.fixture
def yard(tmp_path: Path, site_yard: Yard) -> Yard:
    return Yard(tmp_path / "yard", site_yard)


@pytest.fixture
def cext(tmp_path: Path) -> PipPackage:
    return sdist(tmp_path / "src", {"setup.py": SETUP, "cext.c": CODE, "cext_more.py": 'WORD = "original"\n'})


def variant(package: PackageBuild | None = None, **spec: object) -> Variant:
    packages = {"cext": package or PackageBuild()}
    return Variant(stack="demo", version="1.0", name="py311", build=BuildSpec(packages=packages, **spec))


@pytest.fixture
def with_setuptools(cext: PipPackage, wheelhouse: dict[str, PipPackage]) -> list[PipPackage]:
    return [wheelhouse["setuptools"], wheelhouse["wheel"], wheelhouse["packaging"], cext]


def run(prefix: str, code: str) -> str:
    return subprocess.check_output([f"{prefix}/bin/python", "-c", code], text=True).strip()


def compilations(path: str) -> int:
    return RevisionPaths.of(path).log.read_text().count(" build --wheel ")


def test_the_same_inputs_compile_once_and_another_variable_again(
    yard: Yard, with_setuptools: list[PipPackage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXT_TOKEN", "t0ken-in-a-build")
    more = {"MAKEFLAGS": "-j{ncores}", "TOKEN": "{env:EXT_TOKEN}"}
    lock = locked(pip=with_setuptools)
    one = build(yard, lock, variant(variables={"EXT_ANSWER": "11", **more}), directory="one")
    two = build(yard, lock, variant(variables={"EXT_ANSWER": "11", **more}), directory="two")
    three = build(yard, lock, variant(variables={"EXT_ANSWER": "22", **more}), directory="three")
    assert [run(r.prefix, "import cext; print(cext.answer())") for r in (one, two, three)] == ["11", "11", "22"]
    assert [compilations(r.path) for r in (one, two, three)] == [1, 0, 1]
    builds = [next(p.build for p in r.packages if p.name == "cext") for r in (one, two, three)]
    assert builds[0] == builds[1] != builds[2]
    assert {"cc", "c++"} & set(one.tools) and all(tool["version"] for tool in one.tools.values())
    assert audit(yard) == []
    built_by_uv = [p for p in yard.cache.glob("uv/sdists-v*/*/*") if any(p.rglob("*.whl"))]
    assert built_by_uv == [], "uv's own cache of built wheels, which ignores variables, is not used"
    meta = json.loads(next(yard.cache.glob("wheels/??/*/meta.json")).read_text())
    assert meta["inputs"]["variables"] | more == meta["inputs"]["variables"]
    written = [path for path in yard.root.rglob("*") if path.is_file() and b"t0ken-in-a-build" in path.read_bytes()]
    assert written == []


def test_a_patch_is_applied_and_belongs_to_the_key(
    yard: Yard, tmp_path: Path, with_setuptools: list[PipPackage]
) -> None:
    patch = tmp_path / "word.patch"
    patch.write_text(PATCH)
    lock = locked(pip=with_setuptools)
    words = []
    for directory, patches in (("plain", ()), ("patched", (str(patch),))):
        record = build(yard, lock, variant(PackageBuild(patches=patches)), directory=directory)
        words.append(run(record.prefix, "import cext_more; print(cext_more.WORD)"))
        assert compilations(record.path) == 1
    assert words == ["original", "patched"]
    patch.write_text(PATCH.replace("original", "never was there"))
    with pytest.raises(InputError, match=r"cannot apply the patch .*word\.patch to cext") as caught:
        build(yard, lock, variant(PackageBuild(patches=(str(patch),))), directory="bad")
    assert "cext_more.py" in (caught.value.detail or "")


def test_build_requirements_do_not_stay_in_the_stack(
    yard: Yard, cext: PipPackage, wheelhouse: dict[str, PipPackage]
) -> None:
    how = PackageBuild(requires=("setuptools", "wheel"))
    spec = variant(how)
    directory = Path(wheelhouse["setuptools"].url.removeprefix("file://")).parent
    options = spec.environment.pip_options.model_copy(update={"no_index": True, "find_links": (str(directory),)})
    spec = spec.model_copy(update={"environment": spec.environment.model_copy(update={"pip_options": options})})
    record = build(yard, locked(pip=[cext]), spec)
    names = {p.name.split("-")[0] for p in Path(record.prefix).glob("lib/python3*/site-packages/*.dist-info")}
    assert names == {"cext"}
    assert run(record.prefix, "import cext; print(cext.answer())") == "1"


def test_a_package_is_compiled_against_what_the_stack_holds(
    yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]
) -> None:
    call = "setup(name='needs', version=idna.__version__, py_modules=['needs'])"
    setup = f"import idna\nfrom setuptools import setup\n{call}\n"
    package = replace(sdist(tmp_path / "src", {"setup.py": setup, "needs.py": ""}, "needs", ""), version="")
    spec = Variant(stack="demo", version="1.0", name="py311", build=BuildSpec(packages={"needs": PackageBuild()}))
    record = build(yard, locked(pip=[wheelhouse["setuptools"], wheelhouse["idna"], package]), spec)
    made = next(Path(record.prefix).glob("lib/python3*/site-packages/needs-*.dist-info"))
    assert wheelhouse["idna"].version in made.name


def test_a_missing_tool_is_named_before_anything_is_done(yard: Yard, cext: PipPackage) -> None:
    tools = (HostTool(name="nvcc-of-nowhere"), HostTool(name="cc", version=">=900"))
    with pytest.raises(MissingError) as caught:
        build(yard, locked(pip=[cext]), variant(tools=tools))
    assert "nvcc-of-nowhere not found on PATH" in str(caught.value)
    assert ">=900" in str(caught.value) and "demo/1.0-py311-1" in str(caught.value)
    assert caught.value.hint and caught.value.exit_code == 4
    assert not RevisionPaths(yard.root / "stacks/demo/1.0-py311-1").prefix.exists()


def test_the_path_of_a_tool_reaches_the_build(yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> None:
    setup = (
        "import os\nfrom setuptools import setup\nopen('uses.py', 'w').write('TOOL = %r' % os.environ['WITH_CC'])\n"
        "setup(name='uses', version='1.0', py_modules=['uses'])\n"
    )
    package = sdist(tmp_path / "src", {"setup.py": setup}, "uses")
    build_spec = BuildSpec(packages={"uses": PackageBuild()}, tools=(HostTool(name="cc", variable="WITH_CC"),))
    spec = Variant(stack="demo", version="1.0", name="py311", build=build_spec)
    record = build(yard, locked(pip=[wheelhouse["setuptools"], package]), spec)
    assert run(record.prefix, "import uses; print(uses.TOOL)") == str(command.which("cc"))
    assert record.tools["cc"]["path"] == str(command.which("cc"))


def test_a_source_that_was_replaced_is_refused(yard: Yard, with_setuptools: list[PipPackage], tmp_path: Path) -> None:
    *others, package = with_setuptools
    wrong = replace(package, sha256="1" * 64)
    with pytest.raises(StackyardError) as caught:
        build(yard, locked(pip=[*others, wrong]), variant())
    assert "1" * 64 in str(caught.value) and package.sha256 in str(caught.value)
    assert not list(yard.cache.glob("sources/*/*.gz"))


def test_a_compiler_error_is_shown_with_the_log(yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> None:
    broken = sdist(tmp_path / "src", {"setup.py": SETUP, "cext.c": "#error no way", "cext_more.py": ""})
    with pytest.raises(StackyardError, match=r"compiling cext 1\.0 failed") as caught:
        build(yard, locked(pip=[wheelhouse["setuptools"], broken]), variant())
    assert "no way" in (caught.value.detail or "") and "build.log" in (caught.value.hint or "")
    assert not list(yard.cache.glob("wheels/.build*")), "scratch folders are removed"


def test_a_local_project_is_a_wheel_of_its_snapshot(
    yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]
) -> None:
    project = tmp_path / "mine"
    project.mkdir()
    (project / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='mine', version='3', py_modules=['mine'])\n"
    )
    (project / "mine.py").write_text("V = 1\n")
    package = PipPackage("mine", "3", "path", project.as_uri(), sha256_tree(project))
    spec = Variant(stack="demo", version="1.0", name="py311", build=BuildSpec(packages={"mine": PackageBuild()}))
    record = build(yard, locked(pip=[wheelhouse["setuptools"], package]), spec)
    (project / "mine.py").write_text("V = 2\n")
    assert run(record.prefix, "import mine; print(mine.V)") == "1"
    assert not (project / "build").exists() and not list(project.glob("*.egg-info"))
    (project / "setup.py").write_text((project / "setup.py").read_text() + "# new\n")
    other = Variant(
        stack="demo",
        version="1.0",
        name="py311",
        build=BuildSpec(packages={"mine": PackageBuild()}, variables={"X": "1"}),
    )
    with pytest.raises(StackyardError, match="changed after it was locked"):
        build(yard, locked(pip=[wheelhouse["setuptools"], package]), other, directory="other")


@pytest.mark.skipif(command.which("git") is None, reason="there is no git on this machine")
def test_a_commit_of_a_git_repository(yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()

    def git(*words: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
        return subprocess.check_output(["git", *identity, *words], cwd=repository, text=True).strip()

    git("init", "-q", ".")
    for number in (1, 2):
        (repository / "setup.py").write_text(
            f"from setuptools import setup\nsetup(name='fromgit', version='{number}', py_modules=['fromgit'])\n"
        )
        (repository / "fromgit.py").write_text(f"V = {number}\n")
        git("add", ".")
        git("commit", "-q", "-m", str(number))
    first = git("rev-parse", "HEAD~1")
    git("branch", "feature/x", first)
    package = PipPackage("fromgit", "1", "vcs", f"git+{repository.as_uri()}@feature/x#egg=fromgit", "", commit=first)
    spec = Variant(stack="demo", version="1.0", name="py311", build=BuildSpec(packages={"fromgit": PackageBuild()}))
    record = build(yard, locked(pip=[wheelhouse["setuptools"], package]), spec)
    assert run(record.prefix, "import fromgit; print(fromgit.V)") == "1"


def test_dependencies_are_compiled_first() -> None:
    def named(name: str, *requires: str) -> PipPackage:
        return PipPackage(name, "1", "sdist", "", "", requires=requires)

    packages = [named("a", "B-x>=1", "numpy"), named("b_x", "c"), named("c", "a")]
    assert [p.name for p in wheels.in_order(packages)] == ["c", "b_x", "a"]


def test_substitution() -> None:
    words = {"prefix": "/p", "python": "/p/bin/python", "ncores": "4"}
    given = {"A": "{prefix}/lib:{env:HOST}", "B": "-j{ncores} {other} {python}"}
    assert wheelkey.substitute(given, words, {"HOST": "/h"}) == {"A": "/p/lib:/h", "B": "-j4 {other} /p/bin/python"}
    with pytest.raises(MissingError, match="not set: HOST"):
        wheelkey.substitute(given, words, {})


def test_build_requirements_are_compiled_in_the_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[View] = []
    monkeypatch.setattr(wheels.programs, "run", lambda _, **options: views.append(options["view"]))
    for name, value in (("environment", {}), ("options", [])):
        monkeypatch.setattr(wheels.indexes, name, lambda _, value=value: value)
    job = SimpleNamespace(
        module="demo/1", python=tmp_path / "bin/python", prefix=tmp_path, site_packages=tmp_path / "lib",
        paths=SimpleNamespace(log=tmp_path / "log"),
    )  # fmt: skip
    (tmp_path / "env/lib").mkdir(parents=True)
    view = View((tmp_path,))
    wheels._environment(job, ["only-an-sdist"], tmp_path / "prefix_____", view)  # type: ignore[arg-type]
    assert views == [view, view]


def test_the_secret_of_a_variable_is_not_written() -> None:
    from stackyard.core import secrets

    found = wheelkey.substitute(
        {"A": "{env:INDEX_TOKEN} {env:HOST}"}, {}, {"INDEX_TOKEN": "s3cr3t-4711", "HOST": "host-4711"}
    )
    assert found == {"A": "s3cr3t-4711 host-4711"}
    assert secrets.redacted(found["A"]) == "${INDEX_TOKEN} host-4711"


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_cannot_write_outside(tmp_path: Path, kind: str) -> None:
    archive, target = tmp_path / f"a.{kind}", tmp_path / "target"
    target.mkdir()
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as bundle:
            bundle.writestr("../outside", "x")
        source.unpack(archive, target)  # zipfile takes the dots away
    else:
        with tarfile.open(archive, "w") as tar:
            tar.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))
        with pytest.raises(StackyardError, match="cannot unpack"):
            source.unpack(archive, target)
    assert not (tmp_path / "outside").exists()


def test_a_damaged_cached_wheel_is_compiled_again(yard: Yard, with_setuptools: list[PipPackage]) -> None:
    lock = locked(pip=with_setuptools)
    build(yard, lock, variant(), directory="one")
    wheel = next(yard.cache.glob("wheels/??/*/*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-100])
    assert audit(yard) == [f"{wheel} has changed"]
    record = build(yard, lock, variant(), directory="two")
    assert compilations(record.path) == 1 and audit(yard) == []


def test_a_rebuild_compiles_what_the_cache_has(yard: Yard, with_setuptools: list[PipPackage]) -> None:
    lock = locked(pip=with_setuptools)
    assert compilations(build(yard, lock, variant(), directory="one").path) == 1
    assert compilations(build(yard, lock, variant(), directory="two").path) == 0
    assert compilations(build(yard, lock, variant(), directory="three", rebuild=True).path) == 1 and audit(yard) == []


def test_variables_of_the_callers_shell_do_not_reach_the_build(
    yard: Yard, with_setuptools: list[PipPackage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXT_ANSWER", "99")
    record = build(yard, locked(pip=with_setuptools), variant())
    assert run(record.prefix, "import cext; print(cext.answer())") == "1"
    asked = build(
        yard, locked(pip=with_setuptools), variant(variables={"EXT_ANSWER": "{env:EXT_ANSWER}"}), directory="b"
    )
    assert run(asked.prefix, "import cext; print(cext.answer())") == "99"


def _module(directory: Path) -> None:
    directory.mkdir()
    text = "#%Module\nsetenv EXT_ANSWER_OF_SITE 55\nprepend-path PATH /nowhere/site/bin\n"
    (directory / "sitetools").write_text(text)


def test_host_modules_are_loaded_while_building(
    yard: Yard, tmp_path: Path, with_setuptools: list[PipPackage], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stackyard.host.machine.modules import module_systems

    if not module_systems():
        pytest.skip("no module system found")
    _module(tmp_path / "modules")
    monkeypatch.setenv("MODULEPATH", str(tmp_path / "modules"))
    spec = variant(variables={"EXT_ANSWER": "{env:EXT_ANSWER_OF_SITE}"}, modules=("sitetools",))
    record = build(yard, locked(pip=with_setuptools), spec)
    assert run(record.prefix, "import cext; print(cext.answer())") == "55"
    with pytest.raises(StackyardError, match="not-there"):
        build(yard, locked(pip=with_setuptools), variant(modules=("not-there",)), directory="other")


def test_a_tool_that_a_conda_package_brings(yard: Yard, tmp_path: Path, cext: PipPackage) -> None:
    tool = Package("cmake-of-ours", "2.0", files={"bin/cmake-of-ours": ("#!/bin/sh\necho version 2.0.1\n", 0o755)})
    from buildbed import conda_packages

    conda = conda_packages(make_channel(tmp_path / "ch", [tool]))
    text = "from setuptools import setup\nsetup(name='cext', version='1.0')\n"
    plain = sdist(tmp_path / "plain", {"setup.py": text})
    how = PackageBuild(isolation=True)
    record = build(yard, locked(conda, [plain]), variant(how, tools=(HostTool(name="cmake-of-ours", version="2"),)))
    assert record.tools["cmake-of-ours"] == {"path": f"{record.prefix}/bin/cmake-of-ours", "version": "2.0.1"}


OPTIONAL = """
from setuptools import Extension, setup
setup(name="cext", version="1.0", py_modules=["cext_more"], ext_modules=[
    Extension("cext", ["cext.c"], optional=True){more}])
"""
FALLBACK = """
from setuptools import setup
setup(name="cext", version="1.0", py_modules=["cext_more"])
"""
GOOD = ", Extension('good', ['good.c'])"


NEEDED = ("setuptools", "wheel", "packaging")


def incomplete(directory: Path, wheelhouse: dict[str, PipPackage], setup: str) -> LockedVariant:
    good = CODE.replace("PyInit_cext", "PyInit_good").replace("ANSWER", "1").replace("PREFIX", '""')
    files = {"setup.py": setup, "cext.c": "#error no way\n", "good.c": good, "cext_more.py": "WORD = 1\n"}
    return locked(pip=[*(wheelhouse[name] for name in NEEDED), sdist(directory, files)])


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (OPTIONAL.format(more=GOOD), 'its build went on without an extension: .*building extension "cext" failed'),
        (FALLBACK, r"nothing was compiled, though its source has cext\.c"),
    ],
)
def test_a_wheel_that_lacks_an_extension_is_refused(
    yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage], setup: str, reason: str
) -> None:
    with pytest.raises(StackyardError, match=rf"compiling cext 1\.0 made cext-1\.0-.*whl: {reason}") as caught:
        build(yard, incomplete(tmp_path / "src", wheelhouse, setup), variant())
    assert "`incomplete: true`" in (caught.value.hint or "")
    assert ("no way" in (caught.value.detail or "")) == ("failed" in reason)
    assert not list(yard.cache.glob("wheels/??/*/*.whl")), "it is not kept"


def test_a_wheel_that_lacks_an_extension_is_accepted_on_request_and_reported(
    yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage]
) -> None:
    lock = incomplete(tmp_path / "src", wheelhouse, OPTIONAL.format(more=""))
    for directory in ("compiled", "from the cache"):
        record = build(yard, lock, variant(PackageBuild(incomplete=True)), directory=directory)
        assert run(record.prefix, "import cext_more; print(cext_more.WORD)") == "1"
        assert any(text.startswith("cext 1.0: its build went on without") for text in record.notices)
    assert compilations(record.path) == 0
    with pytest.raises(StackyardError, match="went on without an extension"):
        build(yard, lock, variant(), directory="required")


def test_the_copy_is_compared_with_the_lock(
    yard: Yard, tmp_path: Path, wheelhouse: dict[str, PipPackage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that is edited while it is copied, and edited back, is not built as what was locked."""
    project = tmp_path / "mine"
    project.mkdir()
    (project / "setup.py").write_text("from setuptools import setup\nsetup(name='mine', version='3')\n")
    package = PipPackage("mine", "3", "path", project.as_uri(), sha256_tree(project))
    original = (project / "setup.py").read_text()

    def edited_meanwhile(path: Path, target: Path, **options: bool) -> None:
        path.write_text(original + "# something else\n")
        shutil.copy2(path, target, **options)
        path.write_text(original)

    monkeypatch.setattr(source, "shutil", SimpleNamespace(copy2=edited_meanwhile))
    with pytest.raises(StackyardError, match="changed after it was locked"):
        build(yard, locked(pip=[wheelhouse["setuptools"], package]))
