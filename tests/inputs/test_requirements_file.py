"""pip's requirements format: every line that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import InputError, ManyErrors, Where
from stackyard.inputs.load import load_environment
from stackyard.inputs.models import Environment, PipRequirement
from stackyard.inputs.pip.requirements import read_requirements
from support.webserver import served

SHA = "a" * 64


def load(directory: Path, text: str, **options: bool) -> Environment:
    path = directory / "requirements.txt"
    path.write_text(text)
    return load_environment(path, **options)


def one(directory: Path, text: str) -> PipRequirement:
    environment = load(directory, f"{text}\n")
    assert len(environment.pip) == 1
    return environment.pip[0]


@pytest.mark.parametrize(
    ("text", "line", "kind", "name"),
    [
        ("numpy", "numpy", "name", "numpy"),
        ("numpy >= 1.2 , < 2", "numpy<2,>=1.2", "name", "numpy"),
        ("numpy (>=1.2)", "numpy>=1.2", "name", "numpy"),
        ("torch==2.3.1+rocm6.0", "torch==2.3.1+rocm6.0", "name", "torch"),
        ("flit-core === 3.9.0", "flit-core===3.9.0", "name", "flit-core"),
        ("horovod==0.20.*", "horovod==0.20.*", "name", "horovod"),
        ("httpx[http2, cli]~=0.27", "httpx[cli,http2]~=0.27", "name", "httpx"),
        ("a;python_version<'3'", 'a ; python_version < "3"', "name", "a"),
        ("numpy>=1.*", "numpy>=1", "name", "numpy"),
        ("git+https://h/a/b.git@v1", "git+https://h/a/b.git@v1", "vcs", ""),
        ("git+https://h/a/b.git@v1#egg=b", "b @ git+https://h/a/b.git@v1", "vcs", "b"),
        (
            "git+ssh://git@h/a/b.git#egg=b[x]&subdirectory=s",
            "b[x] @ git+ssh://git@h/a/b.git#subdirectory=s",
            "vcs",
            "b",
        ),
        ("-e git+https://h/t.git@main#egg=t-x", "t-x @ git+https://h/t.git@main", "vcs", "t-x"),
        (
            "b @ git+https://h/a/b.git ; os_name == 'posix'",
            'b @ git+https://h/a/b.git ; os_name == "posix"',
            "vcs",
            "b",
        ),
        ("b[x]@https://h/b.zip", "b[x] @ https://h/b.zip", "url", "b"),
        ("https://h/b-1.0-py3-none-any.whl", "b @ https://h/b-1.0-py3-none-any.whl", "url", "b"),
        (f"https://h/b.tar.gz#sha256={SHA}", f"https://h/b.tar.gz#sha256={SHA}", "url", ""),
        ("https://h/b.zip#egg=b", "b @ https://h/b.zip", "url", "b"),
    ],
)
def test_requirements(tmp_path: Path, text: str, line: str, kind: str, name: str) -> None:
    requirement = one(tmp_path, text)
    assert (requirement.line, requirement.kind, requirement.name) == (line, kind, name)
    assert requirement.editable == text.startswith("-e")
    assert requirement.text == text
    assert requirement.place.line == 1


def test_fields_of_a_requirement(tmp_path: Path) -> None:
    requirement = one(tmp_path, "httpx[http2,cli] >=0.20 ; sys_platform == 'linux'")
    assert requirement.extras == ("cli", "http2")
    assert requirement.specifier == ">=0.20"
    assert requirement.marker == 'sys_platform == "linux"'
    wheel = one(tmp_path, f"https://h/b-1.0-py3-none-any.whl#sha256={SHA}")
    assert (wheel.specifier, wheel.hashes) == ("==1.0", (f"sha256:{SHA}",))


@pytest.mark.parametrize(
    ("text", "path", "extras", "editable"),
    [
        (".", ".", (), False),
        ("-e .", ".", (), True),
        ("-e .[dev]", ".", ("dev",), True),
        ('-e ".[dev,test]"', ".", ("dev", "test"), True),
        ("--editable=src/app", "src/app", (), True),
        ("./lib", "lib", (), False),
        ("lib/b-1.0.tar.gz", "lib/b-1.0.tar.gz", (), False),
        ("file:lib", "lib", (), False),
        ("-e file:lib", "lib", (), True),
        ("c @ ./lib", "lib", (), False),
    ],
)
def test_local_paths_are_absolute(
    tmp_path: Path, text: str, path: str, extras: tuple[str, ...], editable: bool
) -> None:
    requirement = one(tmp_path, text)
    assert requirement.kind == "path"
    assert requirement.path == str((tmp_path / path).resolve())
    assert (requirement.extras, requirement.editable) == (extras, editable)
    assert str((tmp_path / path).resolve()) in requirement.line


def test_a_local_wheel_has_a_name(tmp_path: Path) -> None:
    requirement = one(tmp_path, "./b-1.0-py3-none-any.whl")
    assert (requirement.name, requirement.specifier) == ("b", "==1.0")
    assert requirement.line == f"b @ {(tmp_path / 'b-1.0-py3-none-any.whl').as_uri()}"


def test_an_editable_is_said_to_become_a_wheel(tmp_path: Path) -> None:
    notices = load(tmp_path, "-e .\n").notices
    assert any("becomes a wheel built from a hashed snapshot" in notice for notice in notices)
    assert any("neither pyproject.toml" in notice for notice in notices)
    (tmp_path / "pyproject.toml").touch()
    assert not any("neither pyproject.toml" in notice for notice in load(tmp_path, "-e .\n").notices)


def test_options(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    text = """\
-i https://first/simple
--index-url=https://h/simple --extra-index-url https://e1/simple
--extra-index-url https://e2/${NOT_SET_HERE}/simple
-f wheels
--find-links https://h/links.html
-fhttps://h/short.html
--no-binary=horovod,mpi4py
--only-binary :all:
--no-binary Horovod
--pre
--prefer-binary
--require-hashes
--trusted-host h
--use-feature=fast-deps
--extra-index 'https://e3/simple'
"""
    options = load(tmp_path, text).pip_options
    assert options.index_url == "https://h/simple"
    assert options.extra_index_urls == ("https://e1/simple", "https://e2/${NOT_SET_HERE}/simple", "https://e3/simple")
    assert options.find_links == (str(tmp_path / "wheels"), "https://h/links.html", "https://h/short.html")
    assert options.no_binary == ("horovod",)
    assert options.only_binary == (":all:",)
    assert options.pre and options.prefer_binary and options.require_hashes
    assert (options.trusted_hosts, options.use_features) == (("h",), ("fast-deps",))
    assert not options.no_index


@pytest.mark.parametrize(
    ("lines", "no_binary", "only_binary"),
    [
        ("--no-binary :all:", (":all:",), ()),
        ("--no-binary a,b\n--no-binary :none:", (), ()),
        ("--no-binary a\n--only-binary a", (), ("a",)),
        ("--only-binary a\n--no-binary :all:", (":all:",), ()),
        ("--no-binary a\n--no-binary=b", ("a", "b"), ()),
        ("a==1 --no-binary b,a", ("a", "b"), ()),
        ("--only-binary :all:\n-e . --no-binary c", ("c",), (":all:",)),
    ],
)
def test_formats_exclude_each_other(
    tmp_path: Path, lines: str, no_binary: tuple[str, ...], only_binary: tuple[str, ...]
) -> None:
    options = load(tmp_path, f"{lines}\n").pip_options
    assert (options.no_binary, options.only_binary) == (no_binary, only_binary)


def test_options_of_one_requirement(tmp_path: Path) -> None:
    text = f"""\
