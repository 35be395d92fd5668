# Sourced without words it defines the alias; the alias sources it with the words that were typed.
if (! $?CONDA_EXE) setenv CONDA_EXE '@PREFIX@/bin/conda'
if (! $?CONDA_PYTHON_EXE) setenv CONDA_PYTHON_EXE '@PREFIX@/bin/python'
if (! $?CONDA_SHLVL) then
    setenv CONDA_SHLVL 0
    setenv PATH "@PREFIX@/condabin:${PATH}"
endif
alias conda 'source "@PREFIX@/etc/profile.d/conda.csh"'
if ($#argv > 0) then
    switch ("$argv[1]")
        case activate:
        case deactivate:
            set conda_words = ($argv:q "")
            set conda_text = "`'@PREFIX@/bin/conda' shell.csh '$conda_words[1]' '$conda_words[2]'`"
            eval "$conda_text"
            unset conda_words conda_text
            rehash
            breaksw
        default:
            '@PREFIX@/bin/conda' $argv:q
            breaksw
    endsw
endif
