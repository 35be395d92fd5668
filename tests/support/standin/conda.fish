set -gx CONDA_EXE '@PREFIX@/bin/conda'
set -gx CONDA_PYTHON_EXE '@PREFIX@/bin/python'

function conda
    switch "$argv[1]"
        case activate deactivate
            eval ($CONDA_EXE shell.fish $argv | string collect)
        case '*'
            $CONDA_EXE $argv
    end
end

if not set -q CONDA_SHLVL
    set -gx CONDA_SHLVL 0
    set -gx PATH '@PREFIX@/condabin' $PATH
end
