"""Files that run inside the user's Python: the probe, and the traces that it loads. None of them imports stackyard.

The agent of a node writes them into its private directory (`launch.run.agentfile` puts their text into agent.py), which
`rank.sh` puts first on PYTHONPATH. `sitecustomize` costs each start of a Python a few milliseconds, and does nothing
more until a framework is imported: then `listen` answers on a UNIX socket of the process.

**Variables** of a rank:

    PYTHONPATH               begins with the directory of the probe
    STACKYARD_PROBE          ``off``: the probe does nothing in this process and its children
    STACKYARD_PROBE_SIGNAL   with --hang: the real-time signal on which each Python process writes its stacks
    STACKYARD_TRACE_<NAME>   a trace to start without being asked: its options, as JSON; ``STACKYARD_TRACE_TORCH``.
                             It starts after the import of ``torch``, ``tensorflow`` or ``jax`` if it has that name,
                             else at the start of the program; not in workers of multiprocessing

**A trace** is a file ``<name>_trace.py`` of this directory, which needs the standard library and its framework:

    start(options: dict) -> None    raises an exception whose text says why it cannot
    stop() -> dict                  ``{"files": [..], "steps": [first, last] or None}``: what was written. Idempotent;
                                    may be called by another thread than `start`, and from a signal handler
    running() -> bool               optional: whether it still traces; without it, until `stop`
    ends_itself                     optional: true if it ends after `seconds` without the probe

with ``{"output_dir", "rank", "steps": [10, 20] or None, "seconds": 10 or None, "shapes", "memory"}``. A trace counts
steps itself, from its own start; after `seconds` the probe calls `stop`, as at exit and on SIGTERM. What the traces
share is window.py, which the probe gives them: ``sys.modules["stackyard_probe"].window()``.

**Requests** are one JSON line each to ``<pid>.sock`` in that directory, and so are the answers, ``{"ok": true, ..}`` or
``{"ok": false, "error": "what: why"}``:

    {"do": "state"}                                          pid, rank, worker, frameworks, traces
    {"do": "start", "trace": "torch", "options": {..}}
    {"do": "stop", "trace": "torch"}                         what `stop` returned; without "trace": of all traces
    {"do": "recorder", "output": PATH}                       PyTorch's flight recorder into a file; `groups`: where this
                                                             rank is in each process group

**Stacks**: ``<pid>.stacks`` begins with ``fd <number>``, the descriptor that faulthandler writes to.
"""
