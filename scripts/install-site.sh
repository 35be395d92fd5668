#!/bin/sh
# Install Stackyard for all users of a machine, from a wheel, into DIRECTORY/VERSION with an interpreter of its own.
#   usage: scripts/install-site.sh DIRECTORY [WHEEL]      without WHEEL, one is built from this checkout
# DIRECTORY/current is the version installed last; put DIRECTORY/current/commands on PATH, or deploy the stack of
# examples/stackyard, whose module does that. Other versions stay: who runs one is not disturbed.
# Python is $PYTHON, else /usr/bin/python3; all users must be able to read it. pip is used with its own configuration.
set -eu
exec </dev/null
umask 022

fail() { printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2; exit "${3:-1}"; }
[ $# = 1 ] || [ $# = 2 ] || fail "expected a directory and at most one wheel" "scripts/install-site.sh /opt/stackyard [WHEEL]" 2
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-/usr/bin/python3}
mkdir -p "$1"
site=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

readable_for_all() { # every directory above a file can be entered, and the file read, by users and groups of any kind
    path=$1
    [ -n "$(find -H "$path" -maxdepth 0 -perm -o+r)" ] || return 1
    while path=$(dirname "$path") && [ "$path" != / ]; do
        [ -n "$(find -H "$path" -maxdepth 0 -perm -o+x)" ] || return 1
    done
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    fail "$python is not a Python of version 3.10 or newer" "set PYTHON to one, e.g. PYTHON=/usr/bin/python3.11" 4
for file in $("$python" -c 'import os, sys; print(os.path.realpath(sys.executable), os.path.realpath(os.__file__))') "$site"; do
    readable_for_all "$file" || fail "other users cannot read $file" "set PYTHON to a Python that all can read; check the directories above $site" 4
done

wheel=${2:-}
if [ -z "$wheel" ]; then
    "$python" -m venv "$scratch/venv"
    mkdir "$scratch/tree" # a copy: setuptools keeps what it built before in build/, also modules that are gone
    (cd "$checkout" && cp -R pyproject.toml README.md LICENSE src "$scratch/tree" && mkdir "$scratch/tree/docs" && cp -R docs/man "$scratch/tree/docs")
    "$scratch/venv/bin/python" -m pip --no-input wheel --quiet --no-deps --wheel-dir "$scratch" "$scratch/tree"
    wheel=$(echo "$scratch"/stackyard-*.whl)
fi
[ -f "$wheel" ] || fail "no such wheel: $wheel" "build one with pip wheel --no-deps $checkout" 2
version=$(basename "$wheel" | cut -d- -f2)
place=$site/$version

if [ -e "$place/.complete" ]; then
    cmp -s "$wheel" "$place/$(basename "$wheel")" || fail "$place was installed from another wheel" \
        "give the new one a version of its own; an installed version is never changed"
else
    rm -rf "$place" # an installation that was killed
    "$python" -m venv --copies "$place"
    "$place/bin/python" -m pip --no-input install --quiet --disable-pip-version-check "$wheel"
    "$place/bin/stackyard" --version >/dev/null
    mkdir "$place/commands"
    # isolated: a user's PYTHONPATH and ~/.local do not reach it; its children find these variables unchanged
    printf '#!/bin/sh\nexec "%s/bin/python" -I "%s/bin/stackyard" "$@"\n' "$place" "$place" >"$place/commands/stackyard"
    chmod 755 "$place/commands/stackyard"
    cp "$wheel" "$place"
    touch "$place/.complete"
fi
ln -s "$version" "$site/.current.$$"
mv -T "$site/.current.$$" "$site/current"
echo "$site/current/commands/stackyard is $("$site/current/commands/stackyard" --version)"
echo "man finds its pages where $site/current/commands is on PATH; they are in $site/current/share/man"
echo "TAB completes command lines once these links are made (docs/howto/completion.md):"
while read -r file link; do
    [ ! -d "$(dirname "$link")" ] || echo "  ln -sfn $site/current/share/$file $link"
done <<EOF
bash-completion/completions/stackyard.bash /usr/share/bash-completion/completions/stackyard
zsh/site-functions/_stackyard /usr/local/share/zsh/site-functions/_stackyard
fish/vendor_completions.d/stackyard.fish /usr/share/fish/vendor_completions.d/stackyard.fish
tcsh/completions/stackyard.tcsh /etc/profile.d/stackyard.csh
EOF
