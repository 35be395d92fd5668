"""Transfers images to and from registries by skopeo, and between layouts without it.

Every blob is verified against its digest before it is sent, and before a received one gets its name. skopeo uses the
logins of podman, buildah and docker (containers-auth.json(5)); they are never prompted for here, nor passed on a
command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.files import home, space
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import CommandError, Result, run, which
from stackyard.images.bases.blobs import parsed
from stackyard.images.oci.build import copy_blob, verified
from stackyard.images.oci.layout import Image, Reference, blob, image, is_reference, reference, tag
from stackyard.images.oci.writer import writer
from stackyard.inputs.reading.imagename import HUB, image_name

DOCKER = "docker://"
ANSWER_S = 30.0
"""How long a registry may take for its first answer."""
TRANSFER_S = 3600.0
_NAME = re.compile(
    r"(?P<registry>[A-Za-z0-9.-]+(:\d+)?)/(?P<path>[a-z0-9._/-]+?)(:(?P<tag>[\w.-]+))?(@sha256:(?P<digest>[0-9a-f]{64}))?"
)
_ABSENT = re.compile(r"manifest unknown|name unknown|not found|\b404\b", re.IGNORECASE)


@dataclass(frozen=True)
class Registry:
    """The settings for access to registries.

    Attributes:
        plain_http: do not use TLS, for a registry on this machine.
        logins: the file with the logins; None: skopeo's default.
        limit_s: the time limit of a transfer in seconds.
    """

    plain_http: bool = False
    logins: Path | None = None
    limit_s: float = TRANSFER_S

    def words(self, *ends: str) -> list[str]:
        """skopeo's options; `ends` are the prefixes of its TLS option (``src-``, ``dest-``)."""
        words = [f"--{end}tls-verify=false" for end in ends if self.plain_http]
        return words + (["--authfile", str(self.logins.absolute())] if self.logins else [])


@dataclass(frozen=True)
class Transfer:
    """A transferred image: its place, and the digest of its manifest."""

    place: str
    digest: str
    image: Image


def push(source: Reference, target: str, registry: Registry = Registry()) -> Transfer:
    """Send an image of a layout to ``docker://REGISTRY/NAME:TAG``, or to another layout, ``oci:DIR:NAME``.

    Raises:
        InputError: the target is something else.
        MissingError: skopeo is missing.
        StackyardError: the image is damaged, or the registry cannot be reached or refuses it.
    """
    source_image = verified(source)
    if is_reference(target):
        return _copied(source, source_image, _named(reference(target), source_image))
    host = _parsed(target)["registry"]
    _probe(target, host, registry, may_lack=True)
    with scratch("push") as work:
        noted = work / "digest"
        words = [
            "--preserve-digests",
            "--digestfile",
            str(noted),
            *registry.words("dest-"),
            f"oci:.:{source_image.name}",
            target,
        ]
        _copy(words, f"push to {target}", host, registry, source.directory)
        digest = noted.read_text(encoding="ascii").strip()
    if digest != source_image.manifest.digest:
        raise StackyardError(f"{target} has another digest than was sent: {digest}", hint="push it again")
    return Transfer(target, digest, source_image)


def notes_of(source: str, registry: Registry = Registry()) -> Mapping[str, str]:
    """The annotations of an image's manifest, read without fetching the image.

    Raises:
        InputError, MissingError, StackyardError: as for `push`.
    """
    if is_reference(source):
        return image(reference(source)).annotations
    fields = parsed(_probe(source, _parsed(source)["registry"], registry, may_lack=False).encode(), source)
    notes = fields.get("annotations") or {}
    return {str(key): str(value) for key, value in notes.items()} if isinstance(notes, dict) else {}


def digest_of(source: str, registry: Registry = Registry(limit_s=ANSWER_S)) -> str:
    """The digest that a name of a registry stands for now, without fetching the image.

    Raises:
        InputError: it is not the name of an image.
        MissingError: skopeo is missing.
        StackyardError: the registry does not answer in time, or refuses.
    """
    name = image_name(source)
    if name.digest:
        return name.digest
    host = name.registry or HUB
    done = _skopeo(
        ["inspect", "--no-tags", *registry.words(""), "--format", "{{.Digest}}", name.docker],
        f"reach {host}",
        host,
        registry.limit_s,
    )
    if done.returncode:
        raise failure(f"resolve {name.docker}", host, done)
    return done.stdout.strip()


def pull(source: str, directory: Path, name: str = "", registry: Registry = Registry()) -> Transfer:
    """Fetch an image into a layout; it gets its name there once all its blobs are verified.

    Args:
        source: ``docker://REGISTRY/NAME:TAG`` (or ``@sha256:...``), ``REGISTRY#NAME:TAG``, or ``oci:DIR:NAME``.
        name: the name in the layout; empty: as in the source.

    Raises:
        InputError, MissingError, StackyardError: as for `push`.
    """
    if is_reference(source):
        target = reference(source)
        pulled = verified(target)
        return _copied(target, pulled, Reference(directory, tag(name) if name else _named(target, pulled).name))
    source = image_name(source).docker if "#" in source else source
    parts = _parsed(source)
    name = tag(name or parts["tag"] or parts["digest"][:12] or "latest")
    _probe(source, parts["registry"], registry, may_lack=False)
    with writer(directory) as into:
        received = Reference(into.work / "received", name)
        words = [*registry.words("src-"), source, f"oci:{received.directory.name}:{name}"]
        _copy(words, f"pull {source}", parts["registry"], registry, into.work)
        pulled = verified(received)
        for part in pulled.blobs:
            into.add_file(blob(received.directory, part.digest), part.digest)
        into.publish(name, pulled.manifest)
    return Transfer(str(Reference(directory, name)), pulled.manifest.digest, pulled)


