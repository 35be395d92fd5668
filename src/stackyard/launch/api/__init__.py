"""The door of `launch`: `api.jobs` plans, runs, submits, repeats and explains jobs; `api.runs` reads recorded runs.

    from stackyard.launch.api import jobs, runs

    workspace = jobs.Workspace(site, yard, site_file, Path("runs").absolute(), os.environ, tuple(sys.argv))
    job = jobs.batch_job(workspace, jobs.Intent(program=("train.py",), nodes=2))
    run = jobs.record_submission(job)
    jobs.submit(run)
    status = runs.follow(run.paths, listener)

`api.runs` imports the standard library only, so that commands that read runs start fast; `api.jobs` imports pydantic.
Both raise the classes of `stackyard.errors`, print nothing, and take the environment and the command line as arguments.
"""
