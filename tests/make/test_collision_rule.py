"""The rule for paths that several packages install: what is said, who wins, which choices are errors. Pure."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.collisions import listings
from stackyard.make.collisions import rule as collisions
from stackyard.make.collisions.claims import Claim, Listings, Owner, require_plain, rows, shared
from stackyard.make.collisions.meaning import PKG_RESOURCES, PKGUTIL, meaning
from stackyard.make.collisions.rule import Choice
from stackyard.yard.revision.collision import Collision, sentences

SITE = "lib/python3.11/site-packages"
HEX = "ab" * 32


def owner(name: str, rank: int = 0, kind: str = "pip") -> Owner:
    return Owner(kind, name, rank, Path("/nowhere"))  # type: ignore[arg-type]


def claim(name: str, rank: int = 0, digest: str = "", kind: str = "pip") -> Claim:
    return Claim(owner(name, rank, kind), "row", digest)


def nothing(_: Claim) -> Path:
    raise AssertionError("no file has to be looked at")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{SITE}/LICENSE", "note"),
        (f"{SITE}/LICENSE.txt", "note"),
        (f"{SITE}/licence-MIT", "note"),
        (f"{SITE}/README.md", "note"),
        ("CHANGELOG", "note"),
        (f"{SITE}/tests/__init__.py", "note"),
        (f"{SITE}/docs/conf.py", "note"),
        (f"{SITE}/examples/a/b.py", "note"),
        ("share/man/man1/a.1", "note"),
        ("share/doc/a/README", "note"),
        (f"{SITE}/tests", "warning"),
        (f"{SITE}/tests.py", "warning"),
        (f"{SITE}/licenses_of.py", "warning"),
        (f"{SITE}/readmemaker/a.py", "warning"),
        (f"{SITE}/cvx/LICENSE", "warning"),
        (f"{SITE}/cvx/tests/a.py", "warning"),
        ("bin/readme", "warning"),
        ("share/data.txt", "warning"),
        (f"{SITE}/a.so", "warning"),
    ],
)
def test_only_papers_and_tests_at_the_top_are_harmless(path: str, kind: str) -> None:
    inner = path.removeprefix(f"{SITE}/") if path.startswith(SITE) else ""
    assert collisions.kind_of(path, inner) == kind


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"", b"# a comment\n", True),
        (b"", b'"""Of all."""\n', True),
        (b"x = 1\n", b"x = (1)  # one\n", True),
        (b"x = 1\n", b"x = 2\n", False),
        (b"x = 1\n", b"", False),
        (b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n",
         b"from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n", True),
        (b"import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n",
         b"try:\n    __import__('pkg_resources').declare_namespace(__name__)\nexcept ImportError:\n"
         b"    from pkgutil import extend_path\n    __path__ = extend_path(__path__, __name__)\n", True),
        (b"__import__('pkg_resources').declare_namespace(__name__)\n",
         b"import pkg_resources\npkg_resources.declare_namespace(__name__)\n", True),
        (b"__import__('pkg_resources').declare_namespace(__name__)\n",
         b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n", False),
        (b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n", b"", False),
        (b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\nx = 1\n",
         b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n", False),
        (b"try:\n    import pkgutil\nexcept ImportError:\n    pass\n", b"", False),
    ],
)  # fmt: skip
def test_what_an_init_means(one: bytes, other: bytes, same: bool) -> None:
    assert (meaning(one) == meaning(other)) is same


@pytest.mark.parametrize(
    "source", [b"(", b"\x00", b"\xff", b"(" * 5000 + b")" * 5000, b"-" * 60_000 + b"1", b"#" * (1 << 17)]
)
def test_a_source_that_cannot_be_parsed_means_nothing(source: bytes) -> None:
    assert meaning(source) is None


def test_the_two_kinds_of_namespaces_are_told_apart() -> None:
    assert meaning(b"__import__('pkg_resources').declare_namespace(__name__)\n") == PKG_RESOURCES
    assert meaning(b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n") == PKGUTIL


def test_hashes_of_both_kinds_of_lists_are_compared() -> None:
    digest = hashlib.sha256(b"x").digest()
    text = urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert collisions.as_hex(f"sha256={text}") == collisions.as_hex(digest.hex()) == digest.hex()
    assert [collisions.as_hex(each) for each in ("", "md5=abc", "sha256=%%%é", "abc", "sha256=")] == [""] * 5


def conda(name: str, *depends: str) -> CondaPackage:
    return CondaPackage(name, "1", "0", 0, "noarch", "c", "file:///x", "", depends=depends)


@pytest.mark.parametrize(
    ("packages", "order"),
    [
        ([conda("c"), conda("a"), conda("b")], "abc"),
        ([conda("a", "b >=1"), conda("b", "c"), conda("c")], "cba"),
        ([conda("a", "z"), conda("b"), conda("z")], "zab"),
        ([conda("a", "b"), conda("b", "a"), conda("c", "a")], "bac"),
        ([conda("a", "b", "c"), conda("b", "c"), conda("c", "b"), conda("d", "elsewhere")], "cbad"),
        ([conda("a", "a")], "a"),
    ],
)
def test_conda_packages_come_after_what_they_depend_on_else_by_name(packages: list[CondaPackage], order: str) -> None:
    assert "".join(package.name for package in collisions.in_order(packages)) == order
    assert "".join(package.name for package in collisions.in_order(packages[::-1])) == order


def test_a_long_chain_of_dependencies_needs_no_stack() -> None:
    packages = [conda(f"p{n:05}", f"p{n + 1:05}") for n in range(5000)]
    assert collisions.in_order(packages)[0].name == "p04999"


def test_equal_bytes_are_silent_and_nobody_loses_a_line() -> None:
    made = collisions.decide("bin/a", "", [claim("a", 0, HEX), claim("b", 1, HEX)], (), nothing)
    assert (made.kind, made.lost, made.winner.owner.name) == (None, (), "b")


def test_the_last_one_wins_with_a_warning_and_a_choice_without(tmp_path: Path) -> None:
    claims = [claim("Ocv_Full", 0, HEX), claim("b", 1, HEX.replace("a", "c"))]
    plain = collisions.decide(f"{SITE}/cvx/a.py", "cvx/a.py", claims, (), nothing)
    assert (plain.kind, plain.winner.owner.name, [each.owner.name for each in plain.lost]) == (
        "warning", "b", ["Ocv_Full"],
    )  # fmt: skip
    for pattern in ("cvx/a.py", f"{SITE}/cvx/a.py", "cvx/", "cvx/*", "*.py"):
        made = collisions.decide(f"{SITE}/cvx/a.py", "cvx/a.py", claims, [Choice(pattern, "ocv.full")], nothing)
        assert (made.kind, made.label, [each.owner.name for each in made.lost]) == ("chosen", "Ocv_Full", ["b"])
    other = collisions.decide(f"{SITE}/cvx/a.py", "cvx/a.py", claims, [Choice("cvx/b.py", "ocv.full")], nothing)
    assert other.kind == "warning"


def test_the_more_exact_choice_counts() -> None:
    claims = [claim("a", 0, HEX), claim("b", 1, HEX.replace("a", "c"))]
    both = [Choice("*", "b"), Choice("cvx/", "b"), Choice("cvx/a.py", "a")]
    for choices in (both, both[::-1]):
        assert collisions.decide(f"{SITE}/cvx/a.py", "cvx/a.py", claims, choices, nothing).label == "a"


def test_files_without_a_hash_are_compared_themselves(tmp_path: Path) -> None:
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(text)
    (tmp_path / "l").symlink_to("a")
    (tmp_path / "m").symlink_to("a")

    def lost(*names: str) -> list[str]:
        claims = [claim(name, n) for n, name in enumerate(names)]
        made = collisions.decide("share/x", "", claims, (), lambda each: tmp_path / each.owner.name)
        return [each.owner.name for each in made.lost]

    assert [lost("a", "b"), lost("a", "c"), lost("l", "m"), lost("l", "a"), lost("a", "c", "b")] == [
        [], ["a"], [], ["l"], ["c"],
    ]  # fmt: skip


def test_two_packages_of_one_name_are_told_apart() -> None:
    claims = [claim("numpy", 0, HEX, "conda"), claim("numpy", 1, HEX.replace("a", "c"))]
    assert list(collisions.labels(each.owner for each in claims).values()) == ["numpy (conda)", "numpy (pip)"]
    made = collisions.decide("bin/f2py", "", claims, [Choice("bin/f2py", "numpy (conda)")], nothing)
    assert made.label == "numpy (conda)"
    assert collisions.decide("bin/f2py", "", claims, [Choice("bin/f2py", "numpy")], nothing).label == "numpy (pip)"


def test_an_init_of_a_layer_hides_the_package_of_the_base_unless_both_are_namespaces() -> None:
    base, own = claim("x", -1, HEX, "base"), claim("y", 3, HEX)
    extend = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"

    def kind(name: str, *sources: bytes | None) -> str | None:
        return collisions.decide_on_base(f"{SITE}/{name}", name, base, own, (), sources).kind

    assert kind("g/__init__.py", extend, extend + b"# z") is None
    assert kind("g/__init__.py", b"", b"") == "warning"
    assert kind("g/a.py", None, None) is None  # equal bytes
    assert collisions.decide_on_base("bin/x", "", base, own, [Choice("bin/x", "x (base)")], ()).lost == (own,)


# --------------------------------------------------------------------------- choices that are wrong

PLACE = Where("/s/stack.yaml", 7, 3)


def test_a_choice_of_an_unknown_package_is_an_error_with_its_place() -> None:
    with pytest.raises(InputError, match="no such package in this stack: 'opencv-pyton'") as caught:
        collisions.require_known([Choice("cvx/a.py", "opencv-pyton", PLACE)], ["opencv-python", "numpy"])
    assert (caught.value.where, caught.value.hint) == (PLACE, "did you mean 'opencv-python'?")
    collisions.require_known(
        [Choice("cvx/a.py", "OpenCV_Python"), Choice("a", "numpy (conda)")], ["opencv-python", "numpy"]
    )


def test_a_choice_of_a_path_that_its_package_does_not_install_is_an_error_with_its_place() -> None:
    paths = [(f"{SITE}/cvx/a.py", "cvx/a.py", claim("a")), ("bin/x", "", claim("b"))]
    collisions.require_used([Choice("cvx/a.py", "a"), Choice("bin/*", "B"), Choice(SITE + "/", "a")], paths)
    for choice, text in (
        (Choice("cvx/b.py", "a", PLACE), "collisions: a does not install 'cvx/b.py'"),
        (Choice("bin/x", "a", PLACE), "collisions: a does not install 'bin/x', but b does"),
        (Choice("nothing/*", "a", PLACE), "collisions: a does not install 'nothing/*'"),
    ):
        with pytest.raises(InputError) as caught:
            collisions.require_used([choice], paths)
        assert (caught.value.message, caught.value.where) == (text, PLACE)


# --------------------------------------------------------------------------- lists of files


def test_lists_are_read_with_and_without_quotes() -> None:
    plain, path = b"a.py,sha256=x,1\r\nb.py,,\n\n\n", Path("R")
    assert list(rows(plain, path)) == [("a.py", "sha256=x"), ("b.py", "")]
    assert list(rows(b'"a,b.py",sha256=x,1\n"c""d\ne.py",,\nf.py,,\n', path)) == [
        ("a,b.py", "sha256=x"), ('c"d\ne.py', ""), ("f.py", ""),
    ]  # fmt: skip
    for bad in (b"\xff,,\n", b'"a\x00'):
        with pytest.raises(StackyardError, match="cannot read R"):
            list(rows(bad + b'"' * 300_000, path))


def test_lines_are_taken_out_of_a_list() -> None:
    assert listings.record_without("a,b,1\nc,d,2\ne,,\n", {"c"}) == "a,b,1\ne,,\n"
    assert listings.record_without('"a,x",b,1\nc,d,2\n"e""f",,\n', {"a,x", "c"}) == '"e""f",,\n'


def test_the_console_scripts_of_a_conda_list_are_in_order() -> None:
    def value(*paths: str) -> dict[str, object]:
        kinds = {"bin/a": "unix_python_entry_point", "bin/b": "unix_python_entry_point"}
        entries = [{"_path": path, "path_type": kinds.get(path, "hardlink")} for path in paths]
        return {"name": "x", "files": list(paths), "paths_data": {"paths_version": 1, "paths": entries}}

    good = value("bin/a", "bin/b", "lib/z", "lib/c")
    for paths in (("lib/z", "bin/b", "lib/c", "bin/a"), ("bin/b", "bin/a", "lib/z", "lib/c")):
        assert not listings.is_in_order(value(*paths)["paths_data"]["paths"])  # type: ignore[index]
        assert listings.conda_without(value(*paths), set()) == good
    assert listings.is_in_order(good["paths_data"]["paths"])  # type: ignore[index]
    assert listings.conda_without(good, {"bin/a", "lib/z"}) == value("bin/b", "lib/c")
    moved = listings.conda_from(value("__clobbers__/x/lib/z", "lib/c"), "__clobbers__/x/")
    assert moved == value("lib/z", "lib/c")


def _wheel(prefix: Path, name: str, text: str) -> Owner:
    info = prefix / SITE / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(text)
    return Owner("pip", name, 0, info / "RECORD")


def test_paths_that_lead_out_of_the_prefix_are_nobodys(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    one = _wheel(prefix, "one", "a.py,,\n./b.py,,\nx/../c.py,,\n../../../bin/d,,\n/etc/passwd,,\n../../../../e,,\n")
    found = [path for path, _ in Listings(prefix).all([one])]
    assert found == [f"{SITE}/a.py", f"{SITE}/b.py", f"{SITE}/c.py", "bin/d"]
    (prefix / "out").symlink_to("/usr")
    two = _wheel(prefix, "two", "../../../out/f,,\n")
    with pytest.raises(StackyardError, match=r"two installs into .*/out, which a symbolic link leads out"):
        list(Listings(prefix).all([two]))


def test_a_path_through_a_link_is_the_path_behind_it(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    one = _wheel(prefix, "one", "a.py,,\n../../../share/x,,\n")
    (prefix / "lib64").symlink_to("lib")
    two = Owner("pip", "two", 1, prefix / "lib64" / "python3.11" / "site-packages" / "two-1.0.dist-info" / "RECORD")
    two.listing.parent.mkdir()
    two.listing.write_text("a.py,,\n../../../lib64/../share/x,,\n")
    assert list(shared(Listings(prefix).all([one, two]))) == [f"{SITE}/a.py", "share/x"]


def test_a_list_may_name_a_path_twice() -> None:
    one, two = owner("one"), owner("two", 1)
    twice = [("a", Claim(one, "a", "1")), ("a", Claim(one, "./a", "2")), ("b", Claim(one, "b", ""))]
    assert shared(twice) == {}
    found = shared([*twice, ("a", Claim(two, "a", ""))])
    assert [each.owner.name for each in found["a"]] == ["one", "two"]


def test_no_order_helps_where_a_file_is_in_the_place_of_a_directory() -> None:
    one, two = Claim(owner("one"), "", ""), Claim(owner("two", 1), "", "")
    require_plain([("a", one), ("b/c", two), ("a/b", one)])  # a link of its own, and a file through it
    with pytest.raises(StackyardError, match="cannot install one and two: a is a file of the one, and a directory"):
        require_plain([("a", one), ("x/y", one), ("a/b/c/d", two)])


# --------------------------------------------------------------------------- what people read


def test_one_sentence_for_each_warning_and_one_for_all_notes() -> None:
    found = [
        Collision("note", ("a", "b"), "b", {"LICENSE": "", "tests/x": ""}),
        Collision("note", ("c", "d"), "d", {"README": "", "docs/x": ""}),
        Collision("warning", ("a", "b"), "b", {"bin/x\n": "", "bin/y": "", "bin/z": ""}),
        Collision("warning", ("a", "c"), "", {"bin/q": ""}),
        Collision("chosen", ("a", "b"), "a", {"bin/r": ""}),
    ]
    assert sentences(found) == [
        "path collision: bin/x\\n and 2 more of a, b: b wins",
        "path collision: bin/q of a, c: it is not known whose is there",
        "path collision in licences, documentation or tests: LICENSE, tests/x, README and 1 more of a, b, c and 1 more:"
        " the last one installed wins",
    ]
