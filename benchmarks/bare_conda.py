"""Installs a list of conda packages with py-rattler and nothing else: ``bare_conda.py CONDA.JSON PREFIX CACHE``."""

import asyncio
import json
import os
import sys
from pathlib import Path

from rattler import BuildString, PackageCache, PackageRecord, RepoDataRecord, install


def record(package: dict) -> RepoDataRecord:
    """A package of the list as py-rattler expects it."""
    made = PackageRecord(
        name=package["name"],
        version=package["version"],
        build=BuildString(package["build"]),
        build_number=package["build_number"],
        subdir=package["subdir"],
        noarch=package["noarch"] if package["noarch"] in ("python", "generic") else None,
        depends=list(package["depends"]),
        constrains=list(package["constrains"]),
        sha256=bytes.fromhex(package["sha256"]),
        size=package["size"] or None,
        python_site_packages_path=package["python_site_packages_path"] or None,
    )
    return RepoDataRecord(made, package["url"].rpartition("/")[2], package["url"], package["channel"])


def main() -> None:
    """Install."""
    packages, prefix, cache = sys.argv[1:]
    records = [record(package) for package in json.loads(Path(packages).read_text())]
    asyncio.run(install(records, prefix, package_cache=PackageCache(cache), show_progress=False))
    os._exit(0)  # py-rattler 0.28 may crash when the interpreter ends while its threads do


if __name__ == "__main__":
    main()
