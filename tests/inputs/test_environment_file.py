"""environment.yml: every form of every section, each with its place, and what conda refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import InputError, ManyErrors
from stackyard.inputs.conda.environment import channels_for, parse_environment
from stackyard.inputs.load import kind_of, load_environment
from stackyard.inputs.models import Environment
from stackyard.inputs.parsed import parsed_json
from stackyard.inputs.reading.yamlfile import parse_yaml

DATA = Path(__file__).parents[1] / "data" / "env"


def load(tmp_path: Path, text: str, **options: bool) -> Environment:
    path = tmp_path / "environment.yml"
    path.write_bytes(text.encode())
    return load_environment(path, **options)


def refused(tmp_path: Path, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "a: *{}", "a: !{} 1", "a: {{{{ {} }}}}", "{}: 1\n{}: 2", "channels: ['${{{}}}/a']", "platforms: [{}]",
        "dependencies: ['{}=']", "dependencies: [{}: a]", "dependencies: [a, pip: [{}: a]]",
        "dependencies: ['a[{}=1]']",
    ],
)  # fmt: skip
def test_long_words_are_not_quoted_whole(tmp_path: Path, text: str) -> None:
    try:
        said = list(load(tmp_path, text.replace("{}", "x" * 990).replace("{{", "{").replace("}}", "}") + "\n").notices)
    except ManyErrors as error:
        said = [f"{problem.message}{problem.hint}" for problem in error.problems]
    except InputError as error:
        said = [f"{error.message}{error.hint}"]
    assert said
    assert max(map(len, said)) < 900


def test_every_section(tmp_path: Path) -> None:
    environment = load_environment(DATA / "everything.yml")
    assert environment.name == "everything"
    assert environment.prefix == "/home/somebody/envs/everything"
    assert environment.channels == (
        "conda-forge",
        "nvidia/label/cuda-12.4.0",
        "https://host.example/t/${STACKYARD_TEST_TOKEN}/stable",
        "osx-only",
    )
    assert environment.nodefaults
    assert channels_for(environment, "linux-64", {}) == environment.channels[:3]
    assert environment.platforms == ("linux-64", "linux-aarch64")
    assert environment.category == "main"
    assert environment.variables == {"TEXT": "a b", "NUMBER": "3", "YES": "yes", "TRUE": "True", "EMPTY": ""}
    assert [requirement.spec for requirement in environment.conda] == [
        "python 3.11.*",
        "numpy >=1.26,<2",
        "conda-forge::mpi4py 4.* *mpich*",
        "pytorch >=2.7 cuda12*",
        "gdb",
        "valgrind",
        "strace",
        "pip",
    ]
    selectors = {requirement.name: requirement.selector for requirement in environment.conda if requirement.selector}
    assert selectors == {"gdb": "linux64", "valgrind": "linux", "strace": "linux"}
    assert [requirement.line for requirement in environment.pip] == ["psutil>=5", "rich", "httpx[http2]"]
    assert environment.pip[0].selector == "linux-64 or aarch64"
    assert environment.pip_options.extra_index_urls == ("https://host.example/simple",)


def test_notices_say_what_was_not_used_or_only_sometimes(tmp_path: Path) -> None:
    notices = "\n".join(load_environment(DATA / "everything.yml").notices)
    for words in (
        "prefix /home/somebody/envs/everything is ignored",
        "gdb applies only if linux64",
        "osx-only applies only if osx",
        "needs $STACKYARD_TEST_TOKEN, which is not set here",
        "TRUE is 'True'",
        "unknown key 'chanels' ignored, as by conda; did you mean 'channels'?",
        "the comment [linux and unheard_of] is ignored",
        "`pip:` is not the last entry",
    ):
        assert words in notices


def test_a_pip_section_beside_the_dependencies_is_ignored_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("dependencies: [a]\npip: [b]\n")
    environment = load_environment(tmp_path / "x.yml")
    assert not environment.pip
    assert any(
        "unknown key 'pip' ignored" in text and "entry of `dependencies:`" in text for text in environment.notices
    )


def test_places_are_those_of_the_lines(tmp_path: Path) -> None:
    path = DATA / "everything.yml"
    environment = load_environment(path)
    lines = path.read_text().splitlines()
    for requirement in (*environment.conda, *environment.pip):
        line = lines[requirement.place.line - 1]
        assert line[requirement.place.column - 1 :].lstrip("'\"").startswith(requirement.text.strip()[:4])


@pytest.mark.parametrize("text", ["name: null\ndependencies: []\n", "dependencies:\n", "dependencies: []", "name:\n"])
def test_empty_environments(tmp_path: Path, text: str) -> None:
    environment = load(tmp_path, text)
    assert environment.name is None
    assert environment.conda == environment.pip == ()


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffdependencies:\n- numpy\n",
        "---\ndependencies:\n- numpy\n",
        "dependencies:\r\n  - numpy   \r\n",
        "%YAML 1.2\n---\ndependencies: [numpy]\n...\n",
        "dependencies:\n- &n numpy\n",
        "x: &n numpy\ndependencies:\n- *n\n",
        "base: &b {dependencies: [numpy]}\n<<: *b\n",
        "# a comment {% set x = 1 %} {{ x }}\ndependencies:\n- numpy # {{ x }}\n",
        'dependencies:\n  - "numpy"\n',
        "dependencies:\n\n\n    -   numpy\n",
    ],
)
def test_untidy_yaml(tmp_path: Path, text: str) -> None:
    assert [requirement.name for requirement in load(tmp_path, text).conda] == ["numpy"]


def test_utf16(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_bytes("dependencies: [numpy]\n".encode("utf-16"))
    assert load_environment(path).conda[0].name == "numpy"


def test_two_pip_lists_are_joined(tmp_path: Path) -> None:
    text = "dependencies:\n- pip\n- pip: [a]\n- pip:\n  - b\n- pip:\n"
    environment = load(tmp_path, text)
    assert [requirement.name for requirement in environment.pip] == ["a", "b"]
    assert any("conda keeps only the last" in notice for notice in environment.notices)


def test_pip_alone_needs_no_pip(tmp_path: Path) -> None:
    environment = load(tmp_path, "dependencies:\n- pip:\n  - a\n")
    assert any("pip is not listed as a conda package" in notice for notice in environment.notices)


def test_a_selector_on_the_whole_pip_list_and_lists_of_sel(tmp_path: Path) -> None:
    text = """dependencies:
