"""Determines the site and the yard of a command: named ones, those of the environment, or the system's.

The yard is the one named, else ``$STACKYARD_HOME``, else the site's template for users, else the XDG data directory.
The site is the one named, else ``$STACKYARD_SITE``, else ``/etc/stackyard/site.yaml``, else the account's own
``~/.config/stackyard/site.yaml``, else the built-in defaults. Read commands use two paths of a site; a small cache
keeps these by the hash of the site file, so that they do not parse it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard import __version__
from stackyard.core.digest import sha256_hex
from stackyard.core.errors import InputError, cause
from stackyard.core.late import dataclass
from stackyard.host.files import at, home
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.sites import siteyard
from stackyard.yard.layout import Yard, default_yard_root, own_part

if TYPE_CHECKING:
    from stackyard.inputs.sites.sitemodels import Site
    from stackyard.inputs.workspace import Workspace

SYSTEM_SITE = Path("/etc/stackyard/site.yaml")


def _require_no_variable(root: Path) -> None:
    if "$" in str(root):
        unset = re.search(r"\$\{?(\w+)", str(root))
        hint = f"set it: export {unset[1]}=DIRECTORY; or use --yard" if unset else "use --yard"
        written = str(root).removeprefix(f"{Path.cwd()}/")  # a variable at the beginning makes it a relative one
        raise InputError(f"unset variable in the yard's path: {written}", hint=hint)


def _require_file(file: Path) -> None:
    try:
        is_directory = stat.S_ISDIR(file.stat().st_mode)
    except FileNotFoundError as error:
        raise InputError(f"no such site file: {file}", hint="check --site and $STACKYARD_SITE") from error
    except OSError as error:
        why = f"cannot read the site file {file}: {cause(error)}"
        raise InputError(why, hint="check --site and $STACKYARD_SITE, or ask its owner") from error
    if is_directory:
        hint = f"name the file: {file}/site.yaml"
        raise InputError(f"cannot use the site file {file}: it is a directory", hint=hint)


@dataclass(frozen=True)
class Settings:
    """The named yard and site; None: not named. `keeps`: what is read from site.yaml is kept in the cache."""

    yard_option: Path | None = None
    site_option: Path | None = None
    keeps: bool = field(default=True, kw_only=True)

    def named_site(self) -> Path | None:
        """The site.yaml that is named, absolute, or None; it need not exist."""
        named = str(self.site_option or os.environ.get("STACKYARD_SITE", ""))
        return with_home(named).absolute() if named else None

    def site_file(self) -> Path | None:
        """The site.yaml in force, absolute, or None."""
        if file := self.named_site():
            _require_file(file)
            return file
        return next((file for file in (SYSTEM_SITE, own_site()) if file.exists()), None)

    def site(self) -> Site:
        """The site, parsed and validated; from its compiled form in the cache where the file was read before.

        A launch starts within tenths of a second, and parsing YAML with places takes one of them.
        """
        from stackyard.inputs.sites.sitemodels import Site

        file = self.site_file()
        if file is None:
            return Site()
        key = sha256_hex(f"{__version__}\0{file}\0".encode() + at.read_regular(file))
        cache = cache_directory() / f"site-{key}.compiled.json"
        with suppress(OSError, ValueError):
            return Site.model_validate_json(cache.read_bytes()).model_copy(update={"file": str(file)})
        from stackyard.inputs.sites.site import load_site

        site = load_site(file)
        with suppress(OSError):  # a home that is not writable costs time only
            if self.keeps:
                _keep(cache, site.model_dump_json(exclude_unset=True))
        return site

    def workspace(self) -> Workspace:
        """The site and the yard. Raises as `site` and `yard` do."""
        from stackyard.inputs.workspace import Workspace

        return Workspace(self.site(), self.yard())

    def yard(self, *, reading: bool = False) -> Yard:
        """The yard, with the site's own as its parent.

        Args:
            reading: it is only read: a moved or copied yard is then a notice, as for parents, instead of an error.

        Raises:
            InputError: its path cannot be used.
            StackyardError: it was moved or copied, so that its stacks do not work.
        """
        from stackyard.yard.others import moved  # late, as below: what prints these paths alone starts without them

        yard = self.yard_as_named()
        for ancestor in yard.lineage():
            problem = moved.look(ancestor, writing=ancestor is yard and not reading)
            if problem and ancestor is yard and not reading:
                raise problem.error()
            if problem:
                self.notice(f"{problem.sentence}; {problem.remedy}")
        return yard

    def yard_as_named(self) -> Yard:
        """The yard, wherever it was built."""
        root = self.yard_root()
        if os.geteuid() == 0:
            from stackyard.host.account import supervised

            supervised.require_rights(root)
        parent = siteyard.expanded(self._site_paths()[0])
        if parent is not None and self._readable(parent) and parent.resolve() != root.resolve():
            return own_part(Yard(root, Yard(parent)))
        return own_part(Yard(root))

    def yard_root(self) -> Path:
        """Its directory, which may not exist."""
        if self.yard_option is not None:
            root = self.yard_option
        elif os.environ.get("STACKYARD_HOME"):
            root = default_yard_root()
        else:
            root = siteyard.expanded(self._site_paths()[1]) or default_yard_root()
        _require_no_variable(root)
        root = root.absolute()
        _require_directory(root)
        return root

    def notice(self, text: str) -> None:
        """Report a sentence to the user: by default as a Python warning."""
        warnings.warn(text, stacklevel=2)

    def _readable(self, site_yard: Path) -> bool:
        """Whether the site's yard can be read; if this account has no access, a notice reports that it is not used.

        Raises:
            StackyardError: its file system does not answer.
        """
        from stackyard.yard import disk

        try:
            disk.look_into(site_yard)
            return True
        except PermissionError:
            self.notice(f"permission denied: {site_yard}; nothing of the site's yard is used")
            return False
        except OSError:
            return True  # not created yet

    def _site_paths(self) -> tuple[str, str]:
        file = self.site_file()
        if file is None:
            return "", ""
        digest = sha256_hex(at.read_regular(file))
        cache = cache_directory() / f"site-{digest}.json"
        try:
            brief = json.loads(cache.read_bytes())
            return str(brief["yard"]), str(brief["user_yard"])
        except (OSError, ValueError, KeyError, TypeError):
            site = self.site()
        with suppress(OSError):  # a home that is not writable costs time only
            if self.keeps:
                from stackyard.yard.write import atomic

                atomic.write_json(cache, {"yard": site.yard, "user_yard": site.user_yard})
        return site.yard, site.user_yard


def _keep(cache: Path, text: str) -> None:
    """Store a compiled site for its user, unless it has a login or a token; remove copies readable by others."""
    from stackyard.core.secrets import shown
    from stackyard.yard.write import atomic

    for old in cache.parent.glob("site-*.compiled.json"):
        if old.stat().st_mode & 0o077:
            old.unlink()
    if shown(text, base=True) == text:
        atomic.write_text(cache, text, mode=0o600)


def _require_directory(root: Path) -> None:
    """Raise InputError if a yard cannot be created because a file is at its path or above it."""
    for place in (root, *root.parents):
        if os.path.lexists(place):
            if place.is_file():
                hint = "choose a directory with --yard or $STACKYARD_HOME"
                raise InputError(f"cannot use the yard {root}: {place} is not a directory", hint=hint)
            return


def own_site() -> Path:
    """The site.yaml of this account, which counts where the system has none."""
    return config_directory() / "site.yaml"


def require_own_site() -> Path:
    """`own_site`. Raises MissingError if the account has no home."""
    if config_directory() == home.NOWHERE:
        raise home.no_home("cannot write a site file of your own", "name one: -o FILE")
    return own_site()


def config_directory() -> Path:
    """This account's configuration directory, shared by all machines with its home directory.

    A path that cannot exist for an account without a home.
    """
    return _own_directory("XDG_CONFIG_HOME", ".config")


def cache_directory() -> Path:
    """This account's cache directory, for computable files outside of yards.

    A path that cannot exist for an account without a home.
    """
    return _own_directory("XDG_CACHE_HOME", ".cache")


def _own_directory(variable: str, below_home: str) -> Path:
    path = home.xdg(variable, below_home)
    return path / "stackyard" if path else home.NOWHERE


def scratch_yard() -> Path:
    """This account's yard for solves whose results must not be written to the yard in use.

    Raises:
        MissingError: the account has no home.
    """
    path = cache_directory()
    if path == home.NOWHERE:
        hint = "set HOME or XDG_CACHE_HOME to a directory of yours; or use a yard that you can write to, with --yard"
        raise home.no_home("cannot solve without a directory for caches", hint)
    return path / "yard"
