"""Words of the user's in messages."""

from __future__ import annotations

import pytest

from stackyard import grammar
from stackyard.host.quoting import cut, quoted


def test_what_is_quoted() -> None:
    assert quoted("größe\x1b") == r"'größe\x1b'"
    assert quoted("a" * 160) == f"'{'a' * 160}'"
    assert quoted("a" * 161) == f"'{'a' * 160}...'"
    assert quoted(["a" * 200]) == f"['{'a' * 158}..."
    assert cut("a\nb c", 3) == "a\nb..."


@pytest.mark.parametrize("quote", [quoted, grammar.shown])
def test_half_a_secret_is_not_left(quote) -> None:
    secret = "n0t" * 100
    assert "n0t" not in quote(f"a @ https://me:{secret}@h.org/simple {'x' * 300}")


def test_foreign_letters_of_a_name_are_told_apart() -> None:
    with pytest.raises(grammar.NotAllowed, match=r"'P\\u0410TH' is not a variable name"):
        grammar.VARIABLE("P\u0410TH")
