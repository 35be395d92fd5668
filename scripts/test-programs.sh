#!/bin/sh
# Install the programs of test-programs.txt, which the tests run: with apt-get as root, otherwise list exactly what is missing.
# Tests of a missing program are skipped with a reason; STACKYARD_REQUIRE_REAL=1 makes that a failure.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null

there() { # a program on PATH, or a file that fits a pattern
    command -v "$1" >/dev/null 2>&1 && return
    for file in $1; do
        [ -e "$file" ] && return
    done
    return 1
}
all_there() { # every one of a list with commas
    rest=$1,
    while [ -n "$rest" ]; do
        there "${rest%%,*}" || return 1
        rest=${rest#*,}
    done
}

long=${1:-} # "long": also what only the long tests run
look() { # set what is missing and its packages
    missing= packages=
    while read -r name package found why; do
        case $name in '' | '#'*) continue ;; esac
        case $why in *'(make test-long)') [ "$long" = long ] || continue ;; esac
        all_there "$found" && continue
        missing="$missing $name"
        case " $packages " in *" $package "*) ;; *) packages="$packages $package" ;; esac
    done <scripts/test-programs.txt
}
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

look
if [ -n "$packages" ] && can_apt; then
    echo "installing with apt-get:$packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1 || {
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $packages >/dev/null || for package in $packages; do
            apt-get install -y -qq --no-install-recommends "$package" >/dev/null || true # not every system has all of them
        done
    }
    look
fi
if [ -n "$packages" ]; then
    echo "missing:$missing" >&2
    echo "  hint: apt-get install$packages (as root); the tests that need them are skipped" >&2
    [ "${STACKYARD_REQUIRE_REAL:-}" != 1 ] || exit 4
fi

# Environment Modules cannot be installed beside Lmod, so its package is unpacked into the cache of the tests.
cache=.cache/testbed
if [ -z "$(find "$cache/em" -name modulecmd.tcl 2>/dev/null)" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
    mkdir -p "$cache/packages"
    download() { (cd "$cache/packages" && apt-get download -qq environment-modules >/dev/null 2>&1); }
    download || { can_apt && apt-get update -qq && download; } || {
        echo "missing: apt-get failed to download environment-modules" >&2
        [ "${STACKYARD_REQUIRE_REAL:-}" != 1 ] || exit 4
        exit 0
    }
    for package in "$cache"/packages/environment-modules_*.deb; do
        dpkg-deb -x "$package" "$cache/em"
    done
fi
