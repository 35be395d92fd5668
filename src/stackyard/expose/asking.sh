#!/bin/sh
# In front of the commands of {module}: each name in this directory is a link to this script. It runs the command of
# that name once you have accepted the licences that each user accepts, and asks for them until then.
sy_home=${HOME-}
[ -n "$sy_home" ] || sy_home=$(PATH=/usr/bin:/bin && getent passwd "$(id -u)" | cut -d: -f6)
sy_marks=${XDG_CONFIG_HOME:-$sy_home/.config}/stackyard/licences
sy_module={module}

sy_end() {
  printf 'stackyard: %s\n  hint: %s\n' "$1" "$2" >&2
  exit 4
}

sy_show() {
  if [ -z "$1" ]; then
    printf '%s has no text of the licence %s\n' "$sy_module" "$2" >&2
  elif [ -t 1 ]; then
    ${PAGER:-more} "$1" || cat "$1" >&2
  else
    cat "$1" >&2
  fi
}

# NAME AS-TYPED VARIABLE MARK TEXT ENTRY
sy_agree() {
  [ ! -f "$sy_marks/$4" ] || [ ! -O "$sy_marks/$4" ] || return 0
  sy_path=$PATH
  PATH=/usr/local/bin:/usr/bin:/bin # the stack may have programs of these names, and links to this script then
  sy_answer=
  if [ -t 0 ] && [ -t 2 ]; then
    sy_show "$5" "$1"
    printf 'Do you accept the licence %s of %s? [y/N]: ' "$1" "$sy_module" >&2
    read -r sy_answer
  fi
  case $sy_answer in
    [yY] | [yY][eE][sS]) ;;
    *) sy_end "licence not accepted by $(id -un): $1, of $sy_module" \
      "read and accept it: stackyard licences accept $2 --of $sy_module; or set $3=yes" ;;
  esac
  (umask 077 && mkdir -p "$sy_marks" && cd "$sy_marks" &&
    printf '{"format": 1, %s, "who": "%s", "when": "%s", "uid": %s}\n' "$6" "$(id -un | sed 's/[\\"]/\\&/g')" \
      "$(date -u +%Y-%m-%dT%H:%M:%S+00:00)" "$(id -u)" > ".$4.$$" && mv -f ".$4.$$" "$4") ||
    sy_end "cannot keep in $sy_marks that you accepted $1" "set $3=yes in this shell, or free space there"
  PATH=$sy_path
}

{licences}
sy_name=${0##*/}
for sy_dir in {folders}; do
  [ -f "$sy_dir/$sy_name" ] && [ -x "$sy_dir/$sy_name" ] && exec "$sy_dir/$sy_name" "$@"
done
printf 'stackyard: %s not found in %s\n' "$sy_name" "$sy_module" >&2
exit 127
