"""The site's policy for environments that users create, as a condarc beside every revision.

conda and mamba read it because the revision's module offers its path as CONDARC.
"""

from __future__ import annotations

import json
import re
from typing import Any

from stackyard.core import secrets
from stackyard.core.errors import InputError, Where
from stackyard.inputs.models import Site
from stackyard.lock.conda.channels import Resolver

_NOT_IN_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def condarc_text(site: Site) -> str:
    """The text of the condarc: threads, channels, strict priority, no automatic update, pins.

    Each value is written as JSON, which is YAML too where the characters that YAML folds or rejects are escaped.
    """
    policy = site.condarc
    values: dict[str, Any] = {
        "channel_alias": secrets.address(site.channels.alias, conda=True, base=True),
        **_channels(site),
        "channel_priority": site.channels.priority,
        "default_threads": policy.threads,
        "auto_update_conda": policy.auto_update,
        "pinned_packages": list(site.pins),
    }
    denied = [name for name in site.channels.denied if not set(name) & set("*?[")]
    if denied:
        values["denylist_channels"] = denied
    values.update(policy.extra)
    _refuse_secrets(policy.extra, site.file)
    lines = [f"{key}: {_json(value)}\n" for key, value in values.items()]
    return "# The site's policy for the environments that users make; CONDARC names this file.\n" + "".join(lines)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _refuse_secrets(values: Any, file: str) -> None:
    """Raise InputError for a password or token: every user can read a condarc."""
    text = json.dumps(values, ensure_ascii=False)
    if secrets.shown(text) != text:
        message = f"condarc.extra contains a login or a token, which all users could read: {secrets.shown(text)}"
        hint = "write ${NAME} in its place, which conda reads from the environment; logins belong into ~/.netrc"
        raise InputError(message, where=Where(file) if file else None, hint=hint)


def _channels(site: Site) -> dict[str, list[str]]:
    """The channels that users search, the site's first, without duplicates, replaced by their mirrors."""
    open_to_all = site.channels.model_copy(update={"allowed": (), "denied": ()})  # conda itself rejects those denied
    resolver = Resolver(open_to_all, Where(""))
    channels: dict[str, list[str]] = {}
    for name in (*site.channels.prepend, *(site.condarc.channels or site.channels.default)):
        urls = [] if "$" in name else list(dict.fromkeys(channel.url for channel in resolver.resolve(name)))
        as_written = not urls or name == "defaults" or not site.channels.mirrors
        channels.setdefault((name if as_written else urls[0]).rstrip("/"), urls)
    values = {"channels": list(channels)}
    if channels.get("defaults") and site.channels.mirrors:
        values["default_channels"] = channels["defaults"]
    return values
