"""stack.yaml: the matrix, conditions, names, imports, and what a variant ends up with."""

from __future__ import annotations

import os
import re
from datetime import date
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, ManyErrors
from stackyard.host.run import clock
from stackyard.inputs.models import Site, Stack
from stackyard.inputs.stacks import matrix
from stackyard.inputs.stacks.stack import stack_from_file


@pytest.fixture
def read(tmp_path: Path):
    def make(text: str, file: str = "stack.yaml", **options) -> Stack:
        directory = tmp_path / "mystack"
        directory.mkdir(exist_ok=True)
        (directory / file).write_text(text)
        return stack_from_file(directory / file, options.pop("site", Site()), **options)

    return make


def problems(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    found = error.value.problems if isinstance(error.value, ManyErrors) else [error.value]
    return [f"{os.path.basename(p.where.file) if p.where else ''}{str(p).removeprefix(p.where.file if p.where else '')}"
            f" | {p.hint}" for p in found]  # fmt: skip


def specs(stack: Stack) -> dict[str, list[str]]:
    return {f"{v.version}-{v.name}": [c.spec for c in v.environment.conda] for v in stack.variants}


# --------------------------------------------------------------------------- the smallest files


def test_smallest(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "today", lambda: date(2026, 2, 3))
    stack = read("environment: {dependencies: [python=3.11, numpy]}\n")
    (variant,) = stack.variants
    assert (stack.name, stack.dated, stack.kind) == ("mystack", True, "stack")
    assert variant.version == "2026.02.03"
    assert variant.name == "py311"
    assert variant.files == (stack.file,)
    assert not variant.notices


@pytest.mark.parametrize(
    ("options", "name", "version", "dated"),
    [
        ({}, "given", "1.10", False),
        ({"name": "other"}, "other", "1.10", False),
        ({"version": "2"}, "given", "2", False),
        ({"name": "my stack!"}, "my-stack", "1.10", False),
    ],
)
def test_name_and_version(read, options, name, version, dated) -> None:
    stack = read("name: given\nversion: 1.10\nenvironment: {dependencies: ['numpy={version}']}\n", **options)
    assert (stack.name, stack.variants[0].version, stack.dated) == (name, version, dated)
    assert stack.variants[0].environment.conda[0].spec == f"numpy {version}.*"
    assert bool(stack.variants[0].notices) == (options.get("name") == "my stack!")


# --------------------------------------------------------------------------- the matrix


def test_product_exclude_include_in_order(read) -> None:
    stack = read(
        """
name: powerai
versions: ["1.6", 1.7]
matrix:
  python: [2.7, 3.6]
  accelerator: [none, cuda]
  exclude:
    - {version: "1.7", python: 2.7}
    - {version: "1.6", accelerator: cuda}
  include:
    - {version: "1.6", python: 3.8, accelerator: rocm, variant: py38-test}
environment: {dependencies: ["python={python}"]}
"""
    )
    assert [f"{v.version}-{v.name}" for v in stack.variants] == [
        "1.6-py27", "1.6-py36", "1.6-py38-test", "1.7-py36", "1.7-py36-cuda",
    ]  # fmt: skip
    assert stack.variants[2].axes == {"python": "3.8", "accelerator": "rocm"}


@pytest.mark.parametrize(
    "axis",
    [
        'python: {"1": [3.9], "2": [3.10, 3.11]}',
        'python: {"*": [3.10, 3.11], "1": [3.9]}',
        "python:\n    - 3.9   # [version == '1']\n    - 3.10  # [version == '2']\n    - 3.11  # [version == '2']",
        "python:\n    - if: version == '1'\n      then: 3.9\n      else: [3.10, 3.11]",
    ],
)
def test_axis_depends_on_version(read, axis) -> None:
    stack = read(f"versions: [1, 2]\nmatrix:\n  {axis}\nenvironment: {{dependencies: [pip]}}\n")
    assert [(v.version, v.name) for v in stack.variants] == [("1", "py39"), ("2", "py310"), ("2", "py311")]


def test_axis_depends_on_axis(read) -> None:
    stack = read(
        """
version: 1
matrix:
  python: [3.9, 3.12]
  mpi:
    - openmpi
    - mpich     # [python == '3.12']
environment: {dependencies: [numpy]}
"""
    )
    assert [v.name for v in stack.variants] == ["py39-openmpi", "py312-openmpi", "py312-mpich"]


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("", ["py311-openmpi", "py312-openmpi"]),
        ("'{python}'", ["py311", "py312"]),
        ("'{mpi}-{python}-x'", ["openmpi-py311-x", "openmpi-py312-x"]),
    ],
)
def test_variant_template(read, template, names) -> None:
    text = f"version: 1\nmatrix: {{python: [3.11, 3.12], mpi: [openmpi]}}\nvariant: {template}\n"
    assert [v.name for v in read(text + "environment: {dependencies: [numpy]}\n").variants] == names


