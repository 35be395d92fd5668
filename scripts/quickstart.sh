#!/bin/sh
# Deploy examples/quickstart into ./quickstart-yard, load it as a module, run two MPI ranks in it, and list what was created.
# Called by `make quickstart`; requires .venv only. Lmod is used if present, and installed where that is allowed.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null

yard=${QUICKSTART_YARD:-quickstart-yard}
stack=examples/quickstart
times=$(mktemp)
trap 'rm -f "$times"' EXIT
if [ -t 1 ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m') FORCE_COLOR=1
    export FORCE_COLOR # mpiexec passes the ranks' output through a pipe; the picture is for the terminal behind it
else
    bold='' plain=''
fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
step() { # TITLE SHOWN COMMAND...: print the command, run it, record how long it took
    title=$1
    say "$title"
    printf '$ %s\n' "$2"
    shift 2
    began=$(date +%s%N)
    "$@"
    tenths=$((($(date +%s%N) - began) / 100000000))
    printf '%5d.%d s  %s\n' $((tenths / 10)) $((tenths % 10)) "$title" >>"$times"
}
lmod_init() {
    for init in "${LMOD_PKG:+$LMOD_PKG/init/bash}" /usr/share/lmod/lmod/init/bash /opt/apps/lmod/lmod/init/bash /usr/lmod/lmod/init/bash; do
        [ -n "$init" ] && [ -r "$init" ] && printf '%s\n' "$init" && return
    done
    return 1
}
install_lmod() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends lmod >/dev/null 2>&1 && return
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends lmod >/dev/null
}
load_with_lmod() { # what a user of the cluster types, in a new shell
    # shellcheck disable=SC2016
    bash --noprofile --norc -c '. "$1"; set -e; module use "$2"; module load quickstart; module list
        python -c "import sys, numpy; print(\"numpy\", numpy.__version__, \"from\", sys.prefix)"' bash "$1" "$2"
}

stackyard=.venv/bin/stackyard
if ! lmod_init >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    step "Install Lmod" "apt-get install lmod" install_lmod || say "apt-get failed to install Lmod; continuing without it"
fi
step "Lock, build, verify and publish" "stackyard --yard $yard deploy $stack/stack.yaml" \
    "$stackyard" --yard "$yard" deploy "$stack/stack.yaml"
modules=$(cd "$yard" && pwd)/modules
if init=$(lmod_init); then
    step "Load it as a module" "module use $modules && module load quickstart" load_with_lmod "$init" "$modules"
else
    say "Lmod not found, so the module was not loaded. Install it (apt-get install lmod, as root) and run make quickstart again"
fi
step "Launch two MPI ranks in it" "stackyard --yard $yard launch --with quickstart -r 2 --launcher mpich --oversubscribe $stack/heat.py" \
    "$stackyard" --yard "$yard" launch --with quickstart -r 2 --launcher mpich --oversubscribe "$stack/heat.py"

say "Created"
"$stackyard" --yard "$yard" list
printf '%s in %s, modulefiles in %s\n' "$(du -sh "$yard" | cut -f1)" "$(cd "$yard" && pwd)" "$modules"
say "Took"
cat "$times"
say "Next"
cat <<END
  export PATH="$PWD/.venv/bin:\$PATH" STACKYARD_HOME="${modules%/modules}"
  module use $modules && module load quickstart
  stackyard show quickstart              # packages, modulefile, checks
  stackyard run quickstart -- python     # the same without a module system
  stackyard runs show last               # the exact command, where the ranks ran, exit status
  stackyard deploy your/environment.yml  # a module of your own
END