a==1 \\
    --hash=sha256:{SHA} \\
    --hash=sha256:{"b" * 64}
b --config-settings=x=1 -C y=2 --global-option="--no-user-cfg"
"""
    a, b = load(tmp_path, text).pip
    assert a.hashes == (f"sha256:{SHA}", f"sha256:{'b' * 64}")
    assert b.config_settings == ("x=1", "y=2", "--global-option=--no-user-cfg")
    assert (a.place.line, b.place.line) == (1, 4)


def test_comments_continuations_and_encodings(tmp_path: Path) -> None:
    path = tmp_path / "r.txt"
    path.write_bytes("\ufeff# c\r\n  a==1 # c\r\nb\\\r\n==2\r\n\r\nhttps://h/x.zip#egg=x # c\r\n#d\r\n".encode())
    assert [requirement.line for requirement in load_environment(path).pip] == ["a==1", "b==2", "x @ https://h/x.zip"]
    path.write_bytes("a==1\n".encode("utf-16"))
    assert [requirement.line for requirement in load_environment(path).pip] == ["a==1"]


def test_variables_in_pips_form_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TEST_VERSION", "1.5")
    monkeypatch.delenv("STACKYARD_TEST_UNSET", raising=False)
    text = "a==${STACKYARD_TEST_VERSION}\nb @ https://u:${STACKYARD_TEST_VERSION}@h/b.zip\n"
    environment = load(tmp_path, text)
    assert environment.pip[0].line == "a==1.5"
    assert environment.pip[1].url == "https://u:${STACKYARD_TEST_VERSION}@h/b.zip"
    unset = load(tmp_path, "--index-url https://${STACKYARD_TEST_UNSET}/simple\n")
    assert any("STACKYARD_TEST_UNSET is not set" in notice for notice in unset.notices)


def test_nested_files_are_relative_to_their_own_directory_and_paths_to_the_first(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "wheels").mkdir()
    (tmp_path / "sub" / "base.txt").write_text("a\n./lib\n-r more.txt\n-f wheels\n")
    (tmp_path / "sub" / "more.txt").write_text("b\n")
    (tmp_path / "limits.txt").write_text("a<2\n")
    environment = load(tmp_path, "-r sub/base.txt\n--constraint=limits.txt\n-r file:sub/more.txt\n")
    assert [requirement.name or requirement.path for requirement in environment.pip] == [
        *("a", str(tmp_path / "lib")),
        *("b", "b"),
    ]
    assert [requirement.line for requirement in environment.constraints] == ["a<2"]
    assert environment.pip_options.find_links == (str(tmp_path / "sub" / "wheels"),)
    assert {Path(file).name for file in environment.files} == {"requirements.txt", "base.txt", "more.txt", "limits.txt"}
    assert environment.pip[0].place.file.endswith("sub/base.txt")


def test_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("a\n-r requirements.txt\n")
    with pytest.raises(InputError, match="includes itself") as caught:
        load(tmp_path, "-r other.txt\n")
    assert str(caught.value.where) == f"{tmp_path / 'other.txt'}:2:1"


def test_a_missing_file_is_an_error_or_noted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such included file") as caught:
        load(tmp_path, "a\n-r no.txt\n")
    assert str(caught.value.where) == f"{tmp_path / 'requirements.txt'}:2:1"
    environment = load(tmp_path, "a\n-r no.txt\n", strict=False)
    assert environment.missing == (str(tmp_path / "no.txt"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a --index-url https://h/simple", "its own line"),
        ("--extra-index-url https://h/simple torch==1", "'torch==1' after an option is ignored"),
        (f"a --hash=sha256:{'a' * 12}", "no file can match"),
        ("psutil # [linux64]", "not a selector"),
        ("./nowhere", "does not exist (yet)"),
    ],
)
def test_what_pip_ignores_is_said(tmp_path: Path, text: str, words: str) -> None:
    assert any(words in notice for notice in load(tmp_path, f"{text}\n").notices)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("numpy=1.2", "no operator `=`", "numpy==1.2"),
        ("numpy 1.2", "pip requirement", "numpy==1.2"),
        ("numpy>=1<2", "pip requirement", "commas"),
        ("conda-forge::numpy", "conda syntax", "pip:"),
        ("pip install numpy", "command", "write numpy"),
        ("!pip3 install a b", "command", "write a b"),
        ("jaxlib>=0.1.67+cuda110", "such as +cuda110", "write jaxlib>=0.1.67, or jaxlib==0.1.67+cuda110"),
        ("bbmap=39.1", "no operator `=`", "below `dependencies:`"),
        ("numpy=>1.2", "no operator `=>`", "write numpy>=1.2"),
        ("numpy (1.2)", "not a pip requirement", "write numpy==1.2"),
        ("-U numpy", "does not accept -U", "lock --update"),
        ("numpy --no-build-isolation", "does not accept --no-build-isolation", "build: packages"),
        ("-e numpy://x", "kind of URL", "git+https"),
        ("-e https://h/x.zip", "project directory", "git+https"),
        ("a ; python == 3", "marker", "python_version"),
        ("b @ https://h/b.zip ; nonsense", "marker", "python_version"),
        ("--install-option=x", "no longer has", "--config-settings"),
        ("--nonsense", "unknown option", "--index-url"),
        ("--no-index=1", "takes no value", "--no-index"),
        ("--index-url", "missing value", "VALUE"),
        ("-x", "unknown option", "--index-url"),
        ("--find-links 'x", "quotation", "close"),
        ("a --hash=md5:123", "not a strong hash", "sha256"),
        ("a --hash=123", "not a strong hash", "sha256"),
        ("https://h/b.whl", "not a wheel file name", "original"),
        (f"https://h/b-{'0' * 5000}-py3-none-any.whl", "at most 255 bytes", "original"),
        (f"./{'b' * 256}.tar.gz", "cannot look up its path: File name too long", "check the path"),
        (f"./{'b' * 5000}/b", "cannot look up its path: File name too long", "check the path"),
        (f"b==1.{'0' * 5000}", "more than 300 digits", "name==version"),
        (f"b; python_version < '3.{'0' * 5000}'", "more than 300 digits", "name==version"),
        ("{{ a }}", "Jinja", "render"),
        ("git://h/a", "URL", "git+https"),
        ("-e git+git@h:a/b.git#egg=b", "short form", "git+ssh://git@h/a/b.git"),
        ("'numpy>=1',", "quotes", "write numpy>=1"),
        ("git+git://h/a/b.git@v1#egg=b", "git:// is not supported", "write git+https://h/a/b.git@v1#egg=b"),
        ("b @ git+git://h/a", "git:// is not supported", "write git+https://h/a"),
        ("git+ssh://git@h:a/b.git", "a port belongs after the `:`", "write git+ssh://git@h/a/b.git"),
        ("hg+https://h/a#egg=a", "mercurial repositories are not supported", "git+https"),
        ("-e svn+https://h/a#egg=a", "subversion repositories are not supported", "its path"),
        ("bzr+http://h/a", "bazaar repositories are not supported", "archive"),
    ],
)
def test_refusals(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, f"# first\n{text}\n")
    assert message in caught.value.message.lower() or message in caught.value.message
    assert hint in str(caught.value.hint)
    assert str(caught.value.where) == f"{tmp_path / 'requirements.txt'}:2:1"


@pytest.mark.parametrize(
    "text", ["{} x y", "{}=1", "https://h/{}.whl", "a --hash={}", "./{}/x", "a; {}", "{}::a", "--{}=1", "'{}"]
)
def test_a_long_line_is_not_quoted_whole(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text.format("x" * 5000) + "\n")
    assert len(f"{caught.value.message}{caught.value.hint}") < 1500


def test_a_loop_of_links_is_said(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="cannot look up its path: Too many levels of symbolic links"):
        load(tmp_path, "./loop/package\n")


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(ManyErrors) as caught:
        load(tmp_path, "a=1\nb\n--nope\nc<>1\n")
    assert [problem.where.line for problem in caught.value.problems if problem.where] == [1, 3, 4]


def test_a_file_that_is_included_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "remote.txt").write_text("\ufeffattrs\n-r more.txt\n", encoding="utf-8")
    (tmp_path / "more.txt").write_text("cffi\n")
    path = tmp_path / "requirements.txt"
    with served(tmp_path) as base:
        path.write_text(f"-r {base}/remote.txt\n")
        assert [r.name for r in read_requirements(path).pip] == ["attrs", "cffi"]
        path.write_text(f"six\n-r {base.replace('://', '://me:word@')}/none.txt\n")
        with pytest.raises(InputError, match=r"cannot read http://127[^@]*: HTTP status 404") as caught:
            read_requirements(path)
    assert caught.value.where == Where(str(path), 2, 1)
    assert "save the file next to this one" in str(caught.value.hint)


@pytest.mark.parametrize("url", ["git+http://h/a", "git+ssh://git@h:22/a/b.git", "git+ssh://h/a:b", "git+file:///h/a"])
def test_repositories_of_git(tmp_path: Path, url: str) -> None:
    assert one(tmp_path, url).line == url


def test_a_comment_that_goes_on_in_the_next_line(tmp_path: Path) -> None:
    read = load(tmp_path, "numpy==1.26  # a pin \\\nscipy\npandas\n# a comment \\\npolars\nzarr  # b\\\n# c \\\ndask\n")
    assert [item.name for item in read.pip] == ["numpy", "pandas", "polars", "zarr", "dask"]
    assert [notice.partition(" is ignored")[0] for notice in read.notices] == [
        f"{tmp_path / 'requirements.txt'}:2: 'scipy'"
    ]


def test_many_missing_paths_are_counted(tmp_path: Path) -> None:
    frozen = "".join(f"p{n} @ file:///croot/p{n}/work\n" for n in range(40))
    path = tmp_path / "requirements.txt"
    few = load(tmp_path, "".join(frozen.splitlines(keepends=True)[:6]))
    assert len(few.notices) == 6
    notices = load(tmp_path, f"{frozen}numpy>=1.*\n").notices
    assert notices[:3] == tuple(f"{path}:{n + 1}: /croot/p{n}/work does not exist (yet)" for n in range(3))
    assert notices[3].startswith(f"{path}:41: 'numpy>=1.*' is read as")
    assert notices[4:] == (f"{path}: 37 more paths in it do not exist (yet)",)
    (tmp_path / "environment.yml").write_text("dependencies:\n- pip\n- pip: [-r requirements.txt]\n")
    assert len(load_environment(tmp_path / "environment.yml").notices) == 5


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        (
            "dask[complete]==2023.1.0",
            "constraints cannot have extras",
            "write dask==2023.1.0 here",
        ),
        ("b[x,y] ; python_version < '3'", "constraints cannot have extras", 'write b ; python_version < "3" here'),
        ("b[x] @ https://h/b.zip", "constraints cannot have extras", "write b @ https://h/b.zip here"),
        ("-e git+https://h/b.git#egg=b", "editable requirements are not allowed as constraints", "as a requirement"),
        ("https://h/b.zip", "unnamed requirements are not allowed as constraints", "as a requirement"),
    ],
)
def test_what_pip_does_not_allow_as_a_constraint(tmp_path: Path, line: str, said: str, hint: str) -> None:
    (tmp_path / "limits.txt").write_text(f"a<2\n{line}\n")
    with pytest.raises(InputError, match=said) as caught:
        load(tmp_path, "a\n-c limits.txt\n")
    assert str(caught.value.where) == f"{tmp_path / 'limits.txt'}:2:1"
    assert hint in str(caught.value.hint)


def test_a_constraint_with_a_url_is_one(tmp_path: Path) -> None:
    (tmp_path / "limits.txt").write_text("b @ https://h/b.zip\nhttps://h/c-1.0-py3-none-any.whl\n")
    lines = [each.line for each in load(tmp_path, "a\n-c limits.txt\n").constraints]
    assert lines == ["b @ https://h/b.zip", "c @ https://h/c-1.0-py3-none-any.whl"]
