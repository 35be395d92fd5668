"""Reports damage of a compressed stream as one error, although Python's modules have different ones."""

from __future__ import annotations

from typing import IO, cast


class _DamageStream:
    def __init__(self, stream: IO[bytes], damage: tuple[type[Exception], ...]) -> None:
        self._stream, self._damage = stream, damage

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        try:
            return self._stream.read(size)
        except self._damage as error:
            if getattr(error, "errno", None) is not None:  # of the file itself, not of what it holds
                raise
            raise EOFError(str(error)) from error


def checked(stream: object, *damage: type[Exception]) -> IO[bytes]:
    """A stream whose `read` raises EOFError in place of the exceptions in `damage`."""
    return cast(IO[bytes], _DamageStream(cast(IO[bytes], stream), damage))
