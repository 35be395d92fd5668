"""What a yard says of others: all of what is honest, little of what is not, and why not all of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from stackyard.host.account import reading
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from support.accounts import Accounts

BASE = {"yard": "/sw/yard", "id": "tool/1.0-py311-1"}
SAID = ("base", "/sw/yard", "tool/1.0-py311-1", "mine/1")


def record(directory: Path, base: object = BASE, **more: object) -> Path:
    """A record of an extension in a directory."""
    directory.mkdir(parents=True)
    file = directory / "record.json"
    file.write_text(json.dumps({"base": base, "module": "mine/1", **more}))
    return file


def test_its_names_are_those_of_the_layout() -> None:
    yard = Yard(Path("/y"))
    paths = RevisionPaths(yard.stacks / "a" / "1")
    assert [yard.stacks.name, yard.trash.name, yard.uses.name] == [reading.STACKS, reading.TRASH, reading.USES]
    assert (paths.record.name, paths.spare.name) == reading.RECORDS
    assert (paths.lock.parent.name, paths.lock.name) == reading.LOCK


def test_what_it_says_and_what_is_in_its_trash(tmp_path: Path) -> None:
    lock = record(tmp_path / "stacks/mine/1", interpreter={"path": "/py/bin/python"}).parent / "lock" / "stack.lock"
    lock.parent.mkdir()
    lock.write_text('format = 1\n\n[[variant]]\nspec_hash = "abc"\n')
    record(tmp_path / "trash/t/content", {**BASE, "id": "old/1"})
    record(tmp_path / "stacks/own/1", None)
    (tmp_path / "uses").mkdir()
    (tmp_path / "uses" / "a.json").write_text("{}")
    found = reading.read_yard(tmp_path)
    assert found.problem == ""
    (use,) = [item for item in found.items if item[0] == "use"]
    assert use[1] == "{}" and int(use[2]) < 60 and use[3] == str(os.getuid())
    assert set(found.items) - {use} == {
        SAID, ("base", "/sw/yard", "old/1", "mine/1"), ("interpreter", "/py/bin/python"), ("solution", "abc"),
    }  # fmt: skip
    assert ("solution", "abc") not in reading.read_yard(tmp_path, solutions=False).items


def test_a_link_leads_to_it_and_none_below_it_is_followed(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "disk" / "yard", tmp_path / "elsewhere"
    record(home / "stacks/mine/1")
    record(elsewhere / "1")
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    assert reading.read_yard(tmp_path / "home" / "yard") == ([SAID], "")
    (home / "stacks/mine/2").symlink_to("1")
    (home / "stacks/same").symlink_to(home / "stacks/mine")
    assert reading.read_yard(home) == ([SAID], ""), "what they lead to is read anyway"
    (home / "stacks/other").symlink_to(elsewhere)
    assert reading.read_yard(home) == ([SAID], "stacks/other: is a symbolic link")
    (home / "stacks").rename(elsewhere / "stacks")
    (home / "stacks").symlink_to(elsewhere / "stacks")
    assert reading.read_yard(home) == ([], "stacks: is a symbolic link")


def test_a_damaged_record_is_read_from_its_copy(tmp_path: Path) -> None:
    file = record(tmp_path / "stacks/mine/1")
    file.rename(file.with_name("record.spare.json"))
    assert reading.read_yard(tmp_path).items == [SAID]
    for text in ("", '{"base":', "[" * 100_000, "[]", "\\ud800"):
        file.write_text(text)
        assert reading.read_yard(tmp_path) == ([SAID], ""), text[:20]


def test_what_is_no_record_is_not_waited_for(tmp_path: Path) -> None:
    record(tmp_path / "stacks/mine/1")
    for name in ("a", "b", "c", "d"):
        (tmp_path / "stacks/mine" / name).mkdir()
    os.mkfifo(tmp_path / "stacks/mine/a/record.json")
    (tmp_path / "stacks/mine/b/record.json").symlink_to("/dev/zero")
    (tmp_path / "stacks/mine/c/record.json").mkdir()
    os.mkfifo(tmp_path / "stacks/fifo")
    os.mkfifo(tmp_path / "uses")
    before = os.listdir("/proc/self/fd")
    assert reading.read_yard(tmp_path) == ([SAID], "")
    assert os.listdir("/proc/self/fd") == before
    assert reading.read_yard(tmp_path / "stacks/fifo") == reading.read_yard(tmp_path / "none") == ([], "")


def test_there_is_an_end_to_it(tmp_path: Path) -> None:
    """Of the size of a record, of their number, of what they say, and of the time that it takes."""
    large = record(tmp_path / "large/stacks/mine/1", pad="x" * reading.MOST_BYTES)
    assert reading.read_yard(tmp_path / "large").problem == "stacks/mine/1/record.json: larger than 8,388,608 bytes"
    large.write_text("[" + "[]," * 2_700_000 + "[]]")
    for number in range(2, 400):
        (large.parents[1] / str(number)).mkdir()
        os.link(large, large.parents[1] / str(number) / "record.json")
    start = time.process_time()
    assert reading.read_yard(tmp_path / "large", within_s=1.0).problem == "timed out after 1 s"
    assert time.process_time() - start < 5, "of the last one that was begun"
    for number in range(reading.MOST_RECORDS + 1):
        (tmp_path / "many/stacks/mine" / str(number)).mkdir(parents=True)
    assert reading.read_yard(tmp_path / "many").problem == "more than 2,000 records"
    for number in range(40):
        record(tmp_path / "wide/stacks/mine" / str(number), {**BASE, "yard": f"/{number}"})
    found = reading.read_yard(tmp_path / "wide")
    assert found.problem == "names bases in more than 32 yards" and len(found.items) == 32
    (tmp_path / "talk/uses").mkdir(parents=True)
    for number in range(100):
        (tmp_path / "talk/uses" / f"{number}.json").write_text(str(number % 10) * 16_000)
        (tmp_path / "talk/uses" / f"{number}.json").write_text(f"{number:05}" * 3_000)
    found = reading.read_yard(tmp_path / "talk")
    assert found.problem.startswith("says more than") and 60 < len(found.items) < 80


def test_a_hostile_record_takes_little_memory(tmp_path: Path) -> None:
    """In a child with as much as the supervisor gives it; too little is said."""
    file = record(tmp_path / "stacks/mine/1")
    file.write_text("[" + "{}," * 2_700_000 + "{}]")
    code = (
        "import resource, sys, pathlib\nfrom stackyard.host.account import reading\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)\n"
        "print(reading.read_yard(pathlib.Path(sys.argv[1])))"
    )
    for mib, said in ((512, "problem=''"), (64, "not enough memory")):
        argv = [sys.executable, "-c", code, tmp_path, str(mib)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert said in done.stdout, (mib, done)


def test_it_imports_nothing_that_a_supervisor_has_not() -> None:
    code = "import sys; from stackyard.host.account import reading; "
    code += "print(*(n for n in sys.modules if n.startswith('stackyard')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {"stackyard", "stackyard.host", "stackyard.host.files", "stackyard.host.account"}
    assert set(done.stdout.split()) == {*rooms, "stackyard.host.files.at", "stackyard.host.account.reading"}


def test_a_child_of_root_needs_nothing_that_only_root_may_read(accounts: Accounts, tmp_path: Path) -> None:
    """Not of the program, nor of Python: it may be installed for root alone."""
    anna = accounts.user("anna")
    anna.run("mkdir", "-p", anna.home / "own/stacks/mine/1")
    said = json.dumps({"base": BASE, "module": "mine/1"})
    anna.python(
        "import sys; open(sys.argv[1], 'w').write(sys.argv[2])", anna.home / "own/stacks/mine/1/record.json", said
    )
    copy = tmp_path / "program"
    shutil.copytree(Path(reading.__file__).parents[2], copy / "stackyard")
    code = (
        "import sys, pathlib\nfrom stackyard.host.account import supervised\n"
        "print(supervised.read([(int(sys.argv[1]), pathlib.Path(sys.argv[2]))]), supervised.__file__)"
    )
    argv = [sys.executable, "-c", code, str(anna.uid), anna.home / "own"]
    done = subprocess.run(argv, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True, check=True)
    assert f"items=[{SAID!r}], problem=''" in done.stdout and str(copy) in done.stdout, done


def test_a_closed_one_is_a_problem_and_one_that_does_not_exist_is_none(accounts: Accounts) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    code = "import sys, pathlib\nfrom stackyard.host.account import reading\n"
    code += "print(reading.read_yard(pathlib.Path(sys.argv[1])))"
    own = anna.home / "yard"
    anna.run("mkdir", "-p", own / "stacks/mine/1")
    assert "problem='permission denied'" in bert.python(code, own).out
    assert "problem=''" in bert.python(code, bert.home / "yard").out
    anna.run("chmod", "711", anna.home)
    assert "problem=''" in bert.python(code, anna.home / "none").out
    anna.run("chmod", "700", own / "stacks/mine")
    assert "problem='stacks/mine: permission denied'" in bert.python(code, own).out
