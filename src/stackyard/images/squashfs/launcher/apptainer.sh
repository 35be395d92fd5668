# The last way of mounting an image: Apptainer or Singularity mounts it, for one command. Part of both launchers.
#
# It is of use where their own programs may do what this user may not: a set-user-ID installation needs neither user
# namespaces nor /dev/fuse. The container is this machine: a root of empty directories, over each of which that of the
# machine is bound ("/ as sandbox is not authorized"). A runtime changes the environment, so that is handed over on a file
# descriptor, with the command and the working directory, to the launcher, which is started once more within.

# The programs that are called here are the system's: the first of a name on PATH may be a command of this revision, which
# would start this launcher once more, and so on; and what LD_PRELOAD names may be in the image.
sy_system() {
  sy_user_path=${PATH-} sy_user_preload=${LD_PRELOAD-} sy_user_libraries=${LD_LIBRARY_PATH-}
  PATH=/usr/bin:/bin:/usr/sbin:/sbin LD_PRELOAD='' LD_LIBRARY_PATH=''
}
sy_system

# sy_find NAME: where a program is that a user may have elsewhere: the first on PATH that is not a command of a revision.
sy_find() {
  sy_rest=$sy_user_path:$PATH
  while [ -n "$sy_rest" ]; do
    sy_at=${sy_rest%%:*}
    case $sy_rest in *:*) sy_rest=${sy_rest#*:} ;; *) sy_rest='' ;; esac
    case $sy_at in /*) ;; *) continue ;; esac
    [ ! -f "$sy_at/$1" ] || [ ! -x "$sy_at/$1" ] || [ -e "${sy_at%/}/../.stub" ] || { echo "$sy_at/$1" && return; }
  done
  return 1
}

# sy_apptainer REVISION DIRECTORY LOG WHY: run the launcher of a revision in a container in which its image is mounted.
# STACKYARD_APPTAINER names the descriptor. Whether this machine can is tried once. Ends with status 4 where it cannot.
sy_apptainer() {
  sy_root=$1 sy_dir=$2 sy_log=$3 sy_why=$4
  sy_runtime=$(sy_find apptainer || sy_find singularity) || {
    echo 'Apptainer or Singularity: not found' >> "$sy_log"
    sy_no_way
  }
  sy_skeleton=$sy_dir/root sy_done=: sy_list=$sy_root:${STACKYARD_IMAGES-}
  mkdir -p -- "$sy_skeleton"
  set -- "$sy_skeleton" "$sy_root/launch"
  while [ -n "$sy_list" ]; do
    sy_rev=${sy_list%%:*}
    case $sy_list in *:*) sy_list=${sy_list#*:} ;; *) sy_list= ;; esac
    case $sy_rev in *,*) echo "Apptainer: a path with a comma cannot be mounted: $sy_rev" >> "$sy_log" ;; esac
    case $sy_done$sy_rev in *:"$sy_rev":* | *,*) continue ;; *:/*) ;; *) continue ;; esac
    sy_done=$sy_done$sy_rev:
    sy_image_of "$sy_rev"
    [ -e "$sy_rev/prefix/.stub" ] || continue
    if [ -e "$sy_rev/lock/original" ]; then
      [ "$sy_rev" = "$sy_root" ] || continue
      sy_original "$sy_rev" || sy_no_way
      set -- --bind "$sy_image:$sy_real:image-src=/" "$@"
    fi
    set -- --bind "$sy_image:$sy_rev/prefix:image-src=/" "$@"
  done
  for sy_top in /* /.[!.]*; do
    if [ -L "$sy_top" ]; then
      [ -L "$sy_skeleton$sy_top" ] || ln -s -- "$(readlink -- "$sy_top")" "$sy_skeleton$sy_top"
    elif [ -d "$sy_top" ]; then
      mkdir -p -- "$sy_skeleton$sy_top"
      case $sy_top in /proc | /sys | /dev | *[:,]*) ;; *) set -- --bind "$sy_top" "$@" ;; esac
    fi
  done
  for sy_name in $(env | sed -n 's/^\(APPTAINER[A-Z_]*\)=.*/\1/p; s/^\(SINGULARITY[A-Z_]*\)=.*/\1/p'); do
    case $sy_name in *DIR | *_USERNS) ;; *) unset "$sy_name" ;; esac
  done
  unset LD_PRELOAD LD_LIBRARY_PATH
  PATH=$PATH:$sy_user_path
  set -- "$sy_runtime" -s exec --no-home --no-mount home,tmp,cwd,bind-paths --pwd / "$@"
  [ "$(cat -- "$sy_log.apptainer" 2>/dev/null)" = "$sy_root" ] ||
    STACKYARD_APPTAINER=- "$@" </dev/null >> "$sy_log" 2>&1 || sy_no_way
  printf '%s\n' "$sy_root" > "$sy_log.apptainer"
  exec "$@"
}

# sy_original REVISION: where the image of an adopted prefix is mounted too, since its files name that path.
sy_original() {
  { read -r sy_given && read -r sy_real; } < "$1/lock/original" &&
    [ -d "$sy_real" ] && [ "$(readlink -f -- "$sy_given")" = "$sy_real" ] && return
  echo "Apptainer: not a directory where the image can be mounted, by which its files name each other: $sy_given" >> "$sy_log"
  return 1
}

sy_no_way() {
  printf 'stackyard: cannot mount %s/image.sqsh: %s\n' "$sy_root" "$sy_why" >&2
  cat -- "$sy_log" >&2 2>/dev/null
  printf 'stackyard: %s is not usable on this machine\n  hint: %s\n' "$sy_root" \
    '`stackyard image status` says which ways this machine has; root can mount it for all (`stackyard image autofs`)' >&2
  exit 4
}

# Whether an image has all bytes that it says it has: a server can mount a truncated one, in which nothing can be read.
sy_is_whole() {
  set -- "$(od -A n -t u4 -N 4 -- "$1")" "$(od -A n -t u8 -j 40 -N 8 -- "$1")" "$(stat -L -c %s -- "$1")"
  [ "${1:-0}" -eq 1936814952 ] && [ "${2:-0}" -le "${3:-0}" ]
} 2>/dev/null

# The image of a revision: the copy on this node's own disk, where the launch has made one (--stage stack).
sy_image_of() {
  sy_image=${STACKYARD_STAGE-}/image.sqsh
  [ "${STACKYARD_STAGED_IMAGE-}" = "$1" ] && sy_is_whole "$sy_image" || sy_image=$1/image.sqsh
}

# sy_server_program NAME: a file system server (squashfuse_ll), or the one that Apptainer or Singularity has brought.
sy_server_program() {
  sy_find "$1" && return
  for sy_name in apptainer singularity; do
    sy_runtime=$(sy_find "$sy_name") || continue
    sy_found=$("$sy_runtime" buildcfg LIBEXECDIR 2>/dev/null)/$sy_name/bin/$1
    [ -x "$sy_found" ] && echo "$sy_found" && return
  done
  return 1
}
