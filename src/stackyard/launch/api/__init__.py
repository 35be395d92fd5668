"""The door of `launch`, and all of it that other rooms import.

`jobs` plans, runs, submits and repeats jobs, `explaining` explains them, `commands` submits commands of this program;
`collectives` records jobs that measure operations between ranks; `runs` finds, follows, cancels and compares recorded
runs.

    from stackyard.launch.api import jobs, runs

    workspace = jobs.Workspace(site, yard, site_file, Path("runs").absolute(), os.environ, tuple(sys.argv))
    job = jobs.batch_job(workspace, jobs.Intent(program=("train.py",), nodes=2))
    run = jobs.record_submission(job)
    jobs.submit(run)
    status = runs.follow(run.paths, listener)

`runs` imports the standard library only, so that commands that read runs start fast; `jobs` starts without
pydantic. All of them raise the classes of `stackyard.core.errors`, print nothing, and take environment and command line
as arguments.
"""
