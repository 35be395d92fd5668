"""The symbol versions of ELF files: of both word sizes and byte orders, as pyelftools reads them, and damaged ones."""

from __future__ import annotations

import struct
import sysconfig
import time
from itertools import product
from pathlib import Path

import pytest

from stackyard.images.bindings.elf.versions import Versions, read_versions

STRINGS = b"\0libc.so.6\0GLIBC_2.34\0GLIBC_2.2\0WEAK_1\0libx.so.1\0X_1\0X_2\0"


def at(text: bytes) -> int:
    return STRINGS.index(b"\0" + text + b"\0") + 1


def elf(*, wide: bool, big: bool, chain: int = 16) -> bytes:
    """A file with the sections: strings, needed versions (libc: two and a weak one; libx: one), defined (two)."""
    order = ">" if big else "<"
    need = struct.Struct(f"{order}HHIII")
    aux = struct.Struct(f"{order}IHHII")
    names = [(b"GLIBC_2.34", 0), (b"GLIBC_2.2", 0), (b"WEAK_1", 2)]
    libc = [aux.pack(0, flags, 2, at(name), 16 if number < 2 else 0) for number, (name, flags) in enumerate(names)]
    needed = need.pack(1, 3, at(b"libc.so.6"), chain, 64) + b"".join(libc)
    needed += need.pack(1, 1, at(b"libx.so.1"), 16, 0) + aux.pack(0, 0, 3, at(b"X_1"), 0)
    define, name = struct.Struct(f"{order}HHHHIII"), struct.Struct(f"{order}II")
    defined = define.pack(1, 0, 1, 2, 0, 20, 36) + name.pack(at(b"X_2"), 8) + name.pack(at(b"X_1"), 0)
    defined += define.pack(1, 0, 2, 1, 0, 20, 0) + name.pack(at(b"X_1"), 0)
    parts = [(3, STRINGS, 0), (0x6FFFFFFE, needed, 1), (0x6FFFFFFD, defined, 1)]
    head = 64 if wide else 52
    table, data = [struct.pack(f"{order}{'IIQQQQIIQQ' if wide else '10I'}", *([0] * 10))], b""
    for kind, content, link in parts:
        form = f"{order}{'IIQQQQIIQQ' if wide else '10I'}"
        table.append(struct.pack(form, 0, kind, 0, 0, head + len(data), len(content), link, 2, 1, 0))
        data += content
    ident = b"\x7fELF" + bytes([2 if wide else 1, 2 if big else 1, 1]) + bytes(9)
    form = f"{order}HHI{'QQQ' if wide else 'III'}IHHHHHH"
    fields = (3, 62, 1, 0, 0, head + len(data), 0, head, 0, 0, len(table[0]), len(table), 0)
    return ident + struct.pack(form, *fields) + data + b"".join(table)


EXPECTED = Versions(
    {"libc.so.6": frozenset({"GLIBC_2.34", "GLIBC_2.2"}), "libx.so.1": frozenset({"X_1"})}, frozenset({"X_1", "X_2"})
)


@pytest.mark.parametrize(("wide", "big"), list(product((False, True), repeat=2)))
def test_both_word_sizes_and_byte_orders(wide: bool, big: bool, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(elf(wide=wide, big=big))
    assert read_versions(tmp_path / "lib.so") == EXPECTED
    assert by_elftools(tmp_path / "lib.so") == EXPECTED, "the file of this test is not what others read"


def by_elftools(path: Path) -> Versions:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

    needed: dict[str, frozenset[str]] = {}
    defined: set[str] = set()
    with path.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for library, entries in section.iter_versions():
                    names = frozenset(entry.name for entry in entries if not entry.entry.vna_flags & 2)
                    name = str(library.name)
                    needed[name] = needed.get(name, frozenset()) | names
            elif isinstance(section, GNUVerDefSection):
                defined |= {next(iter(names)).name for _, names in section.iter_versions()}
    return Versions(needed, frozenset(defined))


def test_libraries_of_this_machine() -> None:
    """A C library with some forty definitions, and the modules of an interpreter."""
    files = [*Path("/usr/lib").glob("*-linux-gnu*/lib[cm].so.6"), *Path("/lib64").glob("lib[cm].so.6")]
    files += sorted(Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so"))[:40]
    if not files:
        pytest.skip("no libraries with versions found")
    assert [read_versions(file) for file in files] == [by_elftools(file) for file in files]


def test_a_damaged_file_has_none_and_takes_no_time(tmp_path: Path) -> None:
    whole = elf(wide=True, big=False)
    for size in range(4, len(whole) - 24, 7):  # the last fields of the last header are not needed
        (tmp_path / f"{size}.so").write_bytes(whole[:size])
        assert read_versions(tmp_path / f"{size}.so") == Versions()
    place, started = whole.index(struct.pack("<HHI", 1, 3, at(b"libc.so.6"))), time.process_time()
    for number, (count, step) in enumerate([(65535, 0), (3, 1 << 31), (65535, 1)]):
        changed = bytearray(whole)
        struct.pack_into("<H", changed, place + 2, count)
        struct.pack_into("<I", changed, place + 12, step)
        (tmp_path / f"changed-{number}.so").write_bytes(changed)
        read_versions(tmp_path / f"changed-{number}.so")
    assert time.process_time() - started < 2
