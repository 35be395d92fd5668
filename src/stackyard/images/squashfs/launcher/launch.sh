#!/bin/sh
# The program behind every command of a revision whose files are in one image; launch.c does the same, sooner, and is
# used where a compiler was at hand when the revision was deployed. What differs: argv[0] is the path, and a namespace is
# shared by the processes of one revision, not by all whose modules are loaded; and images of adopted prefixes are refused.
# Needs unshare, nsenter and flock of util-linux 2.34 or newer, and squashfuse_ll.

{APPTAINER}

# What the command is to find as it was.
sy_as_was() { PATH=$sy_user_path LD_PRELOAD=$sy_user_preload LD_LIBRARY_PATH=$sy_user_libraries; }

sy_fail() {
  sy_status=$1 sy_hint=$2
  shift 2
  printf 'stackyard: %s\n' "$*" >&2
  [ -z "$sy_hint" ] || printf '  hint: %s\n' "$sy_hint" >&2
  exit "$sy_status"
}

sy_is_stub() { [ -e "$1/prefix/.stub" ]; }

# Whether a file system server with this number and this start time is there, and is not a zombie.
sy_lives() {
  { read -r sy_stat < "/proc/$1/stat"; } 2>/dev/null || return 1
  case $sy_stat in *'(squashfuse_ll) '*) ;; *) return 1 ;; esac
  sy_stat=${sy_stat##*) }
  [ "${sy_stat%% *}" != Z ] || return 1
  sy_server=$1
  set -- "$2" $sy_stat
  shift 20
  [ "$1" = "$sy_start" ] || return 1
  case $sy_stat in [Tt]*) sy_stopped ;; esac
}

# A server that is stopped answers nobody: whoever reads a file of its image waits until it is killed.
sy_stopped() {
  sy_fail 4 "let it go on: kill -CONT $sy_server; or end it: kill -KILL $sy_server, after which the next command mounts the image again" \
    "an image of this job step cannot be read: its file system server (squashfuse_ll, process $sy_server) is stopped"
}

