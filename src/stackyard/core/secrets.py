"""Recognises secrets, and keeps them out of texts.

An *address* is a URL without its secrets, as used everywhere except for the transfer itself: files, messages, command
lines, other programs. It has no login, variables in it stay ``${NAME}``, and a literal token is ``***``. `address`
makes one from a URL in a file and remembers the removed parts in this process; `reached` inserts them again, for
`host.net.http`, which sends them, and `host.net.gateway`, which searches links for them. So text made of addresses
contains no secret, even a short or unusual one.

Text of other origin (the output of programs, the words of a user's file) passes `redacted` before it leaves.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from urllib.parse import quote, unquote

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass

HIDDEN = "***"
"""What stands for a secret."""
ALIAS_DOMAIN = "stackyard.invalid"
"""The domain of aliases; the top-level domain is reserved (RFC 6761), so that no lookup ever leaves the machine."""

Login = tuple[str, str]
"""User name and password."""

_URL = re.compile(
    r"(?P<vcs>(?:git|hg|svn|bzr)\+)?(?P<scheme>[A-Za-z][\w.-]*)://"
    r"(?:(?P<user>[^/?#]*)@)?(?P<host>[^/?#@]*)(?P<rest>.*)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_MARKER = re.compile(r"%24%7B([A-Za-z_]\w*)%7D", re.IGNORECASE)
_HEAD = re.compile(r"(?:[a-z+]+://(?:[^/]*@)?)?[^/@]*\$\{[A-Za-z_]\w*\}[^/@]*(?=/|$)")
"""What comes before the path, where a variable gives the server or more; a variable in a login does not."""
_SHORTEST = 8
"""A shorter value is not searched for in text, where it would match unrelated words; addresses lack it anyway."""

_WEB = ("http", "https")
_TOKEN = r"(?:gh[oprsu]_\w{20,}|github_pat_\w{20,}|gl[a-z]{2,5}-[\w-]{18,}|hf_[A-Za-z0-9]{20,}|pypi-[\w-]{40,}|sk-"
_TOKEN += r"[\w-]{20,}|xox[a-z]-[\w-]{10,}|npm_\w{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
_KNOWN_TOKEN = re.compile(rf"(?<![\w-]){_TOKEN}")
_RANDOM = re.compile(r"(?=[^/]*[A-Z])(?=[^/]*[a-z])(?=[^/]*\d)[A-Za-z0-9]{16,}|(?=[^/]*[a-f])(?=[^/]*\d)[0-9a-f]{20,}")
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|AUTH|COOKIE|SAS|SIG|SIGNATURE)"
    r"(?:_(?:ID|VALUE|DATA|BASE64))?$|PASSWORD|SECRET|APIKEY|CREDENTIAL",
    re.IGNORECASE,
)
_QUERY_SECRET = re.compile(r"([?&](?:[\w.-]*(?:token|secret|password|signature)|sig|key|api_?key)=)([^&#]+)", re.I)
_URL_IN_TEXT = re.compile(r"[A-Za-z][\w+.-]{0,40}://[^\s\"'<>|]+")
_HEADER = re.compile(r"(authorization:\s*(?:basic|bearer|token)\s+)[^\s\"',;]+", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name usually holds a secret: WANDB_API_KEY, HF_TOKEN, PGPASSWORD ..."""
    return name not in ("PWD", "OLDPWD") and bool(_SECRET_NAME.search(name))


def is_secret(name: str, value: str) -> bool:
    """Whether a variable has a secret, by its name or by the form of its value."""
    return is_secret_name(name) or shown(value) != value or _KNOWN_TOKEN.search(value) is not None


# --------------------------------------------------------------------------- what this process knows
# Threads of `host.net.gateway` add to these tables: iterate over a copy.

_logins: dict[str, dict[str, Login]] = {}  # by origin, then by path; may hold ${NAME}
_tokens: dict[str, str] = {}  # the beginning of an address that ends with a token: the same with the token
_heads: dict[str, str] = {}  # the beginning of a URL: how an address has it, where variables give server or more
_aliases: dict[str, str] = {}  # the host name of an alias: its origin
_values: dict[str, str] = {}  # a value that is long enough to be searched for: what replaces it