def test_template_and_an_included_point_without_the_axis(read) -> None:
    stack = read(
        "versions: [1]\nmatrix: {python: [3.9], mpi: [mpich], include: [{version: 1, python: 3.10}]}\n"
        "variant: '{python}-{mpi}'\nenvironment:\n  dependencies:\n    - own  # [mpi]\n    - a\n"
    )
    assert [v.name for v in stack.variants] == ["py39-mpich", "py310"]
    assert [len(v.environment.conda) for v in stack.variants] == [3, 2]


def test_no_name_for_variants(read) -> None:
    stack = read("versions: [1, 2]\nvariant: none\nenvironment: {dependencies: [python=3.9]}\n")
    assert [(v.version, v.name) for v in stack.variants] == [("1", ""), ("2", "")]


def test_two_variants_of_one_name(read) -> None:
    with pytest.raises(InputError, match=r"two variants have the same name s/1-x.*: .*python 3.9.*python 3.10"):
        read("name: s\nversion: 1\nmatrix: {python: [3.9, 3.10]}\nvariant: x\nenvironment: {dependencies: [a]}\n")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("{prefix: [a]}", "'prefix' cannot be an axis"),
        ("{python: [[a]]}", "a value must be one word"),
        ("{python: [3.9, 3.9]}", "exists twice"),
        ("{python: [3.9], exclude: [{pyton: 3.9}]}", "'pyton' is not an axis | did you mean 'python'?"),
        ("{python: [3.9], exclude: [{variant: x}]}", "'variant' is not an axis"),
        ("{python: [3.9], include: [{version: 1, python: [3.8]}]}", "expected one value"),
        ("{python: [3.9], include: [{version: 7, python: 3.10}]}", "no such version: 7"),
        ("{python: [3.9], exclude: [{python: 3.9}]}", "the matrix is empty: all points are excluded"),
        ("{python: [3.9], exclude: [{python: 3.8}]}", "stack.yaml:2:35: matrix: this exclude matches no point"),
        ("[3.9]", "expected a mapping"),
    ],
)
def test_wrong_matrix(read, matrix, message) -> None:
    with pytest.raises(InputError) as error:
        read(f"version: 1\nmatrix: {matrix}\nenvironment: {{dependencies: [a]}}\n")
    assert any(message in line for line in problems(error)), problems(error)
    assert all(line.startswith("stack.yaml:2:") or "the matrix is empty" in line for line in problems(error))


def test_an_included_point_has_the_version_of_a_file_with_one(read) -> None:
    text = "matrix: {python: [3.9], include: [{python: 3.10, variant: py310-test}]}\nenvironment: {dependencies: [a]}\n"
    for head, dated in (("version: 1\n", False), ("", True)):
        stack = read(head + text)
        assert [v.name for v in stack.variants] == ["py39", "py310-test"] and stack.dated == dated
        assert len({v.version for v in stack.variants}) == 1
    with pytest.raises(InputError, match="an included point must have a version"):
        read(f"versions: [1, 2]\n{text}")


def test_too_many_points_are_noticed_before_they_are_made(read, monkeypatch) -> None:
    asked: list[str] = []

    def many(axis: str, *_: object) -> list[str]:
        asked.append(axis)
        return [str(n) for n in range(matrix.MOST_POINTS)]

    monkeypatch.setattr(matrix, "values", many)
    with pytest.raises(InputError) as error:
        read("versions: [1, 2]\nmatrix: {a: [1], b: [1], c: [1]}\nenvironment: {dependencies: [a]}\n")
    assert any("more than 1000 variants of a version" in line for line in problems(error))
    assert asked == ["a", "b", "b"]