sy_start_of() {
  read -r sy_stat < "/proc/$1/stat" || return 1
  set -- ${sy_stat##*) }
  shift 19
  printf '%s\n' "$1"
}

sy_writable='set STACKYARD_TMP to a directory on this node that you can write, and that has room'
sy_folder() {
  sy_user=$(id -u)
  case ${STACKYARD_TMP-} in /*) sy_tmp=$STACKYARD_TMP ;; *) sy_tmp=/tmp ;; esac
  for sy_i in '' .1 .2 .3 .4 .5 .6 .7 .8 .9; do
    sy_dir=$sy_tmp/.stackyard-images-$sy_user$sy_i sy_why='File exists'
    [ -e "$sy_dir" ] || sy_why=$(mkdir -m 700 -- "$sy_dir" 2>&1)
    [ -d "$sy_dir" ] && [ ! -L "$sy_dir" ] && [ "$(stat -c '%u %a' -- "$sy_dir")" = "$sy_user 700" ] && return
  done
  sy_fail 4 "$sy_writable" "cannot create a private directory in $sy_tmp: ${sy_why##*: }"
}

# In the new namespaces: mount this image and the others whose modules are loaded, note the server, run the command.
sy_within() {
  sy_rev=$sy_root sy_list=${STACKYARD_IMAGES-}
  while :; do
    case $sy_rev in /*) sy_mount ;; esac
    [ -n "$sy_list" ] || break
    sy_rev=${sy_list%%:*}
    case $sy_list in *:*) sy_list=${sy_list#*:} ;; *) sy_list= ;; esac
  done
  exec 9>&- 6<&-
  cd -- "$PWD" 2>/dev/null # else what the image hides, or what this user may not look up: stay
}

# Mount the image of $sy_rev, and note its server if it is this revision. That of an adopted prefix has to be mounted at
# two places, which mount(8) does not do for users: the compiled launcher of that revision does it.
sy_mount() {
  sy_is_stub "$sy_rev" || return 0
  if [ -e "$sy_rev/lock/original" ]; then
    [ "$sy_rev" != "$sy_root" ] || sy_fail 4 'install gcc or clang, and: stackyard fsck --repair' \
      "cannot mount $sy_root/image.sqsh: the launcher of an adopted prefix has to be compiled"
    return 0
  fi
  sy_image_of "$sy_rev"
  sy_is_whole "$sy_image" || {
    [ "$sy_rev" != "$sy_root" ] || sy_damaged
    return 0
  }
  # no `&`: that would ignore SIGINT, by which squashfuse_ll ends itself
  sy_server=$(
    unset LD_PRELOAD LD_LIBRARY_PATH
    cd / && setsid --fork sh -c 'echo $$; exec "$5" -f -o "$1" "$2" "$3" </dev/null >> "$4" 2>&1 9>&-' sh \
      "ro,nosuid,nodev,timeout=${STACKYARD_IMAGE_IDLE_S:-300}" "$sy_image" "$sy_rev/prefix" "$sy_note.log" "$sy_program"
  )
  sy_i=0
  while sy_is_stub "$sy_rev" && kill -0 "$sy_server" 2>/dev/null && [ "$sy_i" -lt 3000 ]; do
    sleep 0.02
    sy_i=$((sy_i + 1))
  done
  [ "$sy_rev" = "$sy_root" ] || return 0
  sy_is_stub "$sy_rev" && sy_unmounted 'its file system server ended'
  [ -e "$sy_rev/prefix/." ] || {
    kill -9 "$sy_server"
    sy_path='cannot mount it'
    (exit 4)
    eval "$sy_at_end"
  }
  trap '' XFSZ
  printf '%s %s\n' "$sy_server" "$(sy_start_of "$sy_server")" 2>/dev/null > "$sy_note" || {
    kill -9 "$sy_server"
    sy_fail 4 "$sy_writable" "cannot write the note that lets other commands share this mount: $sy_note"
  }
  trap - XFSZ
}

sy_restore='restore it from a copy, or move the revision away and deploy it again; if it is not yours, tell its owner'
sy_damaged() {
  sy_why='it cannot be read, is not a SquashFS image, or is truncated'
  [ -e "$sy_image" ] || sy_why='not found'
  [ ! -e "$sy_image" ] || [ -r "$sy_image" ] ||
    sy_fail 4 'ask its owner to let you read it: ls -l IMAGE, getfacl IMAGE' "cannot mount $sy_image: Permission denied"
  sy_fail 4 "$sy_restore" "cannot mount $sy_image: $sy_why"
}

# Take away the mount of a server that has ended: as root, or by fusermount3 one that this user has made.
sy_take_away() {
  ! sy_is_stub "$sy_root" && grep -qF " $sy_root/prefix " /proc/self/mountinfo || return 0
  stat -f -- "$sy_root/prefix" > /dev/null 2>&1 ||
    umount --lazy --no-canonicalize "$sy_root/prefix" 2>/dev/null || fusermount3 -u -z -- "$sy_root/prefix" 2>/dev/null
}

# What is done at the end where a command could not be started: what of the image cannot be read is said. A text, since a
# shell within another namespace does it too; it knows sy_root and sy_path.
sy_at_end='sy_status=$? sy_why=
PATH=/usr/bin:/bin LD_PRELOAD= LD_LIBRARY_PATH=
case $sy_path in
  */*) sy_file=$sy_path ;;
  *) sy_file=$sy_root/prefix/bin/$sy_path ;;
esac
if [ ! -e "$sy_root/prefix/bin/." ]; then
  sy_why="its files cannot be read"
elif [ "${sy_file#"$sy_root/prefix/"}" = "$sy_file" ]; then
  :
