"""Signs a SIF file with a key in a PEM file, by the program that verifies it: Apptainer or SingularityCE.

Source: `apptainer sign --help` of 1.4; `--key` is known from Apptainer 1.2 and SingularityCE 3.11 on.
"""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError, cause
from stackyard.host.files import at
from stackyard.host.run.command import CommandError, run, which
from stackyard.images.sif import file as sif
from stackyard.images.squashfs.mounts import RUNTIMES

MAKE_KEY = "make one: openssl genpkey -algorithm ed25519 -out KEY.pem; openssl pkey -in KEY.pem -pubout -out PUBLIC.pem"
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----")
_UNUSABLE = {b"OPENSSH ": "a key of OpenSSH", b"ENCRYPTED ": "encrypted, and neither program asks for its passphrase"}
_MOST_KEY = 64 << 10
_LIMIT_S = 3600.0


def require(key: Path) -> None:
    """Require that a SIF can be signed with a key: asked before one is built.

    Raises:
        InputError: the file is not a private key that can be used.
        MissingError: neither Apptainer nor SingularityCE is installed.
    """
    try:
        with at.open_regular(key) as stream:
            text = stream.read(_MOST_KEY)
    except OSError as error:
        raise InputError(f"cannot read the key {key}: {cause(error)}", hint=MAKE_KEY) from error
    found = _KEY.search(text)
    if found is None:
        raise InputError(f"{key} is not a private key in PEM format", hint=MAKE_KEY)
    why = "encrypted" if b"ENCRYPTED" in text else ""
    why = _UNUSABLE.get(found.group(1), why)
    if why:
        raise InputError(f"cannot sign a SIF with {key}: it is {why}", hint=MAKE_KEY)
    _program()


def sign(file: Path, key: Path) -> None:
    """Add a signature of all parts to a SIF file.

    Raises:
        MissingError: neither Apptainer nor SingularityCE is installed.
        StackyardError: it was not signed.
    """
    program = _program()
    try:
        run([program, "sign", "--key", str(key), str(file)], timeout_s=_LIMIT_S)
    except CommandError as error:
        raise StackyardError(f"cannot sign {file}: {error.message}", detail=error.detail, hint=error.hint) from error
    if not sif.read(file).signatures:
        raise StackyardError(f"cannot sign {file}: {program} added no signature", hint="update it, or leave out --sign")


def how_to_verify(image: sif.Sif) -> str:
    """A sentence on the signatures of a SIF file; empty: it has none."""
    if not image.signatures:
        return ""
    return f"it is signed; `apptainer verify --key PUBLIC.pem {image.file}` says whether by that key"


def _program() -> str:
    for name in RUNTIMES:
        if which(name):
            return name
    hint = "install Apptainer 1.2 or newer, or sign the file elsewhere: apptainer sign --key KEY.pem FILE"
    raise MissingError("cannot sign a SIF: apptainer or singularity not found", hint=hint)
