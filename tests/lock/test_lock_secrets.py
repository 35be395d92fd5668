"""A token that a channel's URL takes from a variable: used to solve and to build, written down nowhere."""

from pathlib import Path

from support.cli import stackyard
from support.webserver import served


def test_values_of_variables_stay_out_of_locks_and_are_used_at_the_build(real_channel: Path, tmp_path: Path) -> None:
    (tmp_path / "served" / "t").mkdir(parents=True)
    (tmp_path / "served" / "t" / "s3cret-token").symlink_to(real_channel)
    file, yard = tmp_path / "environment.yml", tmp_path / "y"
    with served(tmp_path / "served") as base:
        file.write_text(f"name: x\nchannels: ['{base}/t/$CHAN_TOKEN']\ndependencies: [six]\n")
        known = {"CHAN_TOKEN": "s3cret-token", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        stackyard("--yard", yard, "lock", file, "--version", "1", **known)
        lock = Path(f"{file}.lock").read_text()
        assert "s3cret" not in lock and f"{base}/t/${{CHAN_TOKEN}}/noarch/six" in lock
        stackyard("--yard", yard, "deploy", file, "--locked", "--version", "1", **known)
        assert "s3cret" not in stackyard("--yard", yard, "show", "x", "--json").out
        assert stackyard("--yard", yard, "run", "x", "--", "python", "-c", "import six").code == 0
