"""A handshake by which both ends of a connection prove that they know the secret of a step, without sending it.

The listening end begins. Later messages are read only after both proofs:

    {"challenge": n1}                              listening end
    {"answer": {"nonce": n2, "proof": p}}          connecting end; p = HMAC-SHA-256(secret, "answer n1 n2")
    {"welcome": q}                                 listening end; q = HMAC-SHA-256(secret, "welcome n1 n2")

The two proofs differ in their first word, so that neither can be sent back as the other (RFC 2104; the order is that of
ISO/IEC 9798-4, mutual authentication in three passes). Part of the agent: any Python from 3.6 on, standard library
alone, few imports (see `stackyard.launch.node.agent`).
"""

import hashlib
import hmac
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stackyard.launch.node.messages import Connection


READY = b"\0"
"""Sent by a connecting end that goes on with something else than messages, once the other one has proved itself."""


class Host:
    """The listening end of one connection."""

    def __init__(self, secret: "str") -> "None":
        self._secret, self._nonce = secret, _nonce()

    def challenge(self) -> "dict[str, Any]":
        """The first message."""
        return {"challenge": self._nonce}

    def welcome(self, message: "dict[str, Any]") -> "dict[str, Any] | None":
        """The reply to an answer; None if the other end does not know the secret."""
        answer = message.get("answer")
        if not isinstance(answer, dict):
            return None
        nonce, proof = answer.get("nonce"), answer.get("proof")
        if (
            nonce is None
            or not _is_nonce(nonce)
            or not _same(proof, _proof(self._secret, "answer", self._nonce, nonce))
        ):
            return None
        return {"welcome": _proof(self._secret, "welcome", self._nonce, nonce)}


class Guest:
    """The connecting end of one connection."""

    def __init__(self, secret: "str") -> "None":
        self._secret, self._nonce, self._expected = secret, _nonce(), ""

    def answer(self, message: "dict[str, Any]") -> "dict[str, Any] | None":
        """The answer to a challenge; None if `message` is not a challenge, or a second one."""
        challenge = message.get("challenge")
        if self._expected or challenge is None or not _is_nonce(challenge):
            return None
        self._expected = _proof(self._secret, "welcome", challenge, self._nonce)
        return {"answer": {"nonce": self._nonce, "proof": _proof(self._secret, "answer", challenge, self._nonce)}}

    def accepts(self, message: "dict[str, Any]") -> "bool":
        """Whether the other end has proved that it knows the secret."""
        return bool(self._expected) and _same(message.get("welcome"), self._expected)


def introduce(connection: "Connection", secret: "str", limit_s: "float") -> "str":
    """Perform the handshake as the connecting end; returns the reason of a failure, or empty.

    Leaves a time limit on the socket.
    """
    guest, until = Guest(secret), time.monotonic() + limit_s
    while True:
        connection.socket.settimeout(max(0.001, until - time.monotonic()))
        messages = connection.receive()
        if messages is None:
            return connection.why
        for message in messages:
            answer = guest.answer(message)
            if answer is not None:
                connection.send(answer)
            elif guest.accepts(message):
                connection.trust()
                return ""
            else:
                return "it does not know the secret"


def admit(connection: "Connection", secret: "str", limit_s: "float") -> "bool":
    """Perform the handshake as the listening end; whether the other end succeeds within `limit_s` and sends `READY`.

    Leaves a time limit on the socket. Raises OSError.
    """
    until = time.monotonic() + limit_s
    connection.socket.settimeout(limit_s)
    connection.demand(Host(secret))
    messages = connection.receive()
    while messages == [] and time.monotonic() < until:
        messages = connection.receive()
    return bool(messages and connection.prove(messages[0])) and connection.socket.recv(1) == READY


def _nonce() -> "str":
    return os.urandom(16).hex()


def _is_nonce(value: "Any") -> "bool":
    return isinstance(value, str) and len(value) == 32 and all(letter in "0123456789abcdef" for letter in value)


def _same(answer: "Any", expected: "str") -> "bool":
    """Compare in constant time; anything other than ASCII text is unequal."""
    return isinstance(answer, str) and hmac.compare_digest(answer.encode("utf-8", "surrogatepass"), expected.encode())


def _proof(secret: "str", what: "str", first: "str", second: "str") -> "str":
    return hmac.new(secret.encode(), f"{what} {first} {second}".encode(), hashlib.sha256).hexdigest()
