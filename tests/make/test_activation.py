"""What activation scripts do is captured as operations; what depends on circumstances is reported, never guessed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from stackyard.core.change import Alias, Append, Default, Flags, Function, Join, Prepend, SetRestorable
from stackyard.core.errors import StackyardError
from stackyard.make.activation.capture import capture


def prefix_with(tmp_path: Path, **scripts: str) -> Path:
    """A prefix whose activate.d holds these scripts (``name_sh`` is the file ``name.sh``)."""
    prefix = tmp_path / "the prefix"
    directory = prefix / "etc/conda/activate.d"
    directory.mkdir(parents=True)
    for name, text in scripts.items():
        (directory / name.replace("_", ".", 1)).write_text(text)
    return prefix


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export PROJ_DATA=/p/share/proj", SetRestorable("PROJ_DATA", "/p/share/proj")),
        ('export XDG_DATA_DIRS="/p/share:${XDG_DATA_DIRS}"', Prepend("XDG_DATA_DIRS", "/p/share")),
        ('export GI_PATH="/p/gi${GI_PATH:+:$GI_PATH}"', Prepend("GI_PATH", "/p/gi")),
        ('export A="$A:/p/a"', Append("A", "/p/a")),
        ("export A=${A:+$A:}/p/extra", Append("A", "/p/extra")),
        ('if [ -z "${A-}" ]; then export A=/p/a; else export A="$A:/p/a"; fi', Append("A", "/p/a")),
        ('A="${A:-}${A:+:}/p/a"; export A', Append("A", "/p/a")),
        ("export A+=:/p/a", Append("A", "/p/a")),
        ("case :${A-}: in *:/p/a:*) ;; *) export A=${A+$A:}/p/a;; esac", Append("A", "/p/a")),
        ("declare -x A=/p/a${A:+:${A}}", Prepend("A", "/p/a")),
        ('export XML="$XML file:///p/etc/xml/catalog"', Join("XML", "", "file:///p/etc/xml/catalog", " ")),
        ('test -n "${X-}" && X+=" " || X=""; export X+="u:/p u:/e"', Join("X", "", "u:/p u:/e", " ")),
        ('export LUA="/p/?.lua;${LUA}"', Join("LUA", "/p/?.lua", "", ";")),
        ("export OPTS=-Da=b${OPTS:+ $OPTS}", Join("OPTS", "-Da=b", "", " ")),
        ('export M="a,b${M:+,$M}"', Join("M", "a,b", "", ",")),
        ("export H=/p/plugins:${H:-/usr/lib/plugin}", Join("H", "/p/plugins", "", ":", "/usr/lib/plugin")),
        ("export H=${H:-/usr/share/b}:/p/b", Join("H", "", "/p/b", ":", "/usr/share/b")),
        ('[ -z "$SAVE" ] || export OLD_A="$A"; export A=$A:/p/a', Append("A", "/p/a")),
        ("export OLD_A=${A-UNSET} A=$A:/p/a", Append("A", "/p/a")),
        ("set -e; [ -v A ] && B_=1; export A=${A:+$A:}/p/a; set -u", Append("A", "/p/a")),
        ("export ${UNUSED:-EMPTY_ONE}=''", SetRestorable("EMPTY_ONE", "")),
        ('[ -n "$R_HOME" ] || export R_HOME=/p/R', Default("R_HOME", "/p/R")),
        ("export QUOTED='it'\"'\"'s \"x\" $HOME'", SetRestorable("QUOTED", 'it\'s "x" $HOME')),
        ("alias ipy='ipython --quiet'", Alias("ipy", "ipython --quiet")),
    ],
)
def test_one_line_is_one_operation(tmp_path: Path, line: str, expected: object) -> None:
    found = capture(prefix_with(tmp_path, a_sh=line + "\n"))
    assert list(found.change) == [expected]
    assert found.uncaptured == ()


def test_build_only_variables_are_dropped_unless_kept(tmp_path: Path) -> None:
    script = (
        'export CC=/p/bin/gcc CONDA_BACKUP_CC="$CC" _CONDA_X=1 CMAKE_ARGS=-DX\n'
        'export CFLAGS="${CFLAGS:+$CFLAGS }-O2 -isystem /p/include"\n'
        'export LDFLAGS="-Wl,-z ${LDFLAGS}"\nexport KMP_X=1\n'
    )
    prefix = prefix_with(tmp_path, gcc_sh=script)
    found = capture(prefix)
    assert list(found.change) == [SetRestorable("KMP_X", "1")]
    assert {"CC", "CFLAGS", "LDFLAGS", "CMAKE_ARGS", "_CONDA_X"} <= set(found.build_only)
    kept = capture(prefix, keep=("CC", "CFLAGS", "LDFLAGS")).change
    assert set(kept) == {
        SetRestorable("CC", "/p/bin/gcc"),
        Flags("CFLAGS", "-O2 -isystem /p/include"),
        Flags("LDFLAGS", "-Wl,-z"),
        SetRestorable("KMP_X", "1"),
    }


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("export STARTED=$(date +%s)", "STARTED"),
        ("export OWNER=$USER", "OWNER"),
        ("export CACHE=$HOME/cache", "CACHE"),
        ("export THERE=$PWD", "THERE"),
        ('[ -z "$SCRATCH" ] || export BIG=$SCRATCH/big', "BIG"),
        ("export JOBDIR=${SLURM_JOB_ID:-none}", "JOBDIR"),
        ('export ODD="${ODD:+${ODD#/}}x"', "ODD"),
        ("export NUMBER=$RANDOM$RANDOM$RANDOM", "NUMBER"),
    ],
)
def test_what_depends_on_circumstances_is_reported_with_its_script(tmp_path: Path, line: str, name: str) -> None:
    found = capture(prefix_with(tmp_path, a_sh="export FINE=1\n", guilty_sh=line + "\n"))
    assert list(found.change) == [SetRestorable("FINE", "1")]
    assert len(found.uncaptured) == 1
    assert "guilty.sh" in found.uncaptured[0]
    assert name in found.uncaptured[0]


def test_functions_are_kept_word_for_word(tmp_path: Path) -> None:
    script = (
        '_helper() { echo "helped $1"; }\n_unused() { :; }\n'
        'tool() {\n  if [ $# -gt 0 ]; then _helper "$1"; fi\n  cat <<END\nhere\n{\n}\n  text\nEND\n}\n'
    )
    found = capture(prefix_with(tmp_path, a_sh=script))
    functions = {op.name: op.bodies for op in found.change if isinstance(op, Function)}
    assert set(functions) == {"tool", "_helper"}
    assert set(functions["tool"]) == {"sh"}
    text = "".join(f"{name} () {{\n{bodies['sh']}\n}}\n" for name, bodies in functions.items())
    ran = subprocess.run(["bash", "-c", text + "tool me"], capture_output=True, text=True, check=True)
    assert ran.stdout == "helped me\nhere\n{\n}\n  text\n"


def test_variables_of_packages_and_of_the_environment(tmp_path: Path) -> None:
    prefix = prefix_with(tmp_path, z_sh='export SEEN="$FROM_STATE"\n')
    (prefix / "etc/conda/env_vars.d").mkdir()
    (prefix / "etc/conda/env_vars.d/pkg.json").write_text(json.dumps({"FROM_PKG": "1", "BOTH": "pkg"}))
    (prefix / "conda-meta").mkdir()
    state = {"env_vars": {"FROM_STATE": "a b", "BOTH": "state", "GONE": "***unset***"}}
    (prefix / "conda-meta/state").write_text(json.dumps(state))
    values = {op.variable: op.value for op in capture(prefix).change if isinstance(op, SetRestorable)}
    assert values == {"FROM_PKG": "1", "FROM_STATE": "a b", "BOTH": "state", "SEEN": "a b"}


def test_scripts_run_in_order_and_find_themselves(tmp_path: Path) -> None:
    prefix = prefix_with(
        tmp_path,
        b_sh='export ORDER="${FIRST_ONE}b"\n',
        a_sh='export FIRST_ONE=a\nexport MINE="$(dirname "${BASH_SOURCE[0]}")"\n',
    )
    values = {op.variable: op.value for op in capture(prefix).change if isinstance(op, SetRestorable)}
    assert values == {"FIRST_ONE": "a", "ORDER": "ab", "MINE": str(prefix / "etc/conda/activate.d")}


def test_other_shells_scripts_are_named(tmp_path: Path) -> None:
    prefix = prefix_with(tmp_path, a_sh="export A=1\n", a_fish="set -gx A 1\n", only_fish="set -gx B 1\n")
    found = capture(prefix)
    assert [text.partition(":")[0] for text in found.uncaptured] == ["only.fish"]


def test_a_script_that_exits_or_hangs_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(StackyardError, match=r"bad\.sh"):
        capture(prefix_with(tmp_path / "1", a_sh=":\n", bad_sh="echo why; exit 3\n"))
    with pytest.raises(StackyardError, match="timed out after"):
        capture(prefix_with(tmp_path / "2", slow_sh="sleep 60\n"), timeout_s=0.5)


def test_a_prefix_without_scripts_changes_nothing(tmp_path: Path) -> None:
    assert list(capture(tmp_path).change) == []


def test_several_entries_on_both_sides(tmp_path: Path) -> None:
    found = capture(prefix_with(tmp_path, a_sh='export L="/p/1:/p/2${L:+:$L}:/p/3:/p/4"\n'))
    assert list(found.change) == [Prepend("L", "/p/2"), Prepend("L", "/p/1"), Append("L", "/p/3"), Append("L", "/p/4")]
    assert found.uncaptured == ()
    assert found.change.apply({"L": "/u"}) == {"L": "/p/1:/p/2:/u:/p/3:/p/4"}
    assert found.change.apply({}) == {"L": "/p/1:/p/2:/p/3:/p/4"}


def test_a_variable_that_depends_on_another_one_of_the_user_is_looked_at_alone(tmp_path: Path) -> None:
    script = "export CARGO=${CARGO:-$CONDA_PREFIX/.cargo}\nexport PATH=$CARGO/bin:$PATH\n"
    prefix = prefix_with(tmp_path, rust_sh=script)
    found = capture(prefix)
    assert set(found.change) == {Default("CARGO", f"{prefix}/.cargo"), Prepend("PATH", f"{prefix}/.cargo/bin")}
    assert found.uncaptured == ()


def test_what_scripts_save_for_a_deactivation_is_left_out(tmp_path: Path) -> None:
    script = (
        'export xml_saved="${XML:-}"\nexport XML="$XML new"\n'
        'if [ "${P5+x}" ]; then export _PRE_P5=$P5; export P5=/p/perl:$P5; else export P5=/p/perl; fi\n'
    )
    script += '[ "$OLD_PATH" ] || export OLD_PATH="$PATH"; export PATH=/p/bin:$PATH L=/a:$L:/b\n'
    found = capture(prefix_with(tmp_path, a_sh=script))
    extended = {Prepend("P5", "/p/perl"), Prepend("PATH", "/p/bin"), Prepend("L", "/a"), Append("L", "/b")}
    assert set(found.change) == {Join("XML", "", "new", " "), *extended}
    assert found.uncaptured == () and found.build_only == ()


def test_what_scripts_prepend_to_path_is_captured(tmp_path: Path) -> None:
    prefix = prefix_with(
        tmp_path,
        a_sh='export PATH="$CONDA_PREFIX/a/bin:$CONDA_PREFIX/b/bin:$PATH"\n',
        b_sh='export PATH="/late/bin:$PATH"\n',
    )
    found = capture(prefix)
    assert found.uncaptured == ()
    directories = [f"{prefix}/b/bin", f"{prefix}/a/bin", "/late/bin"]
    assert sorted(op.directory for op in found.change if isinstance(op, Prepend)) == sorted(directories)
    path = found.change.apply({"PATH": "/usr/bin"})["PATH"]
    assert path == f"/late/bin:{prefix}/a/bin:{prefix}/b/bin:/usr/bin"


def test_what_scripts_append_to_path_comes_last(tmp_path: Path) -> None:
    found = capture(prefix_with(tmp_path, a_sh="export PATH=/first:$PATH:/last\n"))
    assert list(found.change) == [Prepend("PATH", "/first"), Append("PATH", "/last")]


@pytest.mark.parametrize("path", ["${PATH#*:}", "$PATH/x", "/a:$PATH:/b:$PATH"])
def test_another_change_of_path_is_blamed_on_what_it_depends_on(tmp_path: Path, path: str) -> None:
    found = capture(prefix_with(tmp_path, a_sh=f"export PATH={path}\n"))
    assert found.uncaptured == ("a.sh: the value of PATH depends on its previous value; not captured",)
    assert list(found.change) == []


def test_path_and_the_module_systems_own_variables_are_not_replaced_for_users(tmp_path: Path) -> None:
    found = capture(prefix_with(tmp_path, a_sh="export MODULEPATH=/x PATH=/y LOADEDMODULES= GOOD=1\n"))
    assert list(found.change) == [SetRestorable("GOOD", "1")]
    assert len(found.uncaptured) == 3 and all("it is reserved" in text for text in found.uncaptured)


def test_names_and_values_that_no_module_can_hold_are_left_out_with_their_script(tmp_path: Path) -> None:
    script = "alias 'a,b'=ls\nf%g() { :; }\nexport BYTES=$'\\xff' status=1 GOOD=1\nh() { :; }\nexport -f h\n"
    found = capture(prefix_with(tmp_path, a_sh=script))
    assert [getattr(op, "variable", getattr(op, "name", "")) for op in found.change] == ["GOOD", "h"]
    assert all(text.startswith("a.sh: ") for text in found.uncaptured)
    assert {"BYTES", "'status'", "'f%g'", "'a,b'"} == {
        word for text in found.uncaptured for word in ("BYTES", "'status'", "'f%g'", "'a,b'") if word in text
    }
