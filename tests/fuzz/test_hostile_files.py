"""Files built to hurt: none ends in a traceback, takes more than five seconds of a processor, or 500 MB.

`make test` tries every third of them, `make fuzz` all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.hostile import HOSTILE
from fuzz.limits import TooSlow, bounded
from fuzz.readers import READERS
from fuzz.test_fuzz import MANY


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader, failed = READERS[kind], []
    for name, text in list(HOSTILE[kind]())[:: 1 if MANY else 3]:
        path = tmp_path / reader.file
        path.write_bytes(text.encode())
        try:
            with bounded():
                reader.read(path)
        except (Exception, TooSlow) as error:
            failed.append(f"{name}: {type(error).__name__}: {error!s:.200}")
    assert not failed, "\n".join(failed)
