#!/bin/sh
# Create .venv and install this checkout into it, editable.
#   usage: scripts/make-venv.sh [EXTRA...]     e.g. scripts/make-venv.sh dev
# Python is $PYTHON, else the first of python3.11, 3.12, 3.13, 3.10 and python3 that is 3.10 or newer.
# pip is used with its own configuration (pip.conf, PIP_*), so a site's index and certificates are honoured.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null

fail() { printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2; exit 4; }
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
    echo "installing with apt-get: $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
find_python() {
    for name in ${PYTHON:-python3.11 python3.12 python3.13 python3.10 python3}; do
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && command -v "$name" && return
    done
    return 1
}

if ! python=$(find_python); then
    if [ -n "${PYTHON:-}" ]; then
        fail "PYTHON=$PYTHON is not a Python of version 3.10 or newer" "set PYTHON to another one, or unset it"
    fi
    can_apt || fail "Python 3.10 or newer not found on PATH" "apt-get install python3 python3-venv (as root)"
    apt_install python3 python3-venv
    python=$(find_python) || fail "the system's python3 is older than 3.10" "make install PYTHON=/path/to/a/newer/python3"
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    can_apt || fail "$python cannot create virtual environments: module ensurepip not found" "apt-get install $package (as root)"
    apt_install "$package"
fi
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv

extras=$(printf '%s' "$*" | tr ' ' ',')
.venv/bin/python -m pip --no-input --disable-pip-version-check install --quiet --editable ".${extras:+[$extras]}"
.venv/bin/stackyard --version