def know(value: str, name: str = HIDDEN) -> None:
    """Register a secret value: `redacted` replaces it by `name` everywhere."""
    for text in (value, quote(value, safe=""), unquote(value)):
        if len(text) >= _SHORTEST:
            _values.setdefault(text, name)


# --------------------------------------------------------------------------- addresses


@dataclass(frozen=True)
class _Parts:
    vcs: str
    scheme: str
    user: str
    host: str
    rest: str

    @property
    def origin(self) -> str:
        return f"{self.scheme.lower()}://{self.host.lower()}"

    @property
    def path(self) -> str:
        return re.split(r"[?#]", self.rest, maxsplit=1)[0]


def _parts(url: str) -> _Parts | None:
    match = _URL.fullmatch(url)
    return _Parts(*(text or "" for text in match.group("vcs", "scheme", "user", "host", "rest"))) if match else None


def address(url: str, environ: Mapping[str, str] | None = None, *, conda: bool = False, base: bool = False) -> str:
    """The address of a URL; names, paths and ``file:`` URLs are returned unchanged.

    Removed are the login (of ssh only a password: its user name is not a secret), tokens of known forms, secret
    parameters of a query. ``${NAME}`` is kept; if it determines the server, the server's address is remembered with it.

    Args:
        environ: the values of variables.
        conda: whether it is a channel or a conda package, which may have ``/t/TOKEN/``.
        base: whether it is a channel, an index or a page of links: a random-looking part of its path is then a token.
    """
    if _HEAD.match(url):
        _learn_head(url, os.environ if environ is None else environ)
        return url if "@" not in url else _without_login(url)
    parts = _parts(url)
    if parts is None or parts.scheme.lower() == "file":
        return url
    if parts.scheme.lower() not in _WEB:
        user = "" if HIDDEN in parts.user else parts.user.partition(":")[0]
        return f"{parts.vcs}{parts.scheme}://{user}{'@' if user else ''}{parts.host}{parts.rest}"
    plain = f"{parts.scheme}://{_learn_login(parts)}{parts.host}"
    rest = _without_tokens(parts.rest, conda, base)
    if rest != parts.rest:
        _learn_tokens(plain, rest, parts.rest)
    return f"{parts.vcs}{plain}{rest}"


def _without_login(url: str) -> str:
    """``https://user:password@${HOST}/path`` without its login, which `_learn_head` remembers."""
    return re.sub(r"^([a-z+]+://)[^/]*@", r"\1", url)


def _learn_login(parts: _Parts) -> str:
    """Remember the login of a URL; returns the part to keep: only a user name whose password uv gets from the keyring.

    A user name alone may be a token; that of ``https://git@host`` has no meaning.
    """
    user, _, password = parts.user.partition(":")
    if user in ("", HIDDEN) or (user == "git" and not password):
        return ""
    if not password and os.environ.get("UV_KEYRING_PROVIDER"):
        return f"{user}@"
    _logins.setdefault(parts.origin, {})[parts.path] = (user, password)
    if not _VARIABLE.search(parts.user):
        _know_login(user, password)
    return ""


def _know_login(user: str, password: str, variables: Iterable[str] = ()) -> None:
    """Register the secrets of a login; a user name alone only if its form, or that of its variable, suggests one."""
    alone = _KNOWN_TOKEN.fullmatch(user) or _RANDOM.fullmatch(user) or any(map(is_secret_name, variables))
    if password or alone:
        know(password or user)


