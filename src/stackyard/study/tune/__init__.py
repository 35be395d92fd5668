"""Searches of hyperparameters, over as many allocations as they take: ``stackyard tune``.

`request` is what is asked (``space.yaml``), `sampling` draws parameters, `optimizer` asks Optuna for them. `journal` is
the file that everything follows from; `progress` is what it says, `rungs` what comes next: pure functions both.
`programs` run on the nodes; `slots` and `steps` are the other end of them, `search` is the one process
that writes. `allocations` submits jobs, `results` and `content` make the report.
"""