def test_the_points_of_all_versions_are_bounded_too(read, monkeypatch) -> None:
    monkeypatch.setattr(matrix, "MOST_IN_ALL", 5)
    with pytest.raises(InputError) as error:
        read("versions: [1, 2, 3]\nmatrix: {a: [1, 2]}\nenvironment: {dependencies: [a]}\n")
    assert any("more than 5 variants" in line for line in problems(error))


# --------------------------------------------------------------------------- conditions


CONDITIONAL = """
version: 1
matrix: {accelerator: [cpu, cuda]}
environment:
  channels:
    - nvidia              # [accelerator == 'cuda']
    - conda-forge
  dependencies:
    - gdb                 # [linux64 and accelerator == 'cuda']
    - nccl                # [accelerator == 'cuda']
    - mold                # [ppc64le]
    - if: accelerator == 'cuda'
      then: [cudnn, cupti]
      else: mkl           # [linux64]
    - if: aarch64
      then:
        - pip:
            - arm-only
    - pip:
        - cupy            # [accelerator == 'cuda']
build:
  variables:
    USE_CUDA: 1           # [accelerator == 'cuda']
  tools:
    - nvcc >=11           # [accelerator == 'cuda']
"""


def test_conditions(read) -> None:
    cpu, cuda = read(CONDITIONAL).variants
    assert [(c.spec, c.selector) for c in cpu.environment.conda] == [("mold", "ppc64le"), ("mkl", "linux64")]
    assert [(c.spec, c.selector) for c in cuda.environment.conda] == [
        ("gdb", "linux-64"), ("nccl", ""), ("mold", "ppc64le"), ("cudnn", ""), ("cupti", ""),
    ]  # fmt: skip
    assert (cpu.environment.channels, cuda.environment.channels) == (("conda-forge",), ("nvidia", "conda-forge"))
    assert [(p.line, p.selector) for p in cpu.environment.pip] == [("arm-only", "aarch64")]
    assert [p.line for p in cuda.environment.pip] == ["arm-only", "cupy"]
    assert (cpu.build.tools, cpu.build.variables) == ((), {})
    assert [(t.name, t.version) for t in cuda.build.tools] == [("nvcc", ">=11")]
    assert cuda.build.variables == {"USE_CUDA": "1"}


def test_conditions_in_a_file_that_is_referred_to(read, tmp_path: Path) -> None:
    (tmp_path / "mystack").mkdir()
    (tmp_path / "mystack/env.yml").write_text("dependencies:\n  - nccl  # [accelerator == 'cuda']\n  - numpy\n")
    stack = read("version: 1\nmatrix: {accelerator: [cpu, cuda]}\nenvironment: env.yml\n")
    assert specs(stack) == {"1-cpu": ["numpy"], "1-cuda": ["nccl", "numpy"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nccl  # [acelerator == 'cuda']", "did you mean 'accelerator'"),
        ("nccl  # [linux64 and acelerator == 'cuda']", "did you mean 'accelerator'"),
        ("{if: accelerator ==, then: a}", "is not a selector"),
        ("{if: linux, them: a}", "did you mean 'then'"),
    ],
)
def test_wrong_condition(read, line, message) -> None:
    with pytest.raises(InputError) as error:
        read(f"matrix: {{accelerator: [cuda]}}\nenvironment:\n  dependencies:\n    - {line}\n")
    (found,) = problems(error)
    assert message in found
    assert found.startswith("stack.yaml:4:")


def test_condition_on_the_platform_outside_the_environment(read) -> None:
    with pytest.raises(InputError, match="tests the platform, which build does not depend on") as error:
        read("environment: {dependencies: [a]}\nbuild:\n  tools:\n    - nvcc  # [ppc64le]\n")
    assert error.value.where and error.value.where.line == 4


def test_comment_in_brackets_that_is_no_condition(read) -> None:
    stack = read("environment:\n  dependencies:\n    - numpy  # as always [sic]\n")
    assert stack.variants[0].environment.conda[0].spec == "numpy"


# --------------------------------------------------------------------------- names in strings


