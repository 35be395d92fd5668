"""What a person reads when a file is wrong: exit code, the very line, relative paths as typed, and what to do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.cli.output import show_error, show_notice
from stackyard.cli.typed import as_typed
from stackyard.core.errors import InputError
from support.cli import Done, inside, stackyard

CASES = {
    "misspelt key": (
        "environment.yml", "name: a\ndependancies:\n  - six\n", 2, r"environment\.yml:2:1: unknown key 'dependancies'",
        "did you mean 'dependencies'?",
    ),
    "no version": (
        "environment.yml", "dependencies:\n  - scipy=>1.2,\n", 2,
        r"environment\.yml:2:5: .* is not a conda package spec",        "operators: =",
    ),
    "lines joined": (
        "environment.yml", "dependencies:\n- numpy\n - scipy\n", 2, r"environment\.yml:2:3: .* two lines are joined",
        "at the same indentation",
    ),
    "tab": ("environment.yml", "dependencies:\n\t- six\n", 2, r"environment\.yml:2:1: .*not valid YAML", "spaces"),
    "duplicate key": (
        "environment.yml", "name: a\nname: b\n", 2, r"environment\.yml:2:1: duplicate key 'name'", "keep one",
    ),
    "Jinja": (
        "environment.yml", "dependencies:\n  - six={{ v }}\n", 2, r"environment\.yml:2:5: .*Jinja", "render",
    ),
    "Python 2 with pip": (
        "environment.yml", "dependencies:\n  - python=2.7\n  - pip:\n    - six\n", 2,
        r"environment\.yml:4:7: .*Python 2", "conda channel",
    ),
    "empty": ("environment.yml", "", 2, r"environment\.yml: the file is empty", "dependencies:"),
    "nothing named": ("requirements.txt", "# later\n", 2, r"requirements\.txt: no packages", "at least one"),
    "program": ("environment.yml", "\x7fELF\x02\x01", 2, r"environment\.yml: not a text file", "text file"),
    "unset variable in a channel": (
        "environment.yml", "channels:\n  - $NO_SUCH_TOKEN/c\ndependencies: [six]\n", 2,
        r"environment\.yml:2:5: the channel \$NO_SUCH_TOKEN/c needs the variable NO_SUCH_TOKEN", "export NO_SUCH_TOKEN",
    ),
    "unset variable in an index": (
        "requirements.txt", "six\n--index-url https://${NO_SUCH_TOKEN}@h/simple\n", 2,
        r"requirements\.txt:2:1: .* needs the variable NO_SUCH_TOKEN", "export NO_SUCH_TOKEN",
    ),
    "channel that is not there": (
        "environment.yml", "channels:\n  - ./nowhere\ndependencies: [six]\n", 1,
        r"environment\.yml:2:5: the channel .* cannot be reached: no such file or directory: ", "check the URL",
    ),
    "dead index": (
        "requirements.txt", "six\n--index-url http://127.0.0.1:9/simple\n", 1,
        r"requirements\.txt:2:1: the index .* cannot be reached: connection refused", "check the URL",
    ),
    "project that is not there": (
        "requirements.txt", "--no-index\n./nowhere\n", 2,
        r"requirements\.txt:2:1: no such file or directory: ", "remove the line",
    ),
    "no project": (
        "requirements.txt", "--no-index\n\n-e .\n", 2,
        r"requirements\.txt:3:1: .*contains neither pyproject\.toml", "project",
    ),
    "cut hash": (
        "requirements.txt", "--no-index\nsix==1.0 --hash=sha256:abc\n", 2, r"requirements\.txt:2:1: 'sha256:abc'",
        "64 hexadecimal digits",
    ),
    "repository out of reach": (
        "requirements.txt", "--no-index\ny @ git+https://127.0.0.1:9/x/y.git\n", 1,
        r"requirements\.txt:2:1: .*Failed to connect", "check the URL",
    ),
    "unknown package": (
        "requirements.txt", "--no-index\nno-such-thing-at-all\n", 2,
        r"requirements\.txt:2:1: cannot solve the pip packages", "no package named no-such-thing-at-all",
    ),
    "no import": (
        "stack.yaml", "version: 1\nimports:\n  - base.yaml\n", 2, r"stack\.yaml:3:5: no such file: project/base",
        "relative to the directory",
    ),
    "no date": (
        "stack.yaml", "version: 1\nenvironment: {dependencies: [six]}\nmodules: {deprecated: soon}\n", 2,
        r"stack\.yaml:3:23: modules\.deprecated: 'soon' does not start with a date: write", "",
    ),
    "a lock": (
        "environment.yml.lock", "format = 1\n[[variant]]\n", 2, r"environment\.yml\.lock: this is a lock",
        "project/environment.yml",
    ),
    "many wrong lines": ("requirements.txt", "numpy=1.26\n" * 40, 2, r"requirements\.txt:1:1: ", "15 more problems"),
    "text of another kind": (
        "notes.txt", "Dear reader !\n" * 40, 2, r"notes\.txt:1:1: not a requirements file", "use a stack"
    ),
    "unknown axis": (
        "stack.yaml", "matrix: {gpu: [a]}\nenvironment:\n  dependencies:\n    - six  # [gpq == 'a']\n", 2,
        r"stack\.yaml:4:7: 'gpq'", "did you mean 'gpu'?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_line_and_the_remedy(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text, code, place, remedy = CASES[case]
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    settings = {"PIP_CONFIG_FILE": os.devnull, "COLUMNS": "40"}  # a narrow terminal folds nobody's reasons
    done = inside("--yard", tmp_path / "y", "lock", f"project/{name}", expect=code, **settings)
    first = next(line for line in done.err.splitlines() if line.startswith("error: "))
    assert re.match(rf"error: project/{place}", first), done.err
    assert remedy in (done.err.partition("hint: ")[2] or done.err)
    assert "Traceback" not in done.err and not (directory / f"{name}.lock").exists()


def test_every_line_that_is_in_the_way(real_channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "environment.yml"
    start = f"channels: [{real_channel.as_uri()}]\ndependencies:\n  - python=3.11\n"
    monkeypatch.chdir(tmp_path)

    def said(rest: str, site: str = "") -> Done:
        file.write_text(start + rest)
        Path("site.yaml").write_text(site)
        return stackyard("--site", "site.yaml", "--yard", "y", "lock", file.name, "--dry-run", expect=2)

    conda = said("  - six\n  - numpy=99\n").err
    assert (
        "environment.yml:5:5: cannot solve the conda packages" in conda
        and "without `numpy 99.*`: relax or remove it" in conda
    )
    pip = said("  - pip:\n    - six\n    - tomli-w>99\n").err
    assert (
        "environment.yml:6:7: cannot solve the pip packages" in pip
        and "without `tomli-w>99`: relax or remove it" in pip
    )
    denied = said("", "channels: {denied: ['file:*']}").err
    assert "environment.yml:1:12: the channel" in denied and "denied by the site" in denied
    assert "site.yaml:1:27: channels.exclude_newer: 'soon'" in said("", "channels: {exclude_newer: soon}").err


def test_two_files_of_one_stack_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "both"
    directory.mkdir()
    (directory / "environment.yml").write_text("dependencies: [python=3.11]\n")
    (directory / "requirements.txt").write_text("six\n")
    monkeypatch.chdir(directory)
    for verb in ("lock", "deploy"):
        files = ("environment.yml", "requirements.txt")
        done = inside("--yard", tmp_path / "y", verb, *files, "--dry-run", expect=2)
        assert "environment.yml and requirements.txt both define both/" in done.err
        assert "requirements.txt --name both-requirements" in done.err


def test_notices_are_said_once(tmp_path: Path, real_channel: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text(f"prefix: /opt/x\nchannels: [{real_channel.as_uri()}]\ndependencies:\n  - six  # [linxu64]\n")
    err = stackyard("--yard", tmp_path / "y", "lock", file, "--dry-run").err
    assert err.count("the prefix /opt/x is ignored") == 1
    assert err.count("the comment [linxu64] is ignored") == 1


def test_paths_are_shown_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/stack.yaml").touch()
    monkeypatch.chdir(tmp_path)
    text = f"{tmp_path}/a/stack.yaml:3: no {tmp_path}/a/b/c, file://{tmp_path}/a/d"
    assert as_typed(text, ["lock", "a/stack.yaml"]) == f"a/stack.yaml:3: no a/b/c, file://{tmp_path}/a/d"
    assert as_typed(text, ["lock", f"{tmp_path}/a/stack.yaml"]) == text
    monkeypatch.chdir(tmp_path / "a")
    assert as_typed(text, ["stack.yaml"]).startswith("stack.yaml:3: no b/c")


def test_show_parsed_is_whole_and_readable(tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(
        "name: x\nversion: 1\nmatrix: {mpi: [openmpi, mpich]}\nenvironment:\n  channels: [c]\n  dependencies:\n"
        "    - python=3.11\n    - gdb  # [ppc64le]\n    - mpich  # [mpi == 'mpich']\n    - pip: ['-e .', 'six>1']\n"
        "checks:\n  - python --version\n"
    )
    value = stackyard("show", "--parsed", file, "--json").value
    assert value["written"]["matrix"] == {"mpi": ["openmpi", "mpich"]}
    assert [v["axes"] for v in value["variants"]] == [{"mpi": "openmpi"}, {"mpi": "mpich"}]
    assert value["variants"][0]["environment"]["channels"][0]["place"]["line"] == 5
    text = stackyard("show", "--parsed", file).out
    assert "variant 1-openmpi   (mpi openmpi)" in text and "    - gdb   [ppc64le]\n" in text
    assert text.count("python 3.11.*") == 2 and text.count("  checks:") == 1
    assert "(editable)" in text and "six>1" in text and "becomes a wheel" in text


def test_why_and_diff_of_locks(tmp_path: Path, real_channel: Path) -> None:
    stack = tmp_path / "stack.yaml"
    text = (
        "name: x\nversion: 1\nmatrix: {size: [small, big]}\nenvironment:\n"
        f"  channels: [{real_channel.as_uri()}]\n  dependencies:\n    - python=3.11\n    - six=1.16\n"
        "    - requests   # [size == 'big']\n"
    )
    stack.write_text(text)
    stackyard("--yard", tmp_path / "y", "lock", stack)
    old = tmp_path / "stack.yaml.lock"
    assert stackyard("why", old, "idna").out.startswith("idna ")
    both = stackyard("why", old, "six", "--json").value
    assert {key.partition(" on ")[0] for key in both} == {"1-small", "1-big"}
    assert "flask is not in" in stackyard("why", old, "flask", expect=2).err
    kept = tmp_path / "old.lock"
    old.rename(kept)
    stack.write_text(text.replace("1.16", "1.17"))
    stackyard("--yard", tmp_path / "y", "lock", stack)
    assert stackyard("diff", kept, old).out.count("~ six 1.16.0 pyhd_0 -> 1.17.0 pyhd_0 (conda)") == 2
    assert "no such lock file" in stackyard("diff", kept, tmp_path / "no.lock", expect=2).err


def test_what_changed_is_said_once_for_all_variants(tmp_path: Path, real_channel: Path) -> None:
    stack, site = tmp_path / "stack.yaml", tmp_path / "site.yaml"
    stack.write_text(
        "name: x\nversion: 1\nmatrix: {size: [small, big]}\n"
        f"environment: {{channels: [{real_channel.as_uri()}], dependencies: [python=3.11]}}\n"
    )
    site.write_text("")
    command = ("--site", site, "--yard", tmp_path / "y", "lock", stack)
    stackyard(*command)
    assert "is fresh" in stackyard(*command, "--locked").out
    site.write_text("pins: [python <3.11]\n")
    err = stackyard(*command, "--locked", expect=2).err
    assert err.count("pin python <3.11") == 1 and "and 1 more" in err and "solve again with" in err, err
    site.write_text("")
    small, big = (stackyard(*command, "--export", "explicit", "--variant", name).out for name in ("small", "1-big"))
    assert "x 1 small for" in small and "x 1 big for" in big


def test_selectors_of_channels_pick_what_is_searched(tmp_path: Path, real_channel: Path) -> None:
    site, file = tmp_path / "site.yaml", tmp_path / "environment.yml"
    site.write_text("platforms: [linux-64]\n")
    file.write_text(
        f"channels:\n  - {real_channel.as_uri()}\n  - http://127.0.0.1:9/power   # [ppc64le]\ndependencies: [six]\n"
    )
    locked = stackyard("--site", site, "--yard", tmp_path / "y", "lock", file, "--json").value[0]
    assert locked["variants"][0]["channels"] == [real_channel.as_uri()]


@pytest.mark.parametrize(("argv", "seen"), [((), False), (("--debug",), True)])
def test_warnings_of_libraries_are_for_developers(argv: tuple[str, ...], seen: bool) -> None:
    code = "import warnings; from stackyard.cli import main as m; m.cli.main = lambda **_: warnings.warn('x'); m.main()"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, env=environment, check=True)
    assert (b"UserWarning" in done.stderr) is seen


@pytest.mark.parametrize("argv", [(), ("--debug",)])
def test_a_traceback_is_for_developers(tmp_path: Path, argv: tuple[str, ...]) -> None:
    done = stackyard(*argv, "--yard", tmp_path / "yard", "show", "none/1", expect=None)
    assert ("Traceback" in done.err) is bool(argv) and done.code


def test_a_long_message_breaks_between_words_at_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = InputError(" ".join(["word"] * 40), hint=" ".join(["other"] * 40), detail="x" * 100)
    show_error(error)
    show_notice("warning: " + " ".join(["third"] * 30))
    assert len(capsys.readouterr().err.splitlines()) == 4
    monkeypatch.setattr("stackyard.cli.output.terminal_width", lambda *, err: 60)
    show_error(error)
    show_notice("warning: " + " ".join(["third"] * 30))
    lines = capsys.readouterr().err.splitlines()
    assert max(len(line) for line in lines if "x" not in line) <= 60
    assert {re.match("[a-z]+: |  hint: | *[|]? *", line)[0] for line in lines} == {
        "error: ", " " * 7, "  | ", "  hint: ", " " * 8, "warning: ", " " * 9,
    }  # fmt: skip
