#!/bin/sh
# Install the real programs that the tests run: with apt-get as root, otherwise list exactly what is missing.
# Tests of a missing program are skipped with a reason; STACKYARD_REQUIRE_REAL=1 makes that a failure.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null

# program or file                       Debian package
table='
/usr/share/lmod/lmod/libexec/lmod       lmod
tclsh8.6                                tcl8.6
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
srun                                    slurm-client
slurmctld                               slurmctld
slurmd                                  slurmd
munged                                  munge
ip                                      iproute2
nsenter                                 util-linux
mpirun.mpich                            mpich
/usr/include/*/mpich/mpi.h              libmpich-dev
ch-run                                  charliecloud
mksquashfs                              squashfs-tools
squashfuse                              squashfuse
fusermount3                             fuse3
patchelf                                patchelf
'

# A program on PATH, or a file; a pattern stands for a directory that is named after the architecture.
there() {
    command -v "$1" >/dev/null 2>&1 && return
    for file in $1; do
        [ -e "$file" ] && return
    done
    return 1
}

missing=
packages=
while read -r program package; do
    [ -n "$program" ] || continue
    there "$program" && continue
    missing="$missing $program"
    packages="$packages $package"
done <<END
$table
END
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
if [ -n "$packages" ] && can_apt; then
    echo "installing with apt-get:$packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1 || {
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends $packages >/dev/null
    }
elif [ -n "$packages" ]; then
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