def _without_tokens(rest: str, conda: bool, base: bool) -> str:
    """Path, query and fragment with ``***`` for each token."""
    path, mark, more = re.match(r"([^?#]*)([?#]?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    words = path.split("/")
    for at, word in enumerate(words):
        after_t = words[at - 1] == "t" and at + 1 < len(words) and (at == 2 or conda)
        random = base and _RANDOM.fullmatch(word)
        if word and "$" not in word and (after_t or random or _KNOWN_TOKEN.fullmatch(word)):
            words[at] = word if word == "<TOKEN>" else HIDDEN
    return "/".join(words) + _QUERY_SECRET.sub(rf"\1{HIDDEN}", mark + more)


def _learn_tokens(plain: str, rest: str, real: str) -> None:
    """Remember the tokens for all addresses that begin with the last one; for this one only if they differ."""
    words, reals = rest.split("/"), real.split("/")
    hidden = [at for at, word in enumerate(words) if word == HIDDEN]
    if hidden and len(words) == len(reals):
        last = hidden[-1] + 1
        _tokens.setdefault(f"{plain}{'/'.join(words[:last])}/", f"{plain}{'/'.join(reals[:last])}/")
    if _with_tokens(plain + rest) != plain + real:  # a page has thousands of links below one token
        _tokens[plain + rest] = plain + real
    for word, known in zip(words, reals, strict=False):
        if word == HIDDEN:
            know(known)


def _with_tokens(url: str) -> str:
    """An address with its known tokens inserted."""
    known = max((begin for begin in list(_tokens) if url.startswith(begin)), key=len, default="")
    return _tokens.get(known, "") + url[len(known) :]


def _learn_head(url: str, environ: Mapping[str, str]) -> None:
    head = _HEAD.match(url)
    assert head is not None
    value = _VARIABLE.sub(lambda match: environ.get(match[1]) or match.group(), head.group())
    if "${" not in value and "://" in value:
        _heads[address(value.rstrip("/"), environ, base=True)] = _without_login(head.group())


# --------------------------------------------------------------------------- use


def variables(url: str) -> tuple[str, ...]:
    """The names of the variables in an address."""
    return tuple(_VARIABLE.findall(url))


def seen(url: str, environ: Mapping[str, str] | None = None) -> str:
    """An address as a URL that parsers accept: with its server, and every other variable as ``%24%7BNAME%7D``.

    Raises:
        InputError: a variable that gives the server is not set.
    """
    return _VARIABLE.sub(r"%24%7B\1%7D", with_server(url, environ))


def with_server(url: str, environ: Mapping[str, str] | None = None) -> str:
    """An address with variables that determine the server replaced.

    Raises:
        InputError: a variable is not set.
    """
    head = _HEAD.match(url)
    if head is None:
        return url
    rest = url[head.end() :]
    value = _filled(head.group(), environ, url).rstrip("/")
    return address(value, environ, base=True) + rest


def host_of(url: str) -> str:
    """The host name of an address, without its port."""
    parts = _parts(with_server(url, None))
    return re.sub(r":\d+$", "", parts.host) if parts else ""


def is_protected(url: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether reaching this address needs more than itself: a login, a variable's value, a token."""
    opened = with_server(url, environ)
    parts = _parts(opened)
    if parts is None or parts.scheme.lower() not in _WEB:
        return False
    return bool(_VARIABLE.search(parts.path)) or HIDDEN in parts.rest or parts.origin in _logins


def reached(url: str, environ: Mapping[str, str] | None = None) -> tuple[str, Login | None]:
    """The real URL of an address, without a login, and the login. For `host.net.http` and `host.net.gateway` only.

    Raises:
        InputError: it contains an unset variable, or an unknown token.
    """
    opened = address(_MARKER.sub(r"${\1}", with_server(url, environ)), environ)
    whole = _with_tokens(opened)
    parts = _parts(whole)
    if parts is None or parts.scheme.lower() not in _WEB:
        return _filled(whole, environ, url), None
    if HIDDEN in parts.rest:
        hint = "write the channel or index with its token in the stack's file or in site.yaml"
        raise InputError(f"the token of {url} is not known: locks do not contain it", hint=hint)
    return _filled(whole, environ, url, in_url=True), _login(parts, environ, url)


def _login(parts: _Parts, environ: Mapping[str, str] | None, url: str) -> Login | None:
    """The login registered for the longest prefix of a URL."""
    known = _logins.get(parts.origin, {})
    fitting = [path for path in list(known) if parts.path.startswith(path.rstrip("/"))]
    return _real(known[max(fitting, key=len)], environ, url) if fitting else None


def login_of_server(url: str) -> Login | None:
    """The nearest login for another URL of the same server, as in pip: an index may have its files elsewhere."""
    parts = _parts(url)
    known = _logins.get(parts.origin) if parts else None
    if parts is None or not known:
        return None
    words = parts.path.split("/")

    def shared(path: str) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path.split("/"), words, strict=False)))

    nearest = max(list(known), key=shared)
    return _real(known[nearest], None, url)


