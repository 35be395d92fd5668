"""Local stand-ins for the channels of two sites, with packages of the same names, versions and dependencies.

What they hold is small: a framework is a module that knows its version. The Pythons that the releases were made for
cannot be had any more. For POWER they have a name and a version only, and can be locked; for this machine they are its
own Python under another version number, so that the sites' stacks can be built, verified and loaded as they are
written. Beside them there are builds of everything for this machine's Python as it is.

Against the real channels only the URL differs: `longhorn_channels` and `open_ce_channels` map each channel (its URL,
and the short name that the example's site has for it) to its directory; `mirrors` puts that in the form of a site.yaml.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from support.channel import PLACEHOLDER, Content, Link, Package, make_channel
from support.pythonpkg import VERSION, python_package
from support.testbed import HERE, kept
from support.wheelpkg import host_subdir

IBM_AI = "https://public.dhe.ibm.com/ibmdl/export/pub/software/server/ibm-ai/conda/"
OPEN_CE = "https://ftp.osuosl.org/pub/open-ce/current/"
DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
STANDIN = HERE / "standin"

PYTHONS = {"2.7": "2.7.18", "3.6": "3.6.13", "3.7": "3.7.10", "3.8": "3.8.8"}
CUDA = {"10.1": "10.1.243", "10.2": "10.2.89", "10.3": "10.3.3"}

# release: (Pythons, CUDA, {package: version}); from the release notes of WML CE and Open-CE.
POWERAI = {
    "1.6.0": (("2.7", "3.6"), "10.1", {"tensorflow": "1.13.1", "pytorch": "1.0.1", "horovod": "0.16.4"}),
    "1.6.1": (("2.7", "3.6"), "10.1", {"tensorflow": "1.14.0", "pytorch": "1.1.0", "horovod": "0.16.4"}),
    "1.6.2": (
        ("3.6", "3.7"),
        "10.1",
        {"tensorflow": "1.15.2", "pytorch": "1.2.0", "horovod": "0.18.2", "ddl": "1.5.0"},
    ),
    "1.7.0": (("3.6", "3.7"), "10.2", {"tensorflow": "2.1.0", "pytorch": "1.3.1", "horovod": "0.19.0", "ddl": "1.5.1"}),
}
OPENCE = {
    "0.1": (("3.6",), "10.2", {"tensorflow": "2.3.0", "pytorch": "1.6.0", "horovod": "0.19.5"}),
    "1.1.3": (("3.6", "3.7", "3.8"), "10.2", {"tensorflow": "2.4.1", "pytorch": "1.7.1", "horovod": "0.21.0"}),
}
RAPIDS = {"1.6.2": "0.9.0", "1.7.0": "0.11.0"}
RUNTIME = "python-of-this-machine"
DRESS = """import collections
import sys

Version = collections.namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = Version(*{number}, "final", 0)
sys.version = sys.version.replace(sys.version.split()[0], "{number[0]}.{number[1]}.{number[2]}", 1)
"""
MODULES = {"pytorch": "torch"}
"""Where a package's module is called otherwise."""


def platforms() -> tuple[str, ...]:
    """POWER, where the sites are, and this machine's own."""
    return tuple(dict.fromkeys(("linux-ppc64le", host_subdir())))


def longhorn_channels(directory: Path | None = None) -> dict[str, Path]:
    """IBM's channel and the defaults, for a site like TACC's Longhorn: powerai, powerai-rapids, conda 4.8.3.

    Args:
        directory: where they are made; None: the cache that all tests share.
    """
    return _channels("longhorn", {IBM_AI: "ibm-ai"}, _make_longhorn, directory)


def open_ce_channels(directory: Path | None = None) -> dict[str, Path]:
    """The Open-CE channel, IBM's and the defaults, for a site like OLCF's Summit: open-ce, ibm-wml-ce, horovod."""
    names = {OPEN_CE: "open-ce", "open-ce": "open-ce", IBM_AI: "ibm-ai", "ibm-wml-ce": "ibm-ai"}
    return _channels("open-ce", names, _make_open_ce, directory)


def mirrors(channels: Mapping[str, Path]) -> dict[str, str]:
    """What a site.yaml says under ``channels: mirrors:`` to use these directories instead of the real channels."""
    return {name: directory.as_uri() for name, directory in channels.items()}


def _channels(name: str, urls: dict[str, str], make: Callable[[Path], None], directory: Path | None) -> dict[str, Path]:
    if directory is None:
        inputs = [HERE / f"{stem}.py" for stem in ("archive", "channel", "pythonpkg", "sitechannels")]
        directory = kept(name, [*inputs, *sorted(STANDIN.iterdir())], make)
    else:
        make(directory)
    return {url: directory / name for url, name in urls.items()} | dict.fromkeys(DEFAULTS, directory / "defaults")


