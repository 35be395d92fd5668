"""Calls that change, open or walk by path, in rooms that work where other accounts can write; `make lint` runs it.

There `stackyard.host.files.at`, `stackyard.yard.write.within` and the functions with ``top=`` do these things by
descriptors. Ruff forbids `os.chmod` and `shutil.rmtree` everywhere (TID251); this finds also `path.chmod(...)`, whose
type ruff does not know, and a call of `os` without ``dir_fd``. What is allowed is in pyproject.toml: each file with the
calls, and why.

    python scripts/path_calls.py        # names each call that is not allowed, and each allowance that nothing needs
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BY_DESCRIPTOR = {"dir_fd", "src_dir_fd", "dst_dir_fd"}
OS = {
    "chmod", "chown", "lchown", "fwalk", "link", "makedirs", "mkdir", "mkfifo", "mknod", "open", "remove", "removedirs",
    "rename", "renames", "replace", "rmdir", "symlink", "truncate", "unlink", "utime", "walk",
}  # fmt: skip
METHODS = {
    "chmod", "hardlink_to", "lchmod", "link_to", "mkdir", "open", "read_bytes", "read_text", "rename", "rmdir",
    "symlink_to", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
WITH_TOP = {
    "atomic": {"replace_symlink", "write_bytes", "write_json", "write_text"},
    "disk": {"copy_tree", "delete_tree", "link_or_copy", "reflink", "remove_tree"},
    "permissions": {"settle"},
}
"""Functions that go by descriptors where they are given a trusted directory, as ``top=`` or second argument."""


def calls(source: str) -> Iterator[tuple[int, str]]:
    """The line and the name of each call by path."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (name := _by_path(node)):
            yield node.lineno, name


def _by_path(call: ast.Call) -> str:
    function, given = call.func, {word.arg for word in call.keywords}
    if isinstance(function, ast.Name):
        return "settle" if function.id == "settle" and "top" not in given else ""
    if not isinstance(function, ast.Attribute):
        return ""
    module, name = function.value.id if isinstance(function.value, ast.Name) else "", function.attr
    if module == "os":
        return f"os.{name}" if name in OS and not given & BY_DESCRIPTOR else ""
    if module == "shutil":
        return f"shutil.{name}"
    if module in WITH_TOP:
        second = name in ("remove_tree", "delete_tree") and len(call.args) > 1
        return f"{module}.{name}" if name in WITH_TOP[module] and "top" not in given and not second else ""
    if module in ("at", "within") or (name == "replace" and len(call.args) != 1):
        return ""
    return f".{name}" if name in METHODS or name == "replace" else ""


def main() -> int:
    """Compare with what is allowed."""
    settings: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["stackyard"]["paths"]
    allowed: dict[str, list[str]] = dict(settings["allowed"])
    wrong = []
    for file in sorted(file for pattern in settings["checked"] for file in Path("src/stackyard").glob(pattern)):
        *names, _why = allowed.pop(file.relative_to("src/stackyard").as_posix(), [""])
        found = list(calls(file.read_text()))
        used = {name for _, name in found}
        wrong += [f"{file}:{line}: {name} by path" for line, name in found if name not in names]
        wrong += [f"{file}: {name} is allowed, and not used" for name in names if name not in used]
    wrong += [f"pyproject.toml: {file} is allowed, and not checked" for file in allowed]
    print("\n".join(wrong) or "Calls by path: only where they are allowed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
