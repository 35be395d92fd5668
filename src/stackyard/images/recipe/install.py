"""Installs the packages of packages.json and pylock.toml into a prefix. Runs in a recipe's build.

    python install.py PREFIX

It needs py-rattler and uv. It needs py-rattler and uv. Every archive is verified by its sha256. Bytecode is compiled
with an unchecked source hash, so it stays valid when copied.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main(prefix: Path) -> None:
    """Install both kinds of packages and compile them."""
    if prefix.exists():
        sys.exit(f"{prefix} exists in this image: take another builder, or another prefix")
    packages = json.loads((HERE / "packages.json").read_text(encoding="utf-8"))
    uv = Path(sys.executable).with_name("uv")
    if packages["conda"]:
        asyncio.run(_conda(packages, prefix))
    else:
        subprocess.run([uv, "venv", "--python", packages["python"], "--no-python-downloads", prefix], check=True)
    python = prefix / "bin" / "python"
    if (HERE / "pylock.toml").exists():
        words = [str(uv), "pip", "install", "--python", str(python), "--no-deps", "--link-mode", "copy", "--no-cache"]
        subprocess.run([*words, "--break-system-packages", "--requirement", str(HERE / "pylock.toml")], check=True)
    if python.exists():
        words = [str(python), "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
        subprocess.run([*words, "-s", f"{prefix}/", str(prefix / "lib")], check=False)  # some packages hold Python 2


async def _conda(packages: "dict[str, Any]", prefix: Path) -> None:
    from rattler import Subdir, install

    records = [_record(package) for package in packages["conda"]]
    await install(
        records, prefix, platform=Subdir(packages["platform"]), execute_link_scripts=True, show_progress=False
    )
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)  # backups would skip the prefix


def _record(package: "dict[str, Any]") -> Any:
    from rattler import BuildString, PackageRecord, RepoDataRecord

    record = PackageRecord(
        package["name"], package["version"], BuildString(package["build"]), package["build_number"], package["subdir"],
        noarch=package["noarch"] or None, depends=package["depends"], sha256=bytes.fromhex(package["sha256"]),
        size=package["size"] or None, python_site_packages_path=package["site_packages"] or None,
    )  # fmt: skip
    return RepoDataRecord(record, package["url"].rsplit("/", 1)[-1], package["url"], package["channel"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
