"""Bad days of a site with users: a base that goes, an exhausted file system of a user's own, odd paths, bad entries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stackyard.make import layer
from stackyard.make.job import Job
from stackyard.yard.kinds.extension import BaseRevision
from support.accounts import Accounts
from support.channel import Package, make_channel
from support.cli import STACKYARD, Done, inside
from support.guardedserver import guarded
from support.sizes import taken
from support.tinywheel import wheel


def site_of(directory: Path, *, readable: Path | None = None) -> dict[str, str]:
    """A site with one published base of a wheel on the host's Python; the variables that name it."""
    wheels = directory / "wheels"
    for name in ("core", "addon"):
        wheel(wheels, name, "1.0")
    file = directory / "site.yaml"
    file.write_text(
        f"yard: '{directory}/sw'\nmodules: {{formats: [tcl]}}\npip: {{find_links: ['{wheels}']}}\n"
        "removal: {grace_days: 0, hide_days: 0, remove_days: 0, keep: 0}\n"
    )
    python = f", path: {readable}" if readable else ""
    (directory / "stack.yaml").write_text(
        f"name: sci\nversion: '1.0'\ninterpreter: {{source: host{python}}}\n"
        "environment: {dependencies: [{pip: [core]}]}\n"
    )
    variables = {"STACKYARD_SITE": str(file), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    inside("--yard", directory / "sw", "deploy", directory / "stack.yaml", **variables)
    return variables


def works(own: Path, variables: dict[str, str]) -> None:
    words = [STACKYARD, "--yard", own, "run", "mine", "--", "python", "-c", "import core, addon"]
    subprocess.run(words, env={**os.environ, **variables}, check=True)


def extend(own: Path, expect: int = 0, **variables: str) -> Done:
    words = ("--yard", own, "extend", "--base", "sci", "--name", "mine", "--pip", "addon")
    return inside(*words, expect=expect, **variables)


@pytest.mark.real
@pytest.mark.parametrize("verb", ["retire", "gc"])
def test_a_base_that_is_retired_while_the_extension_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The extension is published on it: its note, from before the build, keeps the base also from a collection."""
    variables = site_of(tmp_path)
    finish, own = layer.finish, tmp_path / "own"

    def finish_late(job: Job, base: BaseRevision) -> None:
        finish(job, base)
        retire = ("retire", "sci/1.0-py3-1", "--on", "2026-01-01")
        for words in (retire, ("gc",), ("gc",)) if verb == "gc" else (retire,):
            done = subprocess.run(
                [STACKYARD, "--yard", tmp_path / "sw", *words], env={**os.environ, **variables}, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr

    monkeypatch.setattr(layer, "finish", finish_late)
    extend(own, 0, **variables)
    works(own, variables)
    inside("--yard", tmp_path / "sw", "gc", **variables)
    assert (tmp_path / "sw/stacks/sci/1.0-py3-1/record.json").exists(), "the extension is built on it"


def test_a_users_part_of_the_file_system_is_exhausted(accounts: Accounts, common: Path) -> None:
    """A file system of a user's own with little room, by a real account: what is needed is said, nothing is left."""
    user = accounts.user("bert")
    variables = site_of(common, readable=accounts.bin / "python")
    own = common / "own"
    own.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size=128k,uid={user.uid},mode=700", "tmpfs", own]
    if (done := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"a file system of its own cannot be mounted here: {done.stderr.strip()}")
    try:
        words = ("--yard", own, "extend", "--base", "sci", "--name", "mine", "--pip", "addon")
        failed = user.stackyard(*words, expect=None, **variables)
        told = failed.out + failed.err
        assert failed.code == 1 and "no space left" in told.lower() and "Traceback" not in told, told
        assert not (own / "extensions/mine").exists() and not list(own.glob("stacks/mine/*/prefix"))
        subprocess.run(["mount", "-o", "remount,size=64m", own], check=True)
        user.stackyard(*words, **variables)
        user.stackyard("--yard", own, "run", "mine", "--", "python", "-c", "import core, addon", **variables)
    finally:
        subprocess.run(["umount", "-l", own], check=True)


@pytest.mark.parametrize("name", ["a'b", "#1"])
def test_a_yard_at_an_odd_path_works(tmp_path: Path, name: str) -> None:
    variables = site_of(tmp_path)
    own = tmp_path / name / "yard"
    own.parent.mkdir()
    extend(own, **variables)
    assert "passed" in inside("--yard", own, "verify", "mine", **variables).out
    works(own, variables)


@pytest.mark.parametrize("name", ["two words", "größe", "two\nlines"])
def test_a_yard_at_a_path_that_search_paths_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    variables = site_of(tmp_path)
    own = tmp_path / name / "yard"
    own.parent.mkdir()
    refused = extend(own, 2, **variables)
    assert "cannot use this path" in refused.err and "choose a path of" in refused.err
    assert not list(own.glob("stacks/*")) and not list(own.glob("extensions/*"))


def test_a_second_deploy_under_a_sites_yard_takes_no_more_than_without(accounts: Accounts, common: Path) -> None:
    """What a second stack of a user adds: no more bytes and inodes where the packages are in the site's yard."""
    files = {f"share/big/{n}": os.urandom(50_000) for n in range(20)}
    channel = make_channel(common / "ch", [Package("tool", "1.0", files=files)])
    (common / "site.yaml").write_text(f"yard: {common}/sw\nmodules: {{formats: [tcl]}}\n")
    (common / "none.yaml").write_text("modules: {formats: [tcl]}\n")
    user, sizes = accounts.user("bert"), {}
    (common / "own").mkdir()
    (common / "own").chmod(0o1777)
    text = "name: {}\nversion: '1'\nenvironment: {{channels: ['" + channel.as_uri() + "'], dependencies: [tool]}}\n"
    (common / "base.yaml").write_text(text.format("base"))
    inside("--site", common / "site.yaml", "--yard", common / "sw", "deploy", common / "base.yaml")
    for site in ("none", "site"):
        sizes[site] = [(0, 0)]
        for name in ("one", "two"):
            file = user.home / f"{site}-{name}.yaml"
            user.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", text.format(name), file)
            words = ("--site", common / f"{site}.yaml", "--yard", common / "own" / site, "deploy", file)
            user.stackyard(*words)
            sizes[site].append(taken(common / "own" / site))
    added = {
        site: [after - before for before, after in zip(found[1], found[2], strict=True)]
        for site, found in sizes.items()
    }
    assert added["site"][0] <= added["none"][0] + 8192 and added["site"][1] <= added["none"][1] + 2, added
    assert sizes["site"][2][0] <= sizes["none"][2][0] + 8192, sizes
    assert added["site"][0] < 500_000, "the packages are there once"


def test_a_truncated_or_replaced_entry_of_the_parents_cache_reaches_no_extension(tmp_path: Path) -> None:
    """Of a wheel that the site's cache has: what is found damaged there is fetched again by the user."""
    variables = site_of(tmp_path)
    file = tmp_path / "more.yaml"
    file.write_text((tmp_path / "stack.yaml").read_text().replace("name: sci", "name: more").replace("core", "addon"))
    inside("--yard", tmp_path / "sw", "deploy", file, **variables)
    (source,) = (tmp_path / "sw/cache/uv").glob("archive-v*/*/addon/__init__.py")
    for damage in (b"", b"raise SystemExit('replaced')\n"):
        source.chmod(0o644)
        status = source.stat()
        source.write_bytes(damage)
        os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
        own = tmp_path / f"own{len(damage)}"
        extend(own, **variables)
        (copied,) = own.glob("stacks/mine/*/prefix/lib/python*/site-packages/addon/__init__.py")
        assert copied.read_text() == "tag = 'py3-none-any'\n"
        shutil.rmtree(own)


def test_deploys_at_once_from_a_cold_cache_fetch_each_package_once(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    files = {f"share/{n}": "x" * 50_000 for n in range(40)}
    make_channel(tmp_path / "web" / "channel", [Package(name, "1.0", files=files) for name in names])
    wheel(tmp_path / "web" / "wheels", "leaf", "1.0")
    with guarded(tmp_path / "web") as server:
        words = []
        for number in range(8):
            file = tmp_path / f"s{number}.yaml"
            pip = [f"--no-index --find-links={server.url('wheels/')}", "leaf"]
            value = {"channels": [server.url("channel")], "dependencies": [*names, {"pip": pip}]}
            stack = {"name": f"s{number}", "version": "1", "interpreter": {"source": "host"}, "environment": value}
            file.write_text(json.dumps(stack))
            words.append([STACKYARD, "--yard", tmp_path / "yard", "deploy", file, "--locked"])
            inside("--yard", tmp_path / "other", "lock", file)
        server.seen.clear()
        all_of_them = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True) for each in words]
        said = [each.communicate(timeout=240)[1] for each in all_of_them]
    assert not any(each.returncode for each in all_of_them), said
    asked = [path for path, _ in server.seen]
    assert [sum(f"/{name}-1.0" in path for path in asked) for name in names] == [1, 1, 1]
    assert sum(path.endswith(".whl") for path in asked) == 1
