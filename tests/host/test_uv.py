"""uv as it is run: what of the environment it sees, where it looks for packages, what its failures become."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.host.run.command import CommandError, Result
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings


def test_the_environment_holds_the_network_and_nothing_that_changes_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "https://elsewhere")
    monkeypatch.setenv("UV_OFFLINE", "1")
    found = uv.environment(PipSettings(cert="/ca.pem", client_cert="/me.pem", timeout_s=7, proxy="http://p:1"))
    assert "UV_INDEX_URL" not in found
    assert (found["UV_OFFLINE"], found["UV_HTTP_TIMEOUT"]) == ("1", "7")
    assert (found["SSL_CERT_FILE"], found["SSL_CLIENT_CERT"]) == ("/ca.pem", "/me.pem")
    assert found["HTTPS_PROXY"] == "http://p:1"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (PipSettings(), "--default-index=https://pypi.org/simple"),
        (PipSettings(indexes=("a", "b")), "--index=a --default-index=b --index-strategy=unsafe-best-match"),
        (PipSettings(no_index=True, find_links=("/w",)), "--find-links=/w --no-index"),
        (PipSettings(indexes=(), trusted_hosts=("h",)), "--no-index --allow-insecure-host=h"),
    ],
)
def test_the_options_name_the_indexes(settings: PipSettings, options: str) -> None:
    assert uv.index_options(settings) == options.split()


def test_it_runs(tmp_path: Path) -> None:
    assert uv.run(["--version"], timeout_s=240).stdout.startswith("uv ")
    assert uv.run(["no-such-command"], timeout_s=240).returncode == 2
    with pytest.raises(CommandError, match="no-such-command"):
        uv.run(["no-such-command"], timeout_s=240, check=True, cwd=tmp_path)


def test_a_failure_names_the_cause_and_no_password() -> None:
    stderr = (
        "DEBUG uv 1\nwarning: x\nerror: Failed to fetch https://me:word@h/a\n  fatal: repository not found.\nTRACE end"
    )
    error = uv.failure(Result(("uv",), 2, "", stderr, 0.1), "cannot resolve x")
    assert error.message == "cannot resolve x: Failed to fetch https://***@h/a (repository not found)"
    assert error.detail and "DEBUG" not in error.detail and "word" not in error.detail
