"""From an intent to ranks on nodes: laid out, rendered for every scheduler and launcher, started, watched, recorded.

    Intent + Site -> Layout (who runs where) -> Plan (exact argv, script, environment, reasons) -> Run

Other rooms import `api` only. Its rooms, each of which imports from those before it only: `request` (the intent, job
files), `layout` (which rank has which cores and GPUs), `plan` (launchers, schedulers, backends, containers, profilers),
`records` (run directories), `node` (what runs beside the ranks: standard library only), `shim` (rank.sh), `run` (starts
and watches a step), `preflight` (checks before the program), `jobs` (a job from its request to its end), `api`.

The package can be called: ``stackyard.launch("train.py")`` is `api.calls.launch`. The agents of the nodes import it
too: it runs on Python 3.6.
"""

from stackyard import callable_room

callable_room(__name__)