def _make_longhorn(directory: Path) -> None:
    make_channel(directory / "ibm-ai", vendor_packages("powerai", POWERAI))
    _make_defaults(directory / "defaults")


def _make_open_ce(directory: Path) -> None:
    make_channel(directory / "open-ce", vendor_packages("open-ce", OPENCE))
    make_channel(directory / "ibm-ai", vendor_packages("ibm-wml-ce", POWERAI))
    _make_defaults(directory / "defaults")


def _make_defaults(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        make_channel(directory, [*interpreters(Path(work)), *default_packages()])


def interpreters(work: Path) -> Iterator[Package]:
    """This machine's Python (its files in a package of their own), and the Pythons of those days."""
    real = python_package(work)
    links = {name: content for name, content in real.files.items() if isinstance(content, Link) and "/python" in name}
    files = {name: content for name, content in real.files.items() if name not in links}
    yield replace(real, name=RUNTIME, files=files)
    yield replace(real, files=links, depends=(RUNTIME,), suffix=".tar.bz2")
    for short, version in PYTHONS.items():
        yield dressed(short, version)
        for subdir in platforms():
            if subdir != host_subdir():
                only = {f"bin/python{short}": "This package can be locked, not run.\n"}
                yield Package("python", version, subdir=subdir, files=only)


def dressed(short: str, version: str) -> Package:
    """This machine's Python under another version number, which is what programs that ask it are told.

    It finds its packages where a Python of that version has them.
    """
    number = tuple(int(part) for part in version.split("."))
    own = f"lib/python{VERSION}/site-packages"
    files: dict[str, Content] = {f"bin/{name}": Link(f"python{VERSION}") for name in ("python", "python" + short[0])}
    files |= {
        f"bin/python{short}": Link(f"python{VERSION}"),
        f"lib/python{short}/site-packages/README.txt": "Packages are installed here.\n",
        f"{own}/dressed.pth": f"../../python{short}/site-packages\nimport dressed\n",
        f"{own}/dressed.py": DRESS.format(number=number),
    }
    return Package("python", version, subdir=host_subdir(), files=files, depends=(RUNTIME,))


def pythons(known: Iterable[str], subdir: str) -> tuple[str, ...]:
    """The Pythons for which a platform has builds: those of the release, and here this machine's own."""
    return (*known, VERSION) if subdir == host_subdir() else tuple(known)


def vendor_packages(
    meta: str, releases: Mapping[str, tuple[tuple[str, ...], str, dict[str, str]]]
) -> Iterator[Package]:
    """A vendor's releases: the package that names them all, frameworks for each Python, the CUDA libraries."""
    for subdir in platforms():
        for cuda, version in CUDA.items():
            yield from _cuda(cuda, version, subdir)
        yield Package(
            "powerai-license", "1.7.0", subdir=subdir, files={"share/powerai/license/en.txt": "Terms of use.\n"}
        )
        made: set[str] = set()
        for release, (known, cuda, contents) in releases.items():
            for python in pythons(known, subdir):
                for package in _release(meta, release, python, cuda, contents, subdir):
                    if package.filename not in made:
                        made.add(package.filename)
                        yield package


def _cuda(cuda: str, version: str, subdir: str) -> Iterator[Package]:
    """The toolkit and what is built for it; as upstream, it wants a driver that is new enough where there is one."""
    activate = {"etc/conda/activate.d/cudatoolkit.sh": 'export CUDATOOLKIT_HOME="$CONDA_PREFIX"\n',
                "etc/conda/deactivate.d/cudatoolkit.sh": "unset CUDATOOLKIT_HOME\n",
                "share/cudatoolkit/version.txt": f"{version}\n"}  # fmt: skip
    yield Package("cudatoolkit", version, subdir=subdir, files=activate, constrains=(f"__cuda >={cuda}",))
    for name, own in (("cudnn", "7.6.5"), ("nccl", "2.5.6")):
        data = {f"share/{name}/version.txt": f"{own}\n"}
        yield Package(name, own, build=f"cuda{cuda}_0", subdir=subdir, files=data, depends=(f"cudatoolkit {cuda}.*",))


def _release(
    meta: str, release: str, python: str, cuda: str, contents: dict[str, str], subdir: str
) -> Iterator[Package]:
    build = f"py{python.replace('.', '')}_0"
    gpu = (f"cudatoolkit {cuda}.*", f"cudnn * cuda{cuda}_0", f"nccl * cuda{cuda}_0")
    tensorflow = contents["tensorflow"]
    for name, version in contents.items():
        scripts = ("horovodrun = horovod:main",) if name == "horovod" else ()
        yield distribution(name, version, python, subdir, build, gpu, scripts)
    depends = (f"python {python}.*", f"tensorflow {tensorflow} {build}")
    yield Package("tensorflow-gpu", tensorflow, build=build, subdir=subdir, depends=depends)
    exact = tuple(f"{name} {version} {build}" for name, version in contents.items())
    everything = (f"python {python}.*", f"tensorflow-gpu {tensorflow}", "powerai-license", *exact)
    yield Package(meta, release, build=build, subdir=subdir, depends=everything)
    if meta == "powerai" and release in RAPIDS:
        yield distribution("cudf", RAPIDS[release], python, subdir, build, gpu, ())
        rapids = (f"python {python}.*", f"cudf {RAPIDS[release]} {build}")
        yield Package("powerai-rapids", release, build=build, subdir=subdir, depends=rapids)


def default_packages() -> Iterator[Package]:
    """What Anaconda's channel has beside Python: conda, and a newer tensorflow-gpu that strict priority keeps out."""
    for subdir in platforms():
        for python in pythons(PYTHONS, subdir):
            build = f"py{python.replace('.', '')}_0"
            yield conda_package("4.8.3", python, subdir)
            yield distribution("numpy", "1.16.6", python, subdir, build, (), ())
            yield distribution("six", "1.15.0", python, subdir, build, (), ())
            yield Package("tensorflow-gpu", "2.4.1", build=build, subdir=subdir, depends=(f"python {python}.*",))


def distribution(
    name: str, version: str, python: str, subdir: str, build: str, depends: Iterable[str], scripts: tuple[str, ...]
) -> Package:
    """A Python distribution with one module that knows its version, metadata and programs."""
    directory = f"lib/python{python}/site-packages"
    module = MODULES.get(name, name)
    text = f'"""{name}"""\n\n__version__ = "{version}"\n\n\ndef main():\n    print("{name} {version}")\n    return 0\n'
    files = {f"{directory}/{module}/__init__.py": text} | dict(_metadata(directory, module, version, scripts))
    needs = (f"python {python}.*", *depends)
    return Package(
        name, version, build=build, subdir=subdir, depends=needs, files=files,
        entry_points=scripts,
    )  # fmt: skip


def _metadata(directory: str, name: str, version: str, scripts: tuple[str, ...]) -> Iterator[tuple[str, Content]]:
    info = f"{name}-{version}.dist-info"
    yield f"{directory}/{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    yield f"{directory}/{info}/INSTALLER", "conda\n"
    yield (
        f"{directory}/{info}/WHEEL",
        "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    yield f"{directory}/{info}/top_level.txt", f"{name}\n"
    if scripts:
        yield f"{directory}/{info}/entry_points.txt", "\n".join(["[console_scripts]", *scripts, ""])
    own = ["METADATA", "WHEEL", "INSTALLER", "top_level.txt", "RECORD", *(["entry_points.txt"] if scripts else [])]
    programs = [f"../../../bin/{line.split(' = ')[0]},," for line in scripts]
    record = [f"{name}/__init__.py,,", *(f"{info}/{item},," for item in own), *programs]
    yield f"{directory}/{info}/RECORD", "\n".join(record) + "\n"


def conda_package(version: str, python: str, subdir: str) -> Package:
    """A stand-in for conda itself: its program, its shell scripts, its module; see ``standin/conda_cli.py``."""
    base = distribution(
        "conda", version, python, subdir, f"py{python.replace('.', '')}_0", (), ("conda = conda.cli:main",)
    )
    directory = f"lib/python{python}/site-packages"
    files: dict[str, Content] = dict(base.files)
    files[f"{directory}/conda/cli.py"] = (STANDIN / "conda_cli.py").read_text().replace("@VERSION@", version)
    files["condabin/conda"] = Link("../bin/conda")
    for name, path in (
        ("sh", "etc/profile.d/conda.sh"),
        ("csh", "etc/profile.d/conda.csh"),
        ("fish", "etc/fish/conf.d/conda.fish"),
    ):
        files[path] = (STANDIN / f"conda.{name}").read_text().replace("@PREFIX@", PLACEHOLDER)
    return Package(
        "conda",
        version,
        build=base.build,
        subdir=subdir,
        depends=base.depends,
        files=files,
        entry_points=base.entry_points,
    )
