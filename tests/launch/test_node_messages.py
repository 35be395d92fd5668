"""Messages of a launch: JSON lines, whatever the pieces in which they arrive and whoever sends them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from stackyard.launch.node.messages import LINE_LIMIT, UNAUTHENTICATED_LIMIT, Connection, Decoder, encode


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection, and the socket at its other end."""
    one, other = socket.socketpair()
    one.setblocking(False)
    yield Connection(one), other
    one.close()
    other.close()


def test_lines_arrive_in_any_pieces() -> None:
    decoder, data = Decoder(), encode({"a": "ü\n"}) + encode({"b": [1]}) + b'{"c"'
    found = [message for byte in data for message in decoder.feed(bytes([byte]))]
    assert found == [{"a": "ü\n"}, {"b": [1]}]
    assert decoder.feed(b': 2}\n{"d": 3}\n') == [{"c": 2}, {"d": 3}]


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"GET / HTTP/1.0\r\n", "Expecting value"), (b"[1]\n", "not a JSON object"), (b"\xff\n", "codec"),
     (b"[" * 60_000 + b"\n", "line longer than"), (b"{" * (UNAUTHENTICATED_LIMIT + 1), "line longer than"),
     (b'{"a": "' + b"x" * UNAUTHENTICATED_LIMIT + b'"}\n', "line longer than")],
)  # fmt: skip
def test_other_data_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Decoder().feed(data)


def test_deep_nesting_is_refused_from_a_trusted_sender_too() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        Decoder(LINE_LIMIT).feed(b"[" * 60_000 + b"\n")


def test_long_lines_once_the_sender_is_trusted(pair: tuple[Connection, socket.socket]) -> None:
    connection, other = pair
    connection.trust()
    sender = Connection(other)
    other.setblocking(False)
    sender.send({"tail": "x" * (1 << 20)})
    assert sender.waiting, "more than the kernel takes at once"
    found: list[dict[str, object]] | None = []
    while not found:
        found = connection.receive()
        sender.flush()
        assert found is not None, connection.why
    assert len(str(found[0]["tail"])) == 1 << 20


def test_what_arrived_before_the_end_is_not_lost(pair: tuple[Connection, socket.socket]) -> None:
    connection, other = pair
    assert connection.receive() == []
    other.sendall(encode({"exit": 1}))
    other.close()
    connection.send({"go": 1})
    assert connection.receive() == [{"exit": 1}]
    assert connection.receive() is None
    assert connection.why


def test_nonsense_ends_a_connection(pair: tuple[Connection, socket.socket]) -> None:
    connection, other = pair
    other.sendall(b"[]\n")
    assert connection.receive() is None
    assert connection.why == "invalid message: not a JSON object"
