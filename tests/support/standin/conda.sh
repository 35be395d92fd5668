export CONDA_EXE='@PREFIX@/bin/conda'
export _CE_M=''
export _CE_CONDA=''
export CONDA_PYTHON_EXE='@PREFIX@/bin/python'

__add_sys_prefix_to_path() {
    PATH="$(dirname "$(dirname "$CONDA_EXE")")/bin${PATH:+:$PATH}"
    export PATH
}

__conda_hashr() {
    hash -r
}

__conda_activate() {
    __conda_text="$(PS1="${PS1-}" "$CONDA_EXE" shell.posix "$@")" || return
    eval "$__conda_text"
    unset __conda_text
    __conda_hashr
}

__conda_reactivate() {
    __conda_activate reactivate
}

conda() {
    case "${1-}" in
        activate|deactivate) __conda_activate "$@" ;;
        install|update|upgrade|remove|uninstall) "$CONDA_EXE" "$@" && __conda_reactivate ;;
        *) "$CONDA_EXE" "$@" ;;
    esac
}

if [ -z "${CONDA_SHLVL+x}" ]; then
    export CONDA_SHLVL=0
    PATH="@PREFIX@/condabin${PATH:+:$PATH}"
    export PATH
fi
