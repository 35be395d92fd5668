#!/bin/sh
# Get the real programs that the tests run: with apt-get as root, otherwise say exactly what is missing.
# Tests of a missing program are skipped with a reason; STACKYARD_REQUIRE_REAL=1 makes that a failure.
set -eu
exec </dev/null

# program (or file)                     Debian package
table='
/usr/share/lmod/lmod/libexec/lmod       lmod
tclsh                                   tcl
bash                                    bash
zsh                                     zsh
tcsh                                    tcsh
fish                                    fish
strace                                  strace
patch                                   patch
git                                     git
cmake                                   cmake
g++                                     g++
make                                    make
strip                                   binutils
mpicc                                   libopenmpi-dev
mpirun                                  openmpi-bin
mount                                   mount
'

missing=
packages=
while read -r program package; do
    [ -n "$program" ] || continue
    command -v "$program" >/dev/null 2>&1 && continue
    missing="$missing $program"
    packages="$packages $package"
done <<END
$table
END
[ -n "$packages" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing with apt-get:$packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1 || {
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $packages >/dev/null
    }
else
    echo "missing:$missing" >&2
    echo "  hint: apt-get install$packages (as root); the tests that need them are skipped" >&2
    [ "${STACKYARD_REQUIRE_REAL:-}" != 1 ] || exit 4
fi
