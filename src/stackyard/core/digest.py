"""sha256 of data in memory without OpenSSL, whose libraries take as long to load as listing a hundred revisions.

`random` of the standard library does the same. Files have `host.files.hashing`: for many bytes OpenSSL is quicker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and newer
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # a Python that was built without them
            from hashlib import sha256


def sha256_hex(content: bytes) -> str:
    """sha256 of some bytes, in hexadecimal digits."""
    return sha256(content).hexdigest()
