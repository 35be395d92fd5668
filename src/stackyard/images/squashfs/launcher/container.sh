# The last way of making the container of a wrapped image: Apptainer or Singularity makes it, for one command. Used where
# a user may not make namespaces, and they may: a set-user-ID installation. `sy_no_way` and the rest are in apptainer.sh.

# sy_container REVISION DIRECTORY LOG WHY: run the launcher of a revision in the container of its image.
sy_container() {
  sy_root=$1 sy_log=$3 sy_why=$4 sy_tab=$(printf '\t') sy_mode=host sy_holds=
  sy_runtime=$(sy_find apptainer || sy_find singularity) || {
    echo 'Apptainer or Singularity: not found' >> "$sy_log"
    sy_no_way
  }
  set -- --no-home --no-mount home,tmp,cwd,bind-paths --pwd /
  while read -r sy_key sy_value; do
    case $sy_key in
      mode) sy_mode=$sy_value ;;
      holds) sy_holds=$sy_value ;;
      bind)
        sy_target=${sy_value#*"$sy_tab"}
        set -- "$@" --bind "${sy_value%%"$sy_tab"*}:${sy_target%"$sy_tab"*}:${sy_target#*"$sy_tab"}"
        ;;
      venv)
        sy_from=${sy_value#*"$sy_tab"} sy_target=${sy_from#*"$sy_tab"} sy_from=${sy_from%%"$sy_tab"*}
        case $sy_target in *[:,]*) continue ;; esac
        sy_file=$sy_log.${sy_from##*/}
        {
          printf 'home = %s/prefix/%s/bin\n' "$sy_root" "${sy_value%%"$sy_tab"*}"
          cat -- "$sy_root/prefix/.inside/$sy_from"
        } > "$sy_file.$$" && mv -- "$sy_file.$$" "$sy_file" || sy_no_way
        set -- "$@" --bind "$sy_file:$sy_target:ro"
        ;;
      library)
        for sy_file in $sy_value; do
          [ ! -e "$sy_file" ] || set -- "$@" --bind "$sy_file:/.stackyard/libs/${sy_file##*/}:ro"
        done
        ;;
    esac
  done < "$sy_root/prefix/.inside/.container"
  if [ "$sy_mode" = isolated ]; then
    set -- --contain "$@"
  else
    for sy_top in /*; do
      case $sy_top in
        /proc | /sys | /dev | /bin | /sbin | /lib | /lib32 | /lib64 | /libx32 | /usr | /etc | /var | /boot | /lost+found) continue ;;
        /home | /tmp | /run | /mnt | /media | /srv) ;;
        *[:,]*) continue ;;
        *) case :$sy_holds: in *:"${sy_top#/}":*) continue ;; esac ;;
      esac
      [ ! -d "$sy_top" ] || set -- --bind "$sy_top" "$@"
    done
    [ ! -d "${HOME-}" ] || set -- "$@" --bind "$HOME"
    set -- --bind /var/tmp "$@"
  fi
  set -- "$@" --bind "$sy_root" --bind "$sy_root/prefix/.inside:$sy_root/prefix:ro"
  for sy_name in $(env | sed -n 's/^\(APPTAINER[A-Z_]*\)=.*/\1/p; s/^\(SINGULARITY[A-Z_]*\)=.*/\1/p'); do
    case $sy_name in *DIR | *_USERNS) ;; *) unset "$sy_name" ;; esac
  done
  unset LD_PRELOAD LD_LIBRARY_PATH
  PATH=$PATH:$sy_user_path
  set -- "$sy_runtime" -s exec "$@" "$sy_root/image.sqsh" "$sy_root/launch"
  [ "$(cat -- "$sy_log.apptainer" 2>/dev/null)" = "$sy_root" ] ||
    STACKYARD_APPTAINER=- "$@" </dev/null >> "$sy_log" 2>&1 || sy_no_way
  printf '%s\n' "$sy_root" > "$sy_log.apptainer"
  exec "$@"
}
