"""The checksum of a file of the yard covers every byte of it, in JSON and in TOML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.lock.lockfile import text
from stackyard.yard import checksum

JSON = json.dumps({"a": 1, "b": ["x", {"c": "ä"}]}, indent=2, ensure_ascii=False) + "\n"
TOML = 'a = 1\n\n[b]\nc = "ä"\n'


@pytest.mark.parametrize("plain", [JSON, TOML])
def test_the_text_comes_back(plain: str) -> None:
    made = checksum.add(plain)
    assert checksum.remove(made) == (plain, True)
    assert checksum.remove(plain) == (plain, False)
    assert plain is TOML or json.loads(made)


@pytest.mark.parametrize("plain", [JSON, TOML])
@pytest.mark.parametrize("bit", [1, 16, 64])
def test_no_byte_can_change_unnoticed(plain: str, bit: int) -> None:
    data = checksum.add(plain).encode()
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]
        try:
            _, had = checksum.remove(changed.decode())
        except ValueError:
            continue
        assert not had and position < 30, position  # the first words: then the key is unknown, or missing


def test_a_lock_that_the_yard_keeps_is_checked(tmp_path: Path, data: Path) -> None:
    plain = (data / "formats/stack-1.lock").read_text()
    path = tmp_path / "a.lock"
    path.write_text(checksum.add(plain))
    assert text.read(path) == text.parse(plain, "")
    path.write_text(checksum.add(plain).replace('"six"', '"sax"'))
    with pytest.raises(InputError, match="cannot read the lock: checksum mismatch"):
        text.read(path)
