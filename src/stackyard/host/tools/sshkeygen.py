"""Signs and verifies with ssh-keygen: ``-Y sign``, ``find-principals`` and ``verify``. It never prompts.

A key is a file, or a public key whose private half an ssh-agent or a security key has. Signers are listed in a file of
the form that ssh-keygen(1) describes under ALLOWED SIGNERS; it also knows certificates and dates.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError, MissingError, StackyardError, cause
from stackyard.core.late import dataclass
from stackyard.core.quoting import plain
from stackyard.host.files import strictmodes
from stackyard.host.files.scratch import scratch
from stackyard.host.run.identity import account_name

if TYPE_CHECKING:
    from stackyard.host.run.command import Result

_SIGN_S = 59.0
"""A person may have to touch a security key, or to confirm a use of an agent."""

_JUDGE_S = 20.0
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_PLAIN = re.compile(r"[\w.@+-]+")
_DATES = {"key has expired": "has expired", "key is not yet valid": "is not valid yet"}


@dataclass(frozen=True)
class Verdict:
    """The judgement of a signature: its signer, as listed, and the problem; empty: none."""

    signer: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Signers:
    """The allowed signers: the list, and the revoked keys (a KRL, or public keys); an empty path: none.

    `owners` are the accounts with permitted write access, besides root.
    """

    allowed: str
    revoked: str = ""
    owners: tuple[int, ...] = ()

    def require(self) -> None:
        """Require that both are readable, and that other accounts can neither write to nor replace them.

        Raises:
            InputError: a file cannot be read, or other accounts could change it.
        """
        if self.allowed:
            hint = "see `signatures: allowed_signers:` of site.yaml"
            _require_safe(Path(self.allowed), "the signers", hint, self.owners)
        if self.revoked:
            make = f"create it, with no keys: `ssh-keygen -k -f {self.revoked}`"
            _require_safe(Path(self.revoked), "the revoked keys", make, self.owners)


def fingerprint(signature: str) -> str:
    """The fingerprint of the key of a signature, in the format of ``ssh-keygen -l``.

    Raises:
        ValueError: it is not a signature of ssh-keygen.
    """
    digest = base64.b64encode(hashlib.sha256(_parts(signature)[0]).digest())
    return f"SHA256:{digest.decode().rstrip('=')}"


def other_namespace(signature: str, expected: str) -> str:
    """A sentence if a signature is for another namespace (``-n``), as those of files and commits; else empty.

    Raises:
        ValueError: it is not a signature of ssh-keygen.
    """
    namespace = _parts(signature)[1].decode("utf-8", "replace")
    return "" if namespace == expected else f"it was made for the namespace {plain(namespace, 60)}, expected {expected}"


def _parts(signature: str) -> tuple[bytes, bytes]:
    """The public key and the namespace of a signature: ``SSHSIG``, a version, then each with its length before it.

    Source: PROTOCOL.sshsig of OpenSSH.
    """
    lines = signature.strip().splitlines()
    if not lines or lines[0] != _BEGIN or lines[-1] != _END:
        raise ValueError("not a signature of ssh-keygen")
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except binascii.Error as error:
        raise ValueError("not a signature of ssh-keygen") from error
    key, rest = _text(blob[10:])
    namespace, _ = _text(rest)
    if blob[:6] != b"SSHSIG" or not key or not namespace:
        raise ValueError("not a signature of ssh-keygen")
    return key, namespace


def _text(data: bytes) -> tuple[bytes, bytes]:
    """The first string in SSH's format, and the rest; both empty if truncated."""
    size = int.from_bytes(data[:4], "big")
    return (data[4 : 4 + size], data[4 + size :]) if len(data) >= 4 + size else (b"", b"")


def sign(text: str, key: Path, namespace: str) -> str:
    """The signature of a text.

    Raises:
        MissingError: no ssh-keygen, or one without signatures.
        StackyardError: it cannot sign with this key; it never asks for a passphrase.
    """
    _require_key(key)
    with scratch("sign") as directory:
        file = directory / "text"
        file.write_text(text, encoding="utf-8")
        done = _keygen(_SIGN_S, "sign", "-f", key, "-n", namespace, file)
        if done.returncode != 0:
            raise _cannot_sign(key, done)
        return (directory / "text.sig").read_text(encoding="ascii")


def fits(text: str, signature: str, namespace: str) -> bool:
    """Whether a signature matches this text, by any signer. Errors as for `judge`."""
    with _as_file(signature) as file:
        return _keygen(_JUDGE_S, "check-novalidate", "-n", namespace, "-s", file, stdin=text).returncode == 0


@contextmanager
def _as_file(signature: str) -> Iterator[Path]:
    """A signature as a file that other accounts cannot replace during several calls of ssh-keygen."""
    with scratch("signature") as directory:
        (directory / "text.sig").write_text(signature, encoding="utf-8")
        yield directory / "text.sig"


def judge(text: str, signature: str, signers: Signers, namespace: str) -> Verdict:
    """The judgement of a text's signature.

    Raises:
        MissingError: no ssh-keygen, or one without signatures.
        StackyardError: it timed out.
    """
    try:
        if other := other_namespace(signature, namespace):
            return Verdict(problem=other)
    except ValueError as error:
        return Verdict(problem=str(error))
    with _as_file(signature) as file:
        return _judge(text, file, signers, namespace)


