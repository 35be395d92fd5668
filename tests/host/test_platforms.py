"""One table of platforms: every name in it agrees with the others."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from stackyard.core.names import canonical
from stackyard.host.files.elf import read_elf
from stackyard.host.machine import platforms
from stackyard.lock.pip.tags import uv_platform


def test_this_machine_is_in_the_table() -> None:
    here = platforms.of_machine(platform.machine())
    assert here is not None and here.conda == platforms.this_platform()
    assert platforms.machine_of(here.conda) == platform.machine()


def test_the_name_in_elf_files_is_that_of_this_interpreter() -> None:
    here, found = platforms.of_machine(platform.machine()), read_elf(Path(sys.executable).resolve())
    assert here is not None and found is not None and found.machine == here.elf


@pytest.mark.parametrize("name", platforms.BUILT_FOR)
def test_what_is_built_for_has_all_names(name: str) -> None:
    assert name in platforms.PLATFORMS and name in [each.conda for each in platforms.LINUX]
    assert uv_platform(name, "2.28")


def test_a_platform_outside_the_table_keeps_condas_word() -> None:
    assert platforms.machine_of("linux-armv7l") == "armv7l"
    assert platforms.of_machine("armv7l") is None


@pytest.mark.parametrize("name", ["a__b", "A-.b", "a.B", "a-b"])
def test_a_package_has_one_canonical_name(name: str) -> None:
    assert canonical(name) == "a-b"
