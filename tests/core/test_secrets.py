"""Addresses: what is taken out of a URL, what is put back, and what text of others loses before it leaves."""

from __future__ import annotations

import pytest

from stackyard.core import secrets
from stackyard.core.errors import InputError

VALUES = {
    "TOKEN": "s=p:e;c/i@l%", "PIN": "q7Zk", "MIRROR": "https://al:m1rr@mirror.example/conda", "HOST": "h.example",
    "NAME": "me", "WORD": "p%40ss/w?",
}  # fmt: skip
RANDOM = "Zz9aXyQ1bB7dKk3T"


@pytest.mark.parametrize(
    ("url", "address", "real", "login"),
    [
        ("https://a1.example/t/${TOKEN}/c", "https://a1.example/t/${TOKEN}/c",
         "https://a1.example/t/s=p:e;c/i@l%25/c", None),
        ("https://a2.example/${PIN}/c", "https://a2.example/${PIN}/c", "https://a2.example/q7Zk/c", None),
        ("https://a3.example/t/abcd/c", "https://a3.example/t/***/c", "https://a3.example/t/abcd/c", None),
        (f"https://a4.example/{RANDOM}/simple", "https://a4.example/***/simple",
         f"https://a4.example/{RANDOM}/simple", None),
        ("https://b.example/x.whl?sv=1&sig=a%2Fb", "https://b.example/x.whl?sv=1&sig=***",
         "https://b.example/x.whl?sv=1&sig=a%2Fb", None),
        ("https://u:p%3Dq@a5.example/simple", "https://a5.example/simple", "https://a5.example/simple", ("u", "p=q")),
        ("https://${NAME}:${WORD}@a6.example/s", "https://a6.example/s", "https://a6.example/s", ("me", "p@ss/w?")),
        ("https://u:pa@ss@a7.example/s", "https://a7.example/s", "https://a7.example/s", ("u", "pa@ss")),
        ("https://token@a8.example/s", "https://a8.example/s", "https://a8.example/s", ("token", "")),
        ("https://git@a9.example/s", "https://a9.example/s", "https://a9.example/s", None),
        ("${MIRROR}/forge", "${MIRROR}/forge", "https://mirror.example/conda/forge", ("al", "m1rr")),
        ("https://u:pw@${HOST}/c", "https://${HOST}/c", "https://h.example/c", ("u", "pw")),
        ("git+ssh://git@host/r.git@v1", "git+ssh://git@host/r.git@v1", "git+ssh://git@host/r.git@v1", None),
        ("git+ssh://git:pw@host/r.git", "git+ssh://git@host/r.git", "git+ssh://git@host/r.git", None),
        ("file:///t/abcd/c", "file:///t/abcd/c", "file:///t/abcd/c", None),
        ("conda-forge", "conda-forge", "conda-forge", None),
    ],
)  # fmt: skip
def test_what_is_taken_out_is_put_back(url: str, address: str, real: str, login: tuple[str, str] | None) -> None:
    made = secrets.address(url, VALUES, base=True)
    assert made == address and secrets.address(made, VALUES, base=True) == made
    assert secrets.reached(made, VALUES) == (real, login)
    assert secrets.written(secrets.alias(made, VALUES)) == made
    taken = ("q7Zk", "abcd", RANDOM, "m1rr", "pw@", "token") if made != url else ()
    assert not any(word in secrets.alias(made, VALUES) for word in taken)


@pytest.mark.parametrize(
    "url",
    [
        "https://files.example/packages/ab/cd/0123456789abcdef0123456789abcdef0123456789abcdef/x-1.whl",
        "https://files.example/packages/source/t/torch/torch-1.tar.gz",
        "https://conda.anaconda.org/conda-forge/label/dev",
        "https://pkgs.example/4b1b0d2c-1111-2222-3333-444455556666/pypi/simple",
    ],
)
def test_what_is_no_secret_stays(url: str) -> None:
    assert secrets.address(url) == url == secrets.shown(url) and not secrets.is_protected(url)


def test_a_token_that_only_the_lock_lacks_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"the token of https://c1\.example/t/\*\*\*/c/noarch/x\.conda is not known"):
        secrets.reached("https://c1.example/t/***/c/noarch/x.conda")
    secrets.address("https://c1.example/t/efgh/c", conda=True)
    assert secrets.reached("https://c1.example/t/***/c/noarch/x.conda")[0].endswith("/t/efgh/c/noarch/x.conda")
    with pytest.raises(InputError, match="needs the variable MISSING, which is not set"):
        secrets.reached("https://c2.example/${MISSING}/c", {})


def test_the_nearest_login_of_a_server_is_for_its_other_files() -> None:
    for name in ("one", "two"):
        secrets.address(f"https://{name}:pw@many.example/{name}/simple")
    assert secrets.reached("https://many.example/two/simple/x/") == (
        "https://many.example/two/simple/x/",
        ("two", "pw"),
    )
    assert secrets.reached("https://many.example/two/files/x.whl")[1] is None
    assert secrets.login_of_server("https://many.example/two/files/x.whl") == ("two", "pw")
    assert secrets.login_of_server("https://other.example/two/files/x.whl") is None


def test_text_of_others_loses_logins_and_tokens() -> None:
    secrets.know("a-long-known-value")
    text = (
        "get https://u:p@x.example/y, ftp://a:b@z/ and https://x.example/t/tok/c; ssh://git@x/ stays; "
        "Authorization: Basic dTpw; ghp_0123456789abcdefghijABCDEFGHIJ012345; a-long-known-value"
    )
    assert secrets.redacted(text) == (
        "get https://***@x.example/y, ftp://***@z/ and https://x.example/t/***/c; ssh://git@x/ stays; "
        "Authorization: Basic ***; ***; ***"
    )


def test_a_user_name_is_no_secret_word_but_a_token_in_its_place_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "programmer")
    monkeypatch.setenv("DEPLOY_TOKEN", "lower-case-words")
    for login in ("developer", "${NAME}", "${DEPLOY_TOKEN}", RANDOM):
        secrets.reached(secrets.address(f"https://{login}@{login.strip('${}').lower()}.example/s"))
    text = f"/home/developer /home/programmer lower-case-words {RANDOM}"
    assert secrets.redacted(text) == "/home/developer /home/programmer *** ***"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("WANDB_API_KEY", True), ("HF_TOKEN", True), ("PGPASSWORD", True), ("AWS_ACCESS_KEY_ID", True),
        ("HOROVOD_SECRET_KEY", True), ("TOKENIZERS_PARALLELISM", False), ("PWD", False), ("SSH_AUTH_SOCK", False),
        ("NCCL_DEBUG", False), ("MAX_TOKENS", False), ("KEYBOARD", False), ("AUTHOR", False),
    ],
)  # fmt: skip
def test_names_that_hold_secrets(name: str, secret: bool) -> None:
    assert secrets.is_secret_name(name) is secret