def test_names(read) -> None:
    stack = read(
        """
name: s
version: 2.13
matrix: {python: [3.10], mpi: [openmpi]}
summary: "{name} {version} for Python {python}"
environment:
  dependencies: ["python={python}", "horovod={version}=*_{mpi}"]
  variables: {HERE: "{prefix}/share", SHELL_WORD: "${HOME}"}
variables: {PY: "{python}"}
build:
  variables: {PYTHON: "{python}", FOR: "{axis.python}", HOME_OF: "{env:CUDA_HOME}", J: "-j{ncores}", "P": "{prefix}"}
checks:
  - run: ["{python}", -c, "print('{mpi}')"]
    name: python {python}
    expect: "\\\\d{1,3}"
  - python: |
      print(f"{undefined}")
"""
    )
    (variant,) = stack.variants
    assert variant.summary == "s 2.13 for Python 3.10"
    assert [c.spec for c in variant.environment.conda] == ["python 3.10.*", "horovod ==2.13 *_openmpi"]
    assert variant.environment.variables == {"HERE": "{prefix}/share", "SHELL_WORD": "${HOME}"}
    assert variant.run_variables == {"PY": "3.10"}
    assert variant.build.variables == {
        "PYTHON": "{python}", "FOR": "3.10", "HOME_OF": "{env:CUDA_HOME}", "J": "-j{ncores}", "P": "{prefix}",
    }  # fmt: skip
    assert variant.checks[0].run == ("{python}", "-c", "print('openmpi')")
    assert variant.checks[0].name == "python 3.10"
    assert variant.checks[0].expect == r"\d{1,3}"
    assert variant.checks[1].python == 'print(f"{undefined}")\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("summary: 'for {pyhton}'", "{pyhton} is not an axis of the matrix | did you mean 'python'?"),
        ("summary: 'in {prefix}'", "{prefix} is not available here"),
        ("variables: {A: '{env:HOME}'}", "{env:HOME} is not available here"),
        ("build: {variables: {A: '{mpi}'}}", "{mpi} is not an axis of the matrix"),
    ],
)
def test_unknown_name(read, line, message) -> None:
    with pytest.raises(InputError) as error:
        read(f"matrix: {{python: [3.10, 3.11]}}\n{line}\nenvironment: {{dependencies: [a]}}\n")
    (found,) = problems(error)  # once, though two variants have it
    assert message in found
    assert found.startswith("stack.yaml:2:")


# --------------------------------------------------------------------------- Python


@pytest.mark.parametrize(
    ("dependencies", "more", "name"),
    [
        ("[python=3.11, numpy]", "", "py311"),
        ("[python=3.11.7]", "", "py311"),
        ("['python ==3.9']", "", "py39"),
        ("['python 3.12.*']", "", "py312"),
        ("['python >=3.9,<3.12']", "", "py3"),
        ("[python=3]", "", "py3"),
        ("['python <3']", "", "py2"),
        ("[python]", "", "py3"),
        ("[r-base]", "", "default"),
        ("[{pip: [numpy]}]", "", "py3"),
        ("[{pip: [numpy]}]", "python: 3.10", "py310"),
        ("[{pip: [numpy]}]", "interpreter: {source: uv, version: 3.12}", "py312"),
        ("[numpy]", "python: 3.10", "py310"),
    ],
)
def test_variant_is_named_after_the_python(read, dependencies, more, name) -> None:
    assert read(f"environment: {{dependencies: {dependencies}}}\n{more}\n").variants[0].name == name


def test_python_axis_is_added_to_a_conda_part(read) -> None:
    stack = read("version: 1\nmatrix: {python: [3.10]}\nenvironment: {dependencies: [numpy]}\n")
    assert specs(stack) == {"1-py310": ["python 3.10.*", "numpy"]}
    assert "python=3.10 is added to the conda part" in stack.variants[0].notices


def test_python_axis_is_the_interpreter_of_a_pip_part(read) -> None:
    (variant,) = read("matrix: {python: [3.10]}\nenvironment: {dependencies: [{pip: [numpy]}]}\n").variants
    assert variant.interpreter.version == "3.10"
    assert not variant.environment.conda


def test_python_other_than_the_axis(read) -> None:
    with pytest.raises(InputError, match=r"py310 is for Python 3.10, but its environment requires 3.11"):
        read("matrix: {python: [3.10]}\nenvironment: {dependencies: [python=3.11]}\n")


