"""`stackyard.core.late.dataclass`: a dataclass like any other, whose methods are made when it is first used."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import field
from types import FrameType
from typing import Any, ClassVar

import pytest

from stackyard.core import late
from stackyard.core.late import dataclass


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


@pytest.mark.parametrize("base_first", [True, False])
def test_what_extends_one_waits_by_itself(base_first: bool) -> None:
    base = _fresh()

    @dataclass(frozen=True)
    class More(base):  # type: ignore[misc, valid-type]
        """A class with a field more, which nothing has used."""

        y: int = 2

    if base_first:
        assert repr(base(3)).endswith("Fresh(x=3)")
        assert More in late._WAITING
    assert (More(5).x, More(5).y) == (5, 2)
    assert More not in late._WAITING
    assert repr(More(5)).endswith("More(x=5, y=2)")
    assert More(5) == More(5) != More(5, 3)
    assert base not in late._WAITING
    assert base(5) != More(5)


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


class Shapes:
    """Classes that use what a dataclass offers; `made` applies a decorator to each."""

    class Plain:
        x: int
        y: str = "y"
        many: list[int] = field(default_factory=list)
        fixed: int = field(default=4, init=False)
        own: list[int] = field(default_factory=list, init=False, repr=False)
        hidden: int = field(default=0, compare=False)

    class Words:
        shared: ClassVar[int] = 1
        x: int = 0
        word: int = field(default=2, kw_only=True)

    class Given:
        x: int
        given: dataclasses.InitVar[int] = 3

        def __post_init__(self, given: int) -> None:
            object.__setattr__(self, "x", self.x + given)

    class Equal:  # noqa: PLW1641 - as many have it
        x: int

        def __eq__(self, other: object) -> bool:
            return True

    class Empty:
        pass


def _outcome(use: Callable[[], object]) -> object:
    try:
        return use()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", ["Plain", "Words", "Given", "Equal", "Empty"])
@pytest.mark.parametrize("first", range(9))
def test_each_first_use_gives_what_the_standard_library_gives(name: str, frozen: bool, first: int) -> None:
    """Whatever is used first: each class is made anew for each first use, and all of it is used then."""

    def uses(decorator: Any) -> list[Callable[[], object]]:
        shape = vars(Shapes)[name]
        body = {k: copy.copy(v) for k, v in vars(shape).items() if k not in ("__dict__", "__weakref__")}
        cls = decorator(frozen=frozen)(type(name, (), body))

        def changed() -> object:
            one = cls(1)
            one.x = 5
            return repr(one)

        def dropped() -> object:
            one = cls(1)
            del one.x
            return repr(one)

        return [
            lambda: repr(cls(1)), lambda: (cls(1) == cls(1), cls(1) == cls(2), cls(1) == 1), lambda: hash(cls(1)),
            lambda: cls(1, "z", [1], 7), changed, dropped, lambda: [f.name for f in dataclasses.fields(cls)],
            lambda: cls.__match_args__, lambda: repr(cls(1, word=3)),
        ]  # fmt: skip

    ours, theirs = uses(dataclass), uses(dataclasses.dataclass)
    for number in (first, *range(len(ours))):
        mine, wanted = _outcome(ours[number]), _outcome(theirs[number])
        assert (repr(mine), type(mine).__name__) == (repr(wanted), type(wanted).__name__), number


def test_what_extends_a_frozen_one_without_a_decorator_has_attributes_of_its_own() -> None:
    class Wider(_fresh()):  # type: ignore[misc]
        pass

    one = Wider(2)
    one.more = 3
    assert (one.x, one.more) == (2, 3)
    del one.more
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 3


_UNHEARD = ("__get__", "method", "__set_name__")
"""No signal is heard where `with` gives its lock back; of the last one Python 3.11 makes a RuntimeError."""


def _interrupted(line: int, use: Callable[[], object]) -> bool:
    """Whether Ctrl-C at this line of what a use does, from 0, came before its end."""
    left = [line]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        left[0] -= event == "line" and frame.f_code.co_name not in _UNHEARD
        if left[0] < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    gc.disable()  # what is raised in a callback of the collector is lost
    sys.settrace(trace)
    try:
        use()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        gc.enable()
    return False


def _free() -> bool:
    """Whether another thread could make a class now."""
    taken: list[bool] = []
    other = threading.Thread(
        target=lambda: taken.append(late._LOCK.acquire(blocking=False) and not late._LOCK.release())
    )
    other.start()
    other.join()
    return taken == [True]


@pytest.mark.parametrize("frozen", [True, False])
def test_an_interrupt_reaches_the_caller_and_the_next_use_works(frozen: bool) -> None:
    def made() -> Any:
        @dataclass(frozen=frozen)
        class One:
            x: int
            more: list[int] = field(default_factory=list, compare=False)

        return One

    for line in range(0, 4000):
        cls = made()
        was = _interrupted(line, lambda cls=cls: (cls(1) == cls(2), repr(cls(1)), frozen and hash(cls(1))))  # type: ignore[misc]
        assert cls(1) == cls(1) != cls(2) and cls(1).more == [] and "One(x=1, more=[])" in repr(cls(1)), line
        assert not frozen or hash(cls(1)) == hash(cls(1)), line
        assert _free(), line
        if not was:
            break
    assert 100 < line < 3990


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
                one.join(60)
    finally:
        sys.setswitchinterval(before)
    assert made == [True] * 80


@pytest.mark.parametrize("use", [hash, repr, lambda one: one == one], ids=["hash", "repr", "eq"])
def test_an_interrupt_within_a_special_method_is_not_lost(
    use: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what the look-up of these methods raises, and would say that the object has no hash."""

    @late.dataclass(frozen=True)
    class Point:
        x: int

    whole, one = late._complete, Point(1)

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.setattr(late, "_complete", whole)
        raise KeyboardInterrupt

    monkeypatch.setattr(late, "_complete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        use(one)
    assert hash(one) == hash(Point(1)) and one == Point(1) and repr(one).endswith("Point(x=1)")
