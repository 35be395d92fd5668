"""A mirror of a channel, all of it or a selection: without a lock, for platforms that this machine is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.channel import Package, make_channel
from support.cli import Done, inside
from support.webserver import served

POWER = "linux-ppc64le"
ALL = {
    "linux-ppc64le/powerai-1.6.2-0", "linux-ppc64le/powerai-1.7.0-0", "linux-ppc64le/powerai-rapids-1.7.0-0",
    "linux-64/powerai-1.7.0-0", "noarch/licence-1.0-0",
}  # fmt: skip


@dataclass(frozen=True)
class Bed:
    """A channel on a web server, and a mirror."""

    directory: Path
    url: str

    @property
    def mirror(self) -> Path:
        return self.directory / "mirror"

    def run(self, *words: str | Path, expect: int | None = 0) -> Done:
        return inside("--yard", self.directory / "yard", "mirror", *words, "--to", self.mirror, expect=expect)

    def there(self) -> set[str]:
        """The packages in the mirror: platform and file, without its suffix."""
        archives = [p for p in self.mirror.rglob("*") if p.name.endswith((".tar.bz2", ".conda"))]
        return {f"{path.parent.name}/{path.name.removesuffix('.tar.bz2').removesuffix('.conda')}" for path in archives}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    packages = [
        Package(name.rsplit("-", 2)[0], name.rsplit("-", 2)[1], subdir=subdir, files={"share/x": "x"})
        for subdir, name in (each.split("/") for each in sorted(ALL))
    ]
    make_channel(tmp_path / "web" / "wml", packages)
    with served(tmp_path / "web") as url:
        yield Bed(tmp_path, f"{url}/wml")


def test_the_whole_channel_for_a_platform(bed: Bed) -> None:
    done = bed.run("--channel", bed.url, "--platform", POWER)
    assert bed.there() == {name for name in ALL if not name.startswith("linux-64/")}
    assert "fetched 4 files" in done.out and "deploy FILE" not in done.out
    assert "fetched 0 files" in bed.run("--channel", bed.url, "--platform", POWER).out


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (["powerai 1.7.*"], {"powerai-1.7.0-0"}),
        (["powerai*"], {"powerai-1.6.2-0", "powerai-1.7.0-0", "powerai-rapids-1.7.0-0"}),
        (["powerai* 1.7.0"], {"powerai-1.7.0-0", "powerai-rapids-1.7.0-0"}),
        (["powerai ==1.6.2", "licence"], {"powerai-1.6.2-0", "licence-1.0-0"}),
    ],
)
def test_what_specs_fit(bed: Bed, specs: list[str], expected: set[str]) -> None:
    options = [word for spec in specs for word in ("--spec", spec)]
    bed.run("--channel", bed.url, "--platform", POWER, *options)
    assert {name.partition("/")[2] for name in bed.there()} == expected


def test_a_mirror_is_a_channel_to_lock_from(bed: Bed) -> None:
    bed.run("--channel", bed.url, "--platform", POWER, "--spec", "powerai", "--spec", "licence")
    (channel,) = bed.mirror.glob("conda/*/wml")
    file = bed.directory / "environment.yml"
    file.write_text(f"name: mine\nchannels: [{channel.as_uri()}]\ndependencies: [powerai]\nplatforms: [{POWER}]\n")
    inside("--yard", bed.directory / "yard", "lock", file, "--version", "1")
    assert "powerai-1.7.0-0" in (bed.directory / "environment.yml.lock").read_text()


def test_a_dry_run_writes_nothing(bed: Bed) -> None:
    done = bed.run("--channel", bed.url, "--platform", POWER, "--spec", "powerai", "--dry-run", "--json").value
    assert len(done["fetched"]) == 2 and done["bytes"] > 0
    assert not bed.mirror.exists()


def test_a_path_starts_at_the_working_directory(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bed.directory / "web")
    bed.run("--channel", "./wml", "--platform", POWER, "--spec", "licence")
    assert bed.there() == {"noarch/licence-1.0-0"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--spec", "powerai 9"], "no package fits powerai 9 in"),
        (["--spec", "missing*"], "no package fits missing* in"),
        (["--spec", "powerai >=>1"], "is not a conda requirement"),
    ],
)
def test_a_spec_that_fits_nothing(bed: Bed, words: list[str], text: str) -> None:
    done = bed.run("--channel", bed.url, "--platform", POWER, *words, expect=2)
    assert text in done.err.replace("'", "").replace('"', "") and not bed.mirror.exists()


def test_what_is_missing_or_excludes_another(bed: Bed) -> None:
    assert "missing argument FILE" in bed.run(expect=2).err
    assert "require --channel" in bed.run("--spec", "x", os.fspath(bed.directory / "stack.yaml"), expect=2).err


def test_a_channel_that_the_site_denies(bed: Bed) -> None:
    site = bed.directory / "site.yaml"
    site.write_text(f"channels: {{denied: ['{bed.url}']}}\n")
    words = ("--site", site, "--yard", bed.directory / "yard", "mirror", "--channel", bed.url, "--to", bed.mirror)
    assert "denied by the site" in inside(*words, expect=2).err