@pytest.mark.parametrize("how", ["matrix: {python: [2.7]}", "python: 2.7", "interpreter: {version: 2.7}"])
def test_python_2_with_pip(read, how) -> None:
    with pytest.raises(InputError, match=r"py27 is for Python 2 and has pip packages \(six") as error:
        read(f"{how}\nenvironment:\n  dependencies:\n    - pip:\n        - six\n")
    assert error.value.where and error.value.where.line == 5
    assert "uv" in (error.value.hint or "")


def test_python_2_without_pip(read) -> None:
    stack = read(
        "matrix: {python: [2.7, 3.9]}\nenvironment:\n  dependencies:\n    - numpy\n"
        "    - pip:\n        - six  # [python != '2.7']\n"
    )
    assert [len(v.environment.pip) for v in stack.variants] == [0, 1]


# --------------------------------------------------------------------------- parts and references


def test_files_are_found_beside_the_stack(read, tmp_path: Path) -> None:
    directory = tmp_path / "mystack"
    directory.mkdir()
    for name in ("fix.patch", "post.sh", "licence.txt", "check.py", "more.txt"):
        (directory / name).write_text("numpy\n" if name == "more.txt" else "")
    stack = read(
        """
environment: [{dependencies: [python=3.11]}, more.txt]
post: post.sh
build: {packages: {horovod: {patches: [fix.patch], requires: [wheel]}}}
checks: [{script: check.py}, "python --version", {name: three, run: "echo 'a b'", timeout_min: 0.5}]
licences: [{name: L, text: licence.txt}, plain]
"""
    )
    (variant,) = stack.variants
    assert variant.post == str(directory / "post.sh")
    assert variant.build.packages["horovod"].patches == (str(directory / "fix.patch"),)
    assert [c.name for c in variant.checks] == ["check.py", "python --version", "three"]
    assert variant.checks[0].script == str(directory / "check.py")
    assert variant.checks[2].run == ("echo", "a b")
    assert variant.checks[2].timeout_min == 0.5
    assert [(each.name, each.text) for each in variant.licences] == [
        ("L", str(directory / "licence.txt")),
        ("plain", ""),
    ]
    assert {Path(f).name for f in variant.files} == {
        "stack.yaml", "more.txt", "fix.patch", "post.sh", "licence.txt", "check.py",
    }  # fmt: skip
    assert [p.line for p in variant.environment.pip] == ["numpy"]


def test_missing_files_are_all_reported(read) -> None:
    with pytest.raises(ManyErrors) as error:
        read("environment: gone.yml\npost: gone.sh\nchecks: [{script: gone.py}]\n")
    assert [line.split(":")[1] for line in problems(error)] == ["1", "2", "3"]


def test_environment_is_chosen_by_axis(read, tmp_path: Path) -> None:
    (tmp_path / "mystack").mkdir()
    for name in ("cpu", "cuda"):
        (tmp_path / f"mystack/env-{name}.yml").write_text(f"dependencies: [torch-{name}]\n")
    stack = read("version: 1\nmatrix: {accelerator: [cpu, cuda]}\nenvironment: 'env-{accelerator}.yml'\n")
    assert specs(stack) == {"1-cpu": ["torch-cpu"], "1-cuda": ["torch-cuda"]}


def test_pip_index_of_a_package(read) -> None:
    text = "environment: {{dependencies: [{{pip: [Torch_Vision, numpy]}}]}}\npip: {{indexes: {{{}: 'https://x/simple'}}}}\n"
    requirements = read(text.format("torch-vision")).variants[0].environment.pip
    assert [p.index for p in requirements] == ["https://x/simple", ""]
    with pytest.raises(InputError, match=r"trch is not a pip requirement of this stack"):
        read(text.format("trch"))


def test_default(read) -> None:
    text = "version: 1\nmatrix: {{python: [3.10, 3.11]}}\ndefault: {}\nenvironment: {{dependencies: [a]}}\n"
    assert read(text.format("py310")).default == "py310"
    with pytest.raises(InputError, match="no such variant: py39"):
        read(text.format("py39"))


def test_asked_version(read) -> None:
    text = "versions: [1.0, 2.0]\nenvironment: {dependencies: [python=3.9]}\n"
    assert [v.version for v in read(text, version="1.0").variants] == ["1.0"]
    with pytest.raises(InputError, match=r"no such version: 3\.0"):
        read(text, version="3.0")