def _real(login: Login, environ: Mapping[str, str] | None, url: str) -> Login:
    user, password = (unquote(_filled(text, environ, url)) for text in login)
    _know_login(user, password, _VARIABLE.findall(login[0]))
    return user, password


def _filled(text: str, environ: Mapping[str, str] | None, url: str, *, in_url: bool = False) -> str:
    known = os.environ if environ is None else environ

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if not known.get(name):
            shown = redacted(url)
            raise InputError(f"{shown} needs the variable {name}, which is not set", hint=f"export {name}=...")
        if not in_url:
            return known[name]
        know(known[name], f"${{{name}}}")
        stray = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", known[name])
        return quote(stray, safe="%/:=;@!$&'()*+,~?")

    return _VARIABLE.sub(value, text)


def names_on(page: str) -> dict[str, str]:
    """Parts of a page's real URL by value: the variable or ``***`` in its address."""
    names, values = (text.split("/") for text in (_MARKER.sub(r"${\1}", page), reached(page)[0]))
    return {value: name for name, value in zip(names, values, strict=False) if name != value}


def with_names(url: str, names: Mapping[str, str]) -> str:
    """The address of a link on a page, with the page's variables and ``***`` (`names_on`)."""
    return "/".join(names.get(word, word) for word in url.split("/"))


# --------------------------------------------------------------------------- text that leaves


def alias(url: str, environ: Mapping[str, str] | None = None) -> str:
    """The address for another program: if protected, of an http server known only to `host.net.gateway`.

    The same address has the same alias in every process, since programs cache downloads by URL.
    """
    url = address(url, environ)
    opened = seen(url, environ)
    parts = _parts(opened)
    if parts is None or not is_protected(url, environ):
        return opened
    return f"{parts.vcs}http://{_alias_host(parts.origin)}{parts.rest}"


def _alias_host(origin: str) -> str:
    words = re.sub(r"[^a-z0-9.]+", "-", origin.partition("://")[2]).strip("-.")
    host = f"{words}-{hashlib.sha256(origin.encode()).hexdigest()[:8]}.{ALIAS_DOMAIN}"
    _aliases[host] = origin
    return host


def origin_of(host: str) -> str:
    """The origin (``https://host:port``) behind the host name of an alias; empty for any other name."""
    return _aliases.get(host.lower(), "")


def aliases() -> dict[str, str]:
    """Every origin that has an alias, and the alias: ``http://...``."""
    return {origin: f"http://{host}" for host, origin in _aliases.copy().items()}


def written(text: str) -> str:
    """Another program's text with aliases replaced by addresses, for locks."""
    for host, origin in _aliases.copy().items():
        text = text.replace(f"http://{host}", origin)
    text = _MARKER.sub(r"${\1}", text)
    for begin, head in _heads.copy().items():
        text = re.sub(rf"{re.escape(begin)}(?=[/\s\"'?#,;]|$)", lambda _, to=head: to, text)  # type: ignore[misc]
    return text


def redacted(text: str) -> str:
    """Text without secrets: registered ones, and anything that looks like a login or a token."""
    text = written(text)
    for begin in sorted(_tokens, key=len, reverse=True):
        text = text.replace(_tokens[begin], begin)
    for value in sorted(_values, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _values[value])
    return _KNOWN_TOKEN.sub(HIDDEN, _HEADER.sub(rf"\1{HIDDEN}", shown(text)))


def shown(text: str, *, base: bool = False) -> str:
    """Text with ``***`` for secrets in its URLs, recognised only by form: the same in every process.

    Args:
        base: as for `address`.
    """

    def one(match: re.Match[str]) -> str:
        parts = _parts(match.group())
        if parts is None:
            return match.group()
        secret = parts.user if parts.scheme.lower() in _WEB else ":" in parts.user
        secret = secret and not parts.host.startswith("sha256:")  # an image, docker://NAME:TAG@DIGEST
        user = HIDDEN if secret else parts.user
        rest = _without_tokens(parts.rest, False, base) if parts.scheme.lower() in _WEB else parts.rest
        return f"{parts.vcs}{parts.scheme}://{user}{'@' if user else ''}{parts.host}{rest}"

    return _URL_IN_TEXT.sub(one, text)