elif [ ! -e "$sy_file" ]; then
  [ "$sy_file" != "$sy_path" ] || sy_why="it is not in the image"
elif [ -r "$sy_file" ]; then
  cat -- "$sy_file" > /dev/null 2>&1 || sy_why="it cannot be read"
fi
sy_name=${sy_root%/*}
sy_name=${sy_name##*/}/${sy_root##*/}
[ -z "$sy_why" ] || printf "stackyard: %s: the image %s/image.sqsh may be damaged: %s\n  hint: %s\n" "$sy_path" "$sy_root" "$sy_why" \
  "\`stackyard verify $sy_name\` compares it with its record; if it differs, restore it from a copy, or move the revision away and deploy it again; if it is not yours, tell its owner" >&2
exit "$sy_status"'

sy_unmounted() {
  sy_log=$sy_note.log sy_why=$1
  sy_no_way
}

# One word after the other in quotes, with which the shell reads them back.
sy_quoted() {
  printf '%s\0' "$@" | sed -z "s/'/'\\\\''/g; s/^/'/; s/\$/'/" | tr '\0' ' '
}

# Let Apptainer run this script again where it has mounted the image: all that it is called with is handed over.
sy_by_apptainer() {
  sy_words="cd $(sy_quoted "$PWD") && set -- $(sy_quoted "$sy_path" "$@")"
  exec 6<&- 9>&- 8<<SY_CALL
$(sy_as_was && export -p)
$sy_words
SY_CALL
  export STACKYARD_APPTAINER=8
  sy_apptainer "$sy_root" "$sy_dir" "$sy_note.log" "$sy_why"
}

sy_own=$(readlink -f -- "$0")
[ -n "$sy_own" ] || sy_fail 126 '' "cannot find out which command this is: $0"
sy_root=${sy_own%/*}
sy_path=$0
if [ -n "${STACKYARD_APPTAINER-}" ]; then
  ! sy_is_stub "$sy_root" || sy_fail 4 '' "Apptainer has not mounted $sy_root/image.sqsh"
  [ "$STACKYARD_APPTAINER" != - ] || exit 0
  for sy_name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do unset "$sy_name"; done
  . /proc/self/fd/8
  exec 8<&-
  sy_system
  sy_path=$1
  shift
elif [ ! -L "$0" ] && [ -z "${STACKYARD_LAUNCH-}" ]; then
  [ $# -gt 0 ] || sy_fail 2 '' "usage: $0 COMMAND [ARGUMENT...]"
  sy_path=$1
  shift
fi
[ -n "${STACKYARD_LAUNCH-}" ] || sy_take_away
if [ -n "${STACKYARD_LAUNCH-}" ]; then
  sy_note=$STACKYARD_LAUNCH sy_program=$STACKYARD_LAUNCH_SERVER
  sy_user_path=$1 sy_user_preload=$2 sy_user_libraries=$3 sy_path=$4
  shift 4
  unset STACKYARD_LAUNCH STACKYARD_LAUNCH_SERVER
  sy_within
elif sy_is_stub "$sy_root"; then
  [ -e /proc/self/ns/mnt ] || sy_fail 4 'mount it: mount -t proc proc /proc' 'cannot read /proc/self/ns/mnt: /proc is not mounted'
  for sy_name in flock nsenter setsid unshare; do
    [ -x "/usr/bin/$sy_name" ] || [ -x "/bin/$sy_name" ] ||
      sy_fail 4 'install util-linux' "cannot mount $sy_root/image.sqsh: $sy_name not found in /usr/bin"
  done
  case ${STACKYARD_IMAGE_IDLE_S-} in
    *[!0-9]*) sy_fail 4 'give whole seconds, or unset it' "invalid STACKYARD_IMAGE_IDLE_S: $STACKYARD_IMAGE_IDLE_S" ;;
  esac
  sy_folder
  # a launch ends at its end all processes that have its STACKYARD_DIR
  sy_note=$sy_dir/$(printf '%s %s %s' "$(stat -L -c %i /proc/self/ns/mnt)" "${STACKYARD_DIR-}" "$sy_root" |
    cat - /proc/self/cgroup | sed 's#\(/step_[^/]*\).*#\1#' | cksum | tr ' ' -)
  (: >> "$sy_note") 2>/dev/null || sy_fail 4 "$sy_writable" "cannot open $sy_note"
  exec 9>> "$sy_note"
  # the server keeps this open: the number of a namespace that is gone is given to the next one, of another job
  exec 6< /proc/self/ns/mnt
  flock -E 75 -w 60 9 || case $? in
    75) sy_fail 4 'see whether a process hangs on a shared file system: fuser -v FILE' \
      "timed out after 60 s waiting for another process that mounts an image: $sy_note" ;;
    *) sy_fail 4 '' "cannot lock $sy_note" ;;
  esac
  read -r sy_pid sy_start < "$sy_note" || sy_pid=
  if [ -n "$sy_pid" ] && sy_lives "$sy_pid" "$sy_start" && [ -e "/proc/$sy_pid/root$sy_root/prefix/bin" ]; then
    exec 9>&- 6<&-
    # by a shell within: nsenter goes to a directory as it is outside, where the stubs are
    exec nsenter --preserve-credentials --user --mount --target "$sy_pid" --wd=/ -- /bin/sh -c \
      'cd -- "$1" 2>/dev/null; PATH=$2 LD_PRELOAD=$3 LD_LIBRARY_PATH=$4 sy_root=$5 sy_path=$7; trap "$6" EXIT; shift 6; exec "$@"' \
      sh "$PWD" "$sy_user_path" "$sy_user_preload" "$sy_user_libraries" "$sy_root" "$sy_at_end" "$sy_path" "$@"
  fi
  rm -f -- "$sy_note.log"
  sy_why=
  sy_program=$(sy_server_program squashfuse_ll) || sy_why='squashfuse_ll not found'
  [ -n "$sy_why" ] || [ -c /dev/fuse ] || sy_why='/dev/fuse not found'
  [ -n "$sy_why" ] || (exec 7<> /dev/fuse) 2>/dev/null || sy_why='/dev/fuse cannot be opened'
  [ -n "$sy_why" ] || LC_ALL=C unshare --user --mount --map-current-user true 2>> "$sy_note.log" || {
    sy_why='no user namespace that may mount'
    ! grep -q 'No space left' -- "$sy_note.log" ||
      sy_why='user namespaces are switched off on this machine, or all in use (user.max_user_namespaces)'
  }
  if [ -n "$sy_why" ]; then
    sy_image_of "$sy_root"
    sy_is_whole "$sy_image" || sy_damaged
    sy_by_apptainer "$@"
  fi
  export STACKYARD_LAUNCH_SERVER="$sy_program"
  export STACKYARD_LAUNCH="$sy_note"
  exec unshare --user --mount --map-current-user --keep-caps --propagation slave -- \
    /bin/sh "$sy_own" "$sy_user_path" "$sy_user_preload" "$sy_user_libraries" "$sy_path" "$@"
elif ! stat -f -- "$sy_root/prefix" > /dev/null 2>&1 && grep -qF " $sy_root/prefix " /proc/self/mountinfo; then
  sy_fail 4 'start it in a new shell; if it is so there too: stackyard image unmount (see stackyard image status)' \
    "cannot read $sy_root/prefix: the server of its mount has ended"
elif [ ! -e "$sy_root/prefix" ]; then
  sy_fail 4 "$sy_restore" "$sy_root/prefix not found: the files of this revision were removed"
fi
if [ "$(readlink -f -- "$sy_path")" = "$sy_own" ]; then
  sy_fail 127 '' "$sy_path: not a command of $sy_root"
fi
sy_as_was
trap "$sy_at_end" EXIT
exec "$sy_path" "$@"