def test_asked_version_of_a_matrix_that_names_others(read) -> None:
    text = """
versions: [1.0, 2.0, 3.0]
matrix:
  python: [3.9, 3.10]
  exclude: [{version: [1.0, 2.0], python: 3.10}]
  include: [{version: [2.0, 3.0], python: 3.11}]
environment: {dependencies: [a]}
"""
    assert [f"{v.version}-{v.name}" for v in read(text).variants] == [
        "1.0-py39", "2.0-py39", "2.0-py311", "3.0-py39", "3.0-py310", "3.0-py311",
    ]  # fmt: skip
    assert [v.name for v in read(text, version="2.0").variants] == ["py39", "py311"]


# --------------------------------------------------------------------------- imports


BASE = """
name: base
version: 7
matrix: {python: [3.10, 3.11]}
environment:
  channels: [base-channel]
  dependencies: ["python={python}", "base={version}"]
variables: {FROM_BASE: "1", BOTH: base}
build:
  tools: [cmake >=3, g++]
  modules: [gcc]
  variables: {A: base, B: base}
checks: ["base-check"]
licences: [base-licence]
max_nodes: {count: 4, reason: it ends there}
modules: {depends_on: [cuda]}
"""


def test_imports(read, tmp_path: Path) -> None:
    (tmp_path / "mystack").mkdir()
    (tmp_path / "mystack/base.yaml").write_text(BASE)
    stack = read(
        """
version: 1
matrix: {python: [3.11], mpi: [openmpi]}
imports: [base.yaml]
environment: {channels: [own], dependencies: [horovod]}
variables: {BOTH: own}
build: {tools: [cmake >=3.20], modules: [openmpi], variables: {A: own}}
checks: [own-check]
"""
    )
    (variant,) = stack.variants
    assert variant.name == "py311-openmpi"
    assert variant.environment.channels == ("own", "base-channel")
    assert [c.spec for c in variant.environment.conda] == ["horovod", "python 3.11.*", "base 7.*"]
    assert variant.run_variables == {"FROM_BASE": "1", "BOTH": "own"}
    assert [(t.name, t.version) for t in variant.build.tools] == [("cmake", ">=3.20"), ("g++", "")]
    assert variant.build.modules == ("gcc", "openmpi")
    assert variant.build.variables == {"A": "own", "B": "base"}
    assert [c.name for c in variant.checks] == ["base-check", "own-check"]
    assert variant.max_nodes is not None and variant.max_nodes.reason == "it ends there"
    assert [each.name for each in variant.licences] == ["base-licence"]
    assert variant.modules.depends_on == ("cuda",)
    assert [Path(f).name for f in variant.files] == ["stack.yaml", "base.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("matrix: {python: [3.9]}\nimports: [base.yaml]\n", "base.yaml has python 3.10, 3.11, not 3.9"),
        ("imports: [base.yaml]\n", "base.yaml has python 3.10, 3.11, not without a value"),
        ("imports: [gone.yaml]\n", "stack.yaml:1:11: no such file:"),
        (f"imports: [{'long' * 64}]\n", "stack.yaml:1:11: cannot look up the file "),
        ("imports: [endless]\n", "endless: Too many levels of symbolic links"),
        ("imports: [~nobody-of-this-name/a.yaml]\n", "stack.yaml:1:11: no such file:"),
        ("imports: [many.yaml]\n", "many.yaml has the versions 1, 2: choose one"),
        ("imports: [{file: many.yaml, version: 3}]\n", "no such version of many.yaml: 3"),
        ("imports: [self.yaml]\n", "self.yaml imports self.yaml"),
        ("imports: [loop.yaml]\n", "stack.yaml imports loop.yaml imports stack.yaml"),
    ],
)
def test_wrong_import(read, tmp_path: Path, text, message) -> None:
    (tmp_path / "mystack").mkdir()
    for name, content in {
        "base.yaml": BASE,
        "many.yaml": "versions: [1, 2]\nenvironment: {dependencies: [python]}\n",
        "self.yaml": "version: 1\nimports: [self.yaml]\nenvironment: {dependencies: [python]}\n",
        "loop.yaml": "version: 1\nimports: [stack.yaml]\nenvironment: {dependencies: [python]}\n",
    }.items():
        (tmp_path / "mystack" / name).write_text(content)
    (tmp_path / "mystack/endless").symlink_to("endless")
    with pytest.raises(InputError) as error:
        read(f"{text}environment: {{dependencies: [a]}}\n")
    assert any(message in line for line in problems(error)), problems(error)