def _named(target: Reference, pulled: Image) -> Reference:
    name = target.name or pulled.name
    if not name:
        raise InputError(f"the image of {target} has no name", hint="name it: oci:DIR:NAME")
    return Reference(target.directory, name)


def _copied(source: Reference, source_image: Image, target: Reference) -> Transfer:
    with writer(target.directory) as into:
        for part in source_image.blobs:
            copy_blob(source.directory, part, into)
        into.publish(target.name, source_image.manifest)
    return Transfer(str(target), source_image.manifest.digest, source_image)


def _parsed(text: str) -> dict[str, str]:
    match = _NAME.fullmatch(text.removeprefix(DOCKER))
    if not text.startswith(DOCKER) or match is None:
        raise InputError(f"not an image: {text}", hint="write docker://REGISTRY/NAME:TAG, or oci:DIR:NAME")
    return {key: value or "" for key, value in match.groupdict().items()}


# --------------------------------------------------------------------------- skopeo


def _probe(name: str, host: str, registry: Registry, *, may_lack: bool) -> str:
    """Request the manifest, so that an unreachable registry is noticed at once rather than at the time limit."""
    words = ["inspect", "--raw", *registry.words(""), name]
    done = _skopeo(words, f"reach {host}", host, min(ANSWER_S, registry.limit_s))
    if done.returncode and not (may_lack and _ABSENT.search(done.stderr)):
        raise failure(f"reach {name}", host, done)
    return done.stdout


def _copy(words: Sequence[str], what: str, host: str, registry: Registry, directory: Path) -> None:
    """Run skopeo in the layout's directory: a colon in its path would be misread in skopeo's names."""
    done = _skopeo(["copy", "--quiet", *words], what, host, registry.limit_s, directory)
    if done.returncode:
        raise failure(what, host, done)


def _policies() -> list[Path]:
    """The containers policy files (containers-policy.json(5)); skopeo fails if none exists."""
    own = home.find()
    return [*([own / ".config/containers/policy.json"] if own else []), Path("/etc/containers/policy.json")]


def _skopeo(words: Sequence[str], what: str, host: str, limit_s: float, directory: Path | None = None) -> Result:
    program = which("skopeo")
    if program is None:
        raise MissingError(
            "skopeo not found: it speaks to registries", hint="install skopeo, or copy a layout: oci:DIR"
        )
    accepts = [] if any(policy.exists() for policy in _policies()) else ["--insecure-policy"]
    try:
        return run([program, *accepts, *words], cwd=directory, check=False, timeout_s=limit_s)
    except CommandError as error:  # the time is up
        message = f"cannot {what}: {host} timed out after {limit_s:g} s"
        raise StackyardError(message, hint="see whether it works otherwise; --time-limit S waits longer") from error


_CAUSES = (
    ("unauthorized|authentication required|denied|forbidden|invalid username",
     "{host} refuses the login, or there is none for it",
     "log in with `skopeo login {host}`, or name a file: --authfile FILE"),
    ("HTTP response to HTTPS client", "{host} does not speak TLS", "--plain-http, if you trust the network to it"),
    ("x509|certificate|tls: ", "the certificate of {host} cannot be verified",
     "put the certificate of its authority into /etc/containers/certs.d/{host}/ca.crt"),
    ("connection refused|no such host|no route to host|unreachable|timeout|connection reset|EOF",
     "{host} cannot be reached", "see whether the name and the port are right, and whether a proxy is needed"),
    (_ABSENT.pattern, "{host} does not have it", "see its tags: skopeo list-tags docker://REGISTRY/NAME"),
    ("digest|checksum|does not match|unexpected size", "what {host} sent is damaged",
     "push the image again from where it was built"),
)  # fmt: skip


def failure(what: str, host: str, done: Result) -> StackyardError:
    """The error for a failed skopeo: ``cannot WHAT: why``, with a hint."""
    if space.says_full(done.stderr):
        return StackyardError(f"cannot {what}: no space left on device", hint="free some space", detail=done.output)
    unnamed = re.sub(rf"{re.escape(host)}\S*", "", done.stderr)  # the name of an image may be geofem, with an eof
    for pattern, why, hint in _CAUSES:
        if re.search(pattern, unnamed, re.IGNORECASE):
            said = why.format(host=host)
            return StackyardError(f"cannot {what}: {said}", hint=hint.format(host=host), detail=done.output)
    return StackyardError(f"cannot {what}: skopeo exited with status {done.returncode}", detail=done.output)
