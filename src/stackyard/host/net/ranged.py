"""Reads parts of a file on a web server: the directory at the end of an archive, and one member."""

from __future__ import annotations

import io

from stackyard.host.net import http
from stackyard.host.net.trust import PLAIN, Trust

_TAIL = 1 << 16


class RangedFile(io.RawIOBase):
    """A seekable file, read by range requests (RFC 9110, section 14). Its last 64 KiB are read at once.

    Raises:
        OSError: the server supports no ranges, or cannot be reached.
    """

    def __init__(self, url: str, timeout_s: float, trust: Trust = PLAIN) -> None:
        super().__init__()
        self._url, self._timeout_s, self._trust = url, timeout_s, trust
        self._at = 0
        self._tail, self._size = self._fetch(f"bytes=-{_TAIL}")

    def _fetch(self, span: str) -> tuple[bytes, int]:
        """A part, and the size of the whole file."""
        try:
            with http.exchange("GET", self._url, {"Range": span}, None, self._timeout_s, self._trust) as answer:
                if answer.status != 206:
                    raise OSError(f"HTTP status {answer.status} to a range request")
                size = (answer.headers["Content-Range"] or "").rpartition("/")[2]
                if not size.isdecimal():
                    raise OSError("the answer to a range request does not say how large the file is")
                return answer.read(), int(size)
        except OSError:
            raise
        except http.FAILURES as error:
            raise OSError(http.explain(error)) from error

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, as for any file."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """The next bytes: from the already fetched end, else by a request."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        start, self._at = self._at, max(self._at, end)
        if start >= end:
            return b""
        first = self._size - len(self._tail)
        if start >= first:
            return self._tail[start - first : end - first]
        return self._fetch(f"bytes={start}-{end - 1}")[0]
