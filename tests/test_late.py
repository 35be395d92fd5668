"""`stackyard.late.dataclass`: a dataclass like any other, whose methods are made when it is first used."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import threading
from dataclasses import field

import pytest

from stackyard import late
from stackyard.late import dataclass


@dataclass(frozen=True)
class Point:
    """A base."""

    x: int
    names: tuple[str, ...] = ()
    more: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Named(Point):
    """What extends a late class."""

    name: str = ""

    def __post_init__(self) -> None:
        assert self.x >= 0


def _fresh() -> type:
    @dataclass(frozen=True)
    class Fresh:
        """A class that nothing has used."""

        x: int = 1

    return Fresh


def test_waits_until_it_is_used() -> None:
    fresh = _fresh()
    assert fresh in late._WAITING
    assert fresh(2).x == 2
    assert fresh not in late._WAITING


@pytest.mark.parametrize(
    "use",
    [
        dataclasses.fields, dataclasses.is_dataclass, lambda cls: cls.__match_args__, lambda cls: cls(),
        lambda cls: hash(cls()), lambda cls: dataclasses.replace(cls(), x=2),
    ],
)  # fmt: skip
def test_every_use_makes_it(use: object) -> None:
    fresh = _fresh()
    assert use(fresh)  # type: ignore[operator]
    assert fresh(3) == fresh(3) != fresh(4)
    assert repr(fresh(3)).endswith("Fresh(x=3)")


def test_is_as_the_one_of_the_standard_library() -> None:
    one = Named(1, name="a")
    assert (one, repr(one)) == (Named(x=1, name="a"), "Named(x=1, names=(), more={}, name='a')")
    assert dataclasses.replace(one, x=2) == Named(2, name="a") != one
    assert dataclasses.asdict(one) == {"x": 1, "names": (), "more": {}, "name": "a"}
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert one.more is not Named(1).more
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.other = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Named()  # type: ignore[call-arg]
    with pytest.raises(AssertionError):
        Named(-1)


def test_threads_that_use_it_first_at_the_same_time() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    made: list[object] = []
    try:
        for _ in range(20):
            fresh, gate = _fresh(), threading.Barrier(4)

            def use(cls: type = fresh, gate: threading.Barrier = gate) -> None:
                gate.wait()
                made.append(cls(5) == cls(5) and hash(cls(5)) == hash(cls(5)))

            threads = [threading.Thread(target=use) for _ in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
    finally:
        sys.setswitchinterval(before)
    assert made == [True] * 80