def _judge(text: str, signature: Path, signers: Signers, namespace: str) -> Verdict:
    def verified(name: str, revoked: str) -> Result:
        words = ("verify", "-f", signers.allowed, "-I", name, "-n", namespace, "-s", signature)
        return _keygen(_JUDGE_S, *words, *(("-r", revoked) if revoked else ()), stdin=text)

    for guess in _listed_as(signature, signers.allowed):
        if verified(guess, signers.revoked).returncode == 0:  # one process, as at each launch
            return Verdict(guess)
    result = _keygen(_JUDGE_S, "find-principals", "-f", signers.allowed, "-s", signature)
    names = [name.strip() for name in result.stdout.splitlines() if name.strip() and not name.startswith("!")]
    if result.returncode != 0 or not names:
        return Verdict(problem=_unknown(result.stderr, signature, signers.allowed))
    for name in names:
        done = verified(name, signers.revoked)
        if done.returncode == 0:
            return Verdict(name)
    last = verified(name, "") if signers.revoked else done
    return Verdict(name, _not_valid(name, last, signers.allowed))


def _listed_as(signature: Path, allowed: str) -> list[str]:
    """The plain names with this key in the list of signers. ssh-keygen checks each."""
    try:
        key = base64.b64encode(_parts(signature.read_text(encoding="utf-8"))[0]).decode()
        lines = Path(allowed).read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []
    names = (line.split()[0] for line in lines if key in line.split())
    return [name for name in dict.fromkeys(names) if _PLAIN.fullmatch(name)]


def _unknown(said: str, signature: Path, allowed: str) -> str:
    """Why no signer was found."""
    try:
        key = fingerprint(signature.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "not a signature of ssh-keygen"
    for words, sentence in _DATES.items():
        if words in said:
            return f"the key {key} {sentence}, says {allowed}"
    wrong = next((line.strip() for line in said.splitlines() if line.startswith(f"{allowed}:")), "")
    return f"its signer {key} is not in {allowed}" + (f" ({wrong})" if wrong else "")


def _not_valid(name: str, without_revoked: Result, allowed: str) -> str:
    said = without_revoked.stderr
    if without_revoked.returncode == 0:
        return f"the key of {name} was revoked"
    if "incorrect signature" in said:
        return f"it was changed after {name} had signed it"
    if "namespace" in said:
        return f"{name} may not sign revisions, says {allowed} (namespaces=)"
    return f"the signature of {name} is not valid: {_first(said)}"


def _keygen(limit_s: float, *words: str | Path, stdin: str | None = None) -> Result:
    """Run ``ssh-keygen -Y`` without a terminal and askpass program, so that it cannot prompt.

    The system's program is preferred, without libraries and variables of loaded modules: these may be what is being
    verified.
    """
    from stackyard.host.run.command import clean_environment, run, which  # late: most commands judge nothing

    env = {name: os.environ[name] for name in ("SSH_AUTH_SOCK", "SSH_SK_PROVIDER") if name in os.environ}
    env = clean_environment(SSH_ASKPASS_REQUIRE="never", **env)
    program = which("ssh-keygen", env) or which("ssh-keygen")
    if program is None:
        raise MissingError("ssh-keygen not found", hint="install OpenSSH's client, 8.2 or newer")
    done = run((program, "-Y", *words), env=env, stdin=stdin, timeout_s=limit_s, check=False)
    if done.returncode != 0 and any(text in done.stderr for text in ("unknown option", "illegal option", "usage:")):
        raise MissingError("this ssh-keygen cannot sign or verify", hint="install OpenSSH's client, 8.2 or newer")
    return done


def _require_key(key: Path) -> None:
    hint = "name another one: `signatures: key:` of site.yaml, $STACKYARD_SIGN_KEY or --key"
    if not key.is_file():
        raise InputError(f"cannot sign with {key}: no such file", hint=hint)
    if not os.access(key, os.R_OK):
        raise InputError(f"cannot sign with {key}: permission denied", hint=hint)


def _cannot_sign(key: Path, done: Result) -> StackyardError:
    said = done.stderr
    private = str(key).removesuffix(".pub")
    if "incorrect passphrase" in said:
        why, hint = "it has a passphrase, and no ssh-agent has the key", f"add it to one: `ssh-add {private}`"
    elif "too open" in said:
        why, hint = "others can read it", f"chmod 600 {private}; if others may have read it, make a new key"
    elif "No private key found" in said:
        why, hint = "no ssh-agent has its private key", f"add it to one: `ssh-add {private}`; see `ssh-add -l`"
    else:
        why, hint = _first(said), "try it: `ssh-keygen -Y sign -f KEY -n file FILE`"
    return StackyardError(f"cannot sign with {key}: {why}", hint=hint)


def _first(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "ssh-keygen says nothing")


def _require_safe(file: Path, what: str, hint: str, owners: Collection[int]) -> None:
    try:
        with file.open("rb"):
            pass
        path = strictmodes.writable_by_others(file, owners)
    except OSError as error:
        raise InputError(f"cannot read {what} in {file}: {cause(error)}", hint=hint) from error
    if path:
        known = " and ".join(dict.fromkeys(account_name(uid) for uid in (0, *owners)))
        raise InputError(f"{path} can be written by others than {known}, who could add a signer",
                         hint=path.remedy)  # fmt: skip