@pytest.mark.parametrize("key", ["post", "environment"])
@pytest.mark.parametrize(
    ("path", "message"),
    [("~nobody-of-this-name/a", "no such file: "), ("a" * 256, "cannot look up the file ")],
)
def test_a_file_that_cannot_be_there(read, key: str, path: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(f"version: 1\n{key}: {path}\n")
    assert [line for line in problems(error) if f"stack.yaml:2:{len(key) + 3}: {message}" in line], problems(error)


def test_import_of_one_version(read, tmp_path: Path) -> None:
    (tmp_path / "mystack").mkdir()
    (tmp_path / "mystack/many.yaml").write_text("versions: [1, 2]\nenvironment: {dependencies: ['many={version}']}\n")
    stack = read("version: 9\nimports: [{file: many.yaml, version: 2}]\nenvironment: {dependencies: [own]}\n")
    assert specs(stack) == {"9-default": ["own", "many 2.*"]}


# --------------------------------------------------------------------------- errors


def test_every_problem_at_once_with_its_place(read) -> None:
    with pytest.raises(ManyErrors) as error:
        read(
            """name: s
sumary: x
environment:
  dependencies: [a]
build:
  tool: [nvcc]
  packages:
    horovod:
      no_binry: true
      isolation: maybe
checks:
  - {name: nothing}
  - run: [a]
    timeout_min: long
modules:
  conflict: openmpi
interpreter: {source: connda}
platforms: [linux-64, osx-64]
"""
        )
    assert problems(error) == [
        "stack.yaml:2:1: unknown key 'sumary' | did you mean 'summary'?",
        "stack.yaml:6:3: unknown key 'tool' in build | did you mean 'tools'?",
        "stack.yaml:9:7: unknown key 'no_binry' in build.packages.horovod | did you mean 'no_binary'?",
        "stack.yaml:10:18: build.packages.horovod.isolation: expected true or false, found 'maybe'"
        " | write true or false",
        "stack.yaml:12:5: checks.0: a check must have exactly one of run, python and script; found none | None",
        "stack.yaml:14:18: checks.1.timeout_min: expected a number, found 'long'"
        " | write it without a unit: the unit is in the key's name",
        "stack.yaml:16:13: modules.conflict: expected a list, found 'openmpi'"
        " | write each value on its own line after `- `, or [a, b]",
        "stack.yaml:17:23: interpreter.source: 'connda' is not one of auto, conda, uv, host | did you mean 'conda'?",
        "stack.yaml:18:23: platforms.1: 'osx-64' is not one of linux-64, linux-aarch64, linux-ppc64le"
        " | allowed: linux-64, linux-aarch64, linux-ppc64le",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dependencies: [numpy]\n", "stack.yaml:1:1: unknown key 'dependencies' | write it under `environment:`"),
        ("- a\n", "stack.yaml:1:1: a stack must be a mapping"),
        ("# nothing\n", "a stack must be a mapping"),
        (
            "environment: {dependencis: [a]}\n",
            "unknown key 'dependencis' in environment | did you mean 'dependencies'?",
        ),
        ("environment: {dependencies: ['numpy [oops']}\n", "'numpy [oops' is not a conda package spec"),
        ("version: 1\nversions: [1, 2]\n", "`version` and `versions` are mutually exclusive"),
        ("version: a/b\nenvironment: {dependencies: [a]}\n", "stack.yaml:1:10: 'a/b' is not a valid module version"),
        ("variant: '{mpi}'\nenvironment: {dependencies: [a]}\n", "stack.yaml:1:10: variant: {mpi} is not an axis"),
        ("name: s\nversion: 1\n", "the variant py3 has no packages"),
        ("name: '!'\nenvironment: {dependencies: [a]}\n", "'!' is not a valid module name"),
        ("environment: {dependencies: [a], platforms: [osx-64]}\n", "unsupported platform: only for osx-64"),
    ],
)
def test_errors(read, text, message) -> None:
    with pytest.raises(InputError) as error:
        read(text)
    assert any(message in line for line in problems(error)), problems(error)
    assert not any(re.search("pydantic|validation error", line) for line in problems(error))
    assert error.value.exit_code == 2
