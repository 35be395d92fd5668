#!/bin/sh
# The program behind every command of a revision whose files are in one image; launch.c does the same, sooner, and is
# used where a compiler was at hand when the revision was deployed. What differs: argv[0] is the path, and a namespace is
# shared by the processes of one revision, not by all whose modules are loaded.
# Needs unshare, nsenter and flock of util-linux 2.34 or newer, and squashfuse_ll.

sy_fail() {
  sy_status=$1 sy_hint=$2
  shift 2
  printf 'stackyard: %s\n' "$*" >&2
  [ -z "$sy_hint" ] || printf '  hint: %s\n' "$sy_hint" >&2
  exit "$sy_status"
}

sy_is_stub() { [ -e "$1/prefix/.stub" ]; }

# Whether an image has all bytes that it says it has: a server can mount a truncated one, in which nothing can be read.
sy_is_whole() {
  set -- "$(od -A n -t u4 -N 4 -- "$1")" "$(od -A n -t u8 -j 40 -N 8 -- "$1")" "$(stat -L -c %s -- "$1")"
  [ "${1:-0}" -eq 1936814952 ] && [ "${2:-0}" -le "${3:-0}" ]
} 2>/dev/null

# Whether a process with this number and this start time is there, and is not a zombie.
sy_lives() {
  { read -r sy_stat < "/proc/$1/stat"; } 2>/dev/null || return 1
  sy_stat=${sy_stat##*) }
  [ "${sy_stat%% *}" != Z ] || return 1
  set -- "$2" $sy_stat
  shift 20
  [ "$1" = "$sy_start" ]
}

sy_start_of() {
  read -r sy_stat < "/proc/$1/stat" || return 1
  set -- ${sy_stat##*) }
  shift 19
  printf '%s\n' "$1"
}

sy_folder() {
  sy_user=$(id -u)
  for sy_i in '' .1 .2 .3 .4 .5 .6 .7 .8 .9; do
    sy_dir=${STACKYARD_TMP:-/tmp}/.stackyard-images-$sy_user$sy_i
    mkdir -m 700 -- "$sy_dir" 2>/dev/null
    [ -d "$sy_dir" ] && [ ! -L "$sy_dir" ] && [ "$(stat -c '%u %a' -- "$sy_dir")" = "$sy_user 700" ] && return
  done
  sy_fail 4 'set STACKYARD_TMP to a directory on this node that you can write' \
    "cannot create a private directory in ${STACKYARD_TMP:-/tmp}"
}

# The image of a revision: the copy on this node's own disk, where the launch has made one (--stage stack).
sy_image_of() {
  sy_image=${STACKYARD_STAGE-}/image.sqsh
  [ "${STACKYARD_STAGED_IMAGE-}" = "$1" ] && sy_is_whole "$sy_image" || sy_image=$1/image.sqsh
}

# In the new namespaces: mount this image and the others whose modules are loaded, note the server, run the command.
sy_within() {
  sy_list=$sy_root:${STACKYARD_IMAGES-}
  while [ -n "$sy_list" ]; do
    sy_rev=${sy_list%%:*}
    case $sy_list in *:*) sy_list=${sy_list#*:} ;; *) sy_list= ;; esac
    case $sy_rev in /*) ;; *) continue ;; esac
    sy_is_stub "$sy_rev" || continue
    sy_image_of "$sy_rev"
    sy_is_whole "$sy_image" || {
      [ "$sy_rev" != "$sy_root" ] || sy_damaged
      continue
    }
    # no `&`: that would ignore SIGINT, by which squashfuse_ll ends itself
    sy_server=$(
      unset LD_PRELOAD LD_LIBRARY_PATH
      cd / && setsid --fork sh -c 'echo $$; exec squashfuse_ll -f -o "$1" "$2" "$3" </dev/null >> "$4" 2>&1 9>&-' sh \
        "ro,nosuid,nodev,timeout=${STACKYARD_IMAGE_IDLE_S:-300}" "$sy_image" "$sy_rev/prefix" "$sy_note.log"
    )
    sy_i=0
    while sy_is_stub "$sy_rev" && kill -0 "$sy_server" 2>/dev/null && [ "$sy_i" -lt 3000 ]; do
      sleep 0.02
      sy_i=$((sy_i + 1))
    done
    if [ "$sy_rev" = "$sy_root" ]; then
      sy_is_stub "$sy_rev" && sy_unmounted 'its file system server ended'
      printf '%s %s\n' "$sy_server" "$(sy_start_of "$sy_server")" > "$sy_note"
    fi
  done
  exec 9>&-
}

sy_restore='restore it from a copy, or move the revision away and deploy it again'
sy_damaged() {
  sy_why='it cannot be read, is not a SquashFS image, or is truncated'
  [ -e "$sy_image" ] || sy_why='not found'
  sy_fail 4 "$sy_restore" "cannot mount $sy_image: $sy_why"
}

sy_unmounted() {
  printf 'stackyard: cannot mount %s/image.sqsh: %s\n' "$sy_root" "$1" >&2
  cat -- "$sy_note.log" >&2 2>/dev/null
  sy_fail 4 '`stackyard image status` says which ways this machine has; root can mount it for all (`stackyard image autofs`)' \
    "$sy_root is not usable on this machine"
}

sy_own=$(readlink -f -- "$0")
sy_root=${sy_own%/*}
sy_path=$0
if [ ! -L "$0" ] && [ -z "${STACKYARD_LAUNCH-}" ]; then
  [ $# -gt 0 ] || sy_fail 2 '' "usage: $0 COMMAND [ARGUMENT...]"
  sy_path=$1
  shift
fi
if [ -n "${STACKYARD_LAUNCH-}" ]; then
  sy_path=$1 sy_note=$STACKYARD_LAUNCH
  shift
  unset STACKYARD_LAUNCH
  sy_within
elif sy_is_stub "$sy_root"; then
  sy_folder
  sy_note=$sy_dir/$(printf '%s %s' "$(stat -L -c %i /proc/self/ns/mnt)" "$sy_root" |
    cat - /proc/self/cgroup | sed 's#\(/step_[^/]*\).*#\1#' | cksum | tr ' ' -)
  exec 9>> "$sy_note" || sy_fail 4 '' "cannot open $sy_note"
  flock -w 60 9 || sy_fail 4 '' "timed out after 60 s waiting for another process that mounts an image: $sy_note"
  read -r sy_pid sy_start < "$sy_note" || sy_pid=
  if [ -n "$sy_pid" ] && sy_lives "$sy_pid" "$sy_start" && [ -e "/proc/$sy_pid/root$sy_root/prefix/bin" ]; then
    exec 9>&-
    exec nsenter --preserve-credentials --user --mount --target "$sy_pid" --wd="$PWD" -- "$sy_path" "$@"
  fi
  rm -f -- "$sy_note.log"
  unshare --user --mount --map-current-user true 2>> "$sy_note.log" ||
    sy_unmounted 'this machine gives no user namespaces'
  export STACKYARD_LAUNCH="$sy_note"
  exec unshare --user --mount --map-current-user --keep-caps --propagation slave -- /bin/sh "$sy_own" "$sy_path" "$@"
elif [ ! -e "$sy_root/prefix" ]; then
  sy_fail 4 "$sy_restore" "$sy_root/prefix not found: the files of this revision were removed"
fi
if [ "$(readlink -f -- "$sy_path")" = "$sy_own" ]; then
  sy_fail 127 '' "$sy_path: not a command of $sy_root"
fi
exec "$sy_path" "$@"