- pip
- sel(linux): [a, b=1]
- pip:  # [not win]
  - c  # [linux64]
  - d
  - sel(osx): e
"""
    environment = load(tmp_path, text)
    assert [(r.spec, r.selector) for r in environment.conda] == [("pip", ""), ("a", "linux"), ("b 1.*", "linux")]
    assert [(r.name, r.selector) for r in environment.pip] == [
        ("c", "(not win) and (linux64)"),
        ("d", "not win"),
        ("e", "(not win) and (osx)"),
    ]


def test_block_text_in_a_pip_list(tmp_path: Path) -> None:
    text = (
        "dependencies:\n- pip\n- pip:\n  - |\n    a==1\n    # no\n    b==2\n  - c \\\n  - --hash=sha256:"
        + "0" * 64
        + "\n"
    )
    environment = load(tmp_path, text)
    assert [requirement.line for requirement in environment.pip] == ["a==1", "b==2", "c"]
    assert environment.pip[2].hashes == (f"sha256:{'0' * 64}",)


def test_axes_are_selectors_only_where_there_are_axes(tmp_path: Path) -> None:
    text = "dependencies:\n- openmpi  # [mpi == 'openmpi']\n- a  # [py>=38]\n- b # [optional]\n"
    root = parse_yaml(text, "stack.yaml").root
    assert root is not None
    with_axes = parse_environment(root, tmp_path, axes=("mpi", "python"))
    assert [requirement.selector for requirement in with_axes.conda] == ["mpi == 'openmpi'", "py>=38", ""]
    without = parse_environment(root, tmp_path)
    assert [requirement.selector for requirement in without.conda] == ["", "", ""]
    assert any("[py>=38] is ignored" in notice for notice in without.notices)


def test_conda_locks_keys(tmp_path: Path) -> None:
    closed = "allow-pypi-requests: false\ndependencies: []\n"
    options = load(
        tmp_path, f"pip-repositories: [https://$USER_X:pw@h/simple, https://h2/simple]\n{closed}"
    ).pip_options
    assert options.index_url == "https://${USER_X}:pw@h/simple"
    assert options.extra_index_urls == ("https://h2/simple",)
    alone = load(tmp_path, closed)
    assert alone.pip_options.no_index


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("", "", "empty", "dependencies"),
        ("# nothing\n", "", "empty", "dependencies"),
        ("- numpy\n", "1:1", "mapping", "dependencies"),
        ("numpy\n", "1:1", "mapping", "dependencies"),
        ("dependencies: numpy\n", "1:15", "must be a list", "- "),
        ("dependencies:\n  pip: [a]\n", "2:3", "must be a list", "- "),
        ("dependencies:\n- numpy==\n", "2:3", "not a conda package spec", "operators"),
        ("dependencies:\n-\n- a\n", "2:2", "missing package name", "remove"),
        ("dependencies:\n- 1.2\n", "2:3", "not a dependency", "- name"),
        ("dependencies:\n- [a]\n", "2:3", "nested list", "same level"),
        ("dependencies:\n- python: 3.6\n", "2:3", "not a section", "python=3.6"),
        ("dependencies:\n- npm:\n  - left-pad\n", "2:3", "not a section", "pip:"),
        ("dependencies:\n- pip: numpy\n", "2:8", "must be a list", "own"),
        ("dependencies:\n- pip:\n  - 1.2\n", "3:5", "not a pip requirement", "numpy=="),
        ("dependencies:\n- pip:\n  - torch: 1.0\n", "3:5", "mapping", "torch==1.0"),
        ("dependencies:\n- pip:\n  - numpy=1.2\n", "3:5", "no operator `=`", "numpy==1.2"),
        ("dependencies:\n- sel(beos): a\n", "2:3", "'beos'", "linux"),
        ("channels: conda-forge\ndependencies: []\n", "1:11", "must be a list", "[conda-forge]"),
        ("channels: [1]\ndependencies: []\n", "1:12", "name or a URL", "conda-forge"),
        ("platforms: [linux64]\ndependencies: []\n", "1:13", "not a platform", "linux-64"),
        ("variables: [A=1]\ndependencies: []\n", "1:12", "mapping", "NAME: value"),
        ("variables: {A: [1]}\ndependencies: []\n", "1:16", "one value", "quotes"),
        ("variables: {A-B: 1}\ndependencies: []\n", "1:13", "not a variable name", "letters"),
        ("variables: {MODULEPATH: /x}\ndependencies: []\n", "1:13", "it is reserved", "another name"),
        ("name: [a]\ndependencies: []\n", "1:7", "one word", "name: my-name"),
        ("image: x\ncommand: y\n", "1:1", "not an environment file", "dependencies"),
        ("dependancies:\n- numpy\n", "1:1", "unknown key", "dependencies"),
        ("dependencies: [a]\ndependencies: [b]\n", "2:1", "duplicate key", "one of the two"),
        ("dependencies:\n\t- a\n", "2:1", "not valid YAML", "tabs"),
        ("dependencies:\n- a\n---\ndependencies: []\n", "3:1", "another document", "---"),
        ("dependencies:\n  - a\n - b\n", "3:2", "not valid YAML", "indent"),
        ("dependencies:\n- >=1\n", "2:4", "not valid YAML", "quotes"),
        ("dependencies:\n- @a\n", "2:3", "not valid YAML", "quotes"),
        ("dependencies:\n- a: b: c\n", "2:7", "not valid YAML", "quotes"),
        ("dependencies:\n- 'a\n", "3:1", "not valid YAML", "close"),
        ("dependencies:\n- a\n{% if x %}\n- b\n{% endif %}\n", "3:1", "Jinja", "selector"),
        ("dependencies:\n- {{ a }}\n", "2:3", "Jinja", "template"),
        ("dependencies:\n- numpy {{ v }}\n", "2:3", "Jinja", "template"),
        ("dependencies:\n- !x a\n", "2:3", "tag", "without a tag"),
    ],
)
def test_refusals_name_the_place_and_the_remedy(tmp_path: Path, text: str, place: str, message: str, hint: str) -> None:
    error = refused(tmp_path, text)
    assert message in error.message
    assert hint in str(error.hint)
    assert str(error.where) == f"{tmp_path / 'environment.yml'}" + (f":{place}" if place else "")
    assert error.exit_code == 2


def test_all_problems_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "channels: [1]\ndependencies:\n- a==\n- pip:\n  - b=1\n  - --unknown\n- c: 1\nplatforms: [mars]\n"
    error = refused(tmp_path, text)
    assert isinstance(error, ManyErrors)
    assert [problem.where.line for problem in error.problems if problem.where] == [1, 3, 5, 6, 7, 8]
    assert all(problem.hint for problem in error.problems)


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_bytes(b"dependencies:\n- caf\xe9\n")
    with pytest.raises(InputError) as caught:
        load_environment(path)
    assert str(caught.value.where) == f"{path}:2:6"


def test_directories_as_channels_are_urls(tmp_path: Path) -> None:
    environment = load(tmp_path, "channels: [./local, /srv/channel, $HOME/mine, conda-forge]\ndependencies: []\n")
    directory = (tmp_path / "local").as_uri()
    assert environment.channels == (directory, "file:///srv/channel", "$HOME/mine", "conda-forge")


def test_secrets_stay_out_of_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TEST_TOKEN", "s3cret")
    text = (
        "channels: ['https://h/t/${STACKYARD_TEST_TOKEN}/c']\ndependencies:\n- pip\n- pip:\n"
        "  - --index-url https://u:${STACKYARD_TEST_TOKEN}@h/simple\n  - a @ https://u:${STACKYARD_TEST_TOKEN}@h/a.zip\n"
    )
    load(tmp_path, text)
    assert "s3cret" not in str(parsed_json(tmp_path / "environment.yml"))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("environment.yml", "dependencies: [a]\n", "environment"),
        ("stack.yaml", "dependencies: [a]\n", "environment"),
        ("env.yaml", "name: x\nversions: [1]\nenvironment: {dependencies: [a]}\n", "stack"),
        ("stack.yaml", "name: x\n", "stack"),
        ("x.yml", "name: x\n", "environment"),
        ("requirements.txt", "numpy\n", "requirements"),
        ("anything", "# nothing\n", "requirements"),
        ("odd.txt", "channels:\n- a\ndependencies:\n- b\n", "environment"),
        ("x.yml", "dependencies: [a]\nservices: {}\n", "environment"),
        ("requirements.lock", "a==1\nb==2 # c=1=d\n", "requirements"),
        ("kept.txt", "# packages in environment at /e:\na==1\n", "requirements"),
        ("marked.txt", "#!/usr/bin/pip\na==1\n", "requirements"),
        ("edited.txt", "# $ conda create --name <env> --file <this file>\na==1\n", "requirements"),
    ],
)
def test_kinds_are_seen_from_the_content(tmp_path: Path, name: str, text: str, kind: str) -> None:
    (tmp_path / name).write_text(text)
    assert kind_of(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("list.txt", "# x\n@EXPLICIT\nhttps://h/a-1-0.conda\n", "@EXPLICIT"),
        ("conda-lock.yml", "version: 1\nmetadata: {}\npackage: []\n", "conda-lock"),
        ("site.yaml", "nodes: {}\nyard: /x\n", "site.yaml"),
        ("ci.yml", "on: push\njobs: {}\n", "workflow"),
        ("large-lock.yml", "version: 1\nmetadata:\n" + "  a: 1\n" * 60_000 + "package: []\n", "conda-lock"),
        ("pixi.lock", "version: 6\nenvironments:\n" + "  a: 1\n" * 20_000 + "packages: []\n", "pixi.lock"),
        ("deps.yaml", "builder_version: 1\npackages:\n- feedstock: a\n", "Open-CE"),
        ("conda_build_config.yaml", "python: [3.11]\nboost: [1.8]\n", "variants of conda-build"),
        ("meta.yaml", "{% set a = 1 %}\n", "conda-build recipe"),
        ("env.yaml", "image: h/i\nconda_file: conda.yml\n", "Azure"),
        ("python_env.yaml", "python: 3.11\nbuild_dependencies: [pip]\ndependencies: [-r a.txt]\n", "MLflow"),
        ("pyproject.toml", "[project]\n", "Python project"),
        ("other.toml", "[a]\n", "TOML"),
        ("uv.lock", "version = 1\n", "lock of uv"),
        ("build.sh", "pip install a\n", "script"),
        ("postBuild", "#!/bin/sh\npip install a\n", "script"),
        ("12.4", "#%Module1.0\nsetenv A b\n", "modulefile"),
        ("list.txt", "# platform: linux-64\na=1.0=py_0\nb-c=2=pypi_0\n", "conda list --export"),
        ("list.txt", "# packages in environment at /e:\n#\na 1.0 py_0\n", "`conda list`"),
        ("list.txt", "Package Version\n------- -------\na       1.0\n", "`pip list`"),
    ],
)
def test_other_tools_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        kind_of(tmp_path / name)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies: []\n")
    with pytest.raises(InputError) as caught:
        kind_of(tmp_path)
    assert "environment.yml" in str(caught.value.hint)
    with pytest.raises(InputError, match="cannot read"):
        kind_of(tmp_path / "no.yml")
