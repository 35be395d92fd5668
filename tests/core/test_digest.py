"""sha256 of what is in memory is that of OpenSSL, and needs none of its libraries."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from stackyard.core.digest import sha256_hex


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 999])
def test_the_digest_is_that_of_hashlib(content: bytes) -> None:
    assert sha256_hex(content) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("module", ["stackyard.yard.catalogue", "stackyard.deploy.memo"])
def test_what_lists_needs_neither_openssl_nor_records(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"_hashlib", "stackyard.yard.revision.record"} & {*done.stdout.split()}
