"""The blocks whose lines another test types, with the places of those tests (and of a file that has their words)."""

from __future__ import annotations

COVERED: dict[str, tuple[str, ...]] = {
    "bases.md#2": (
        "tests/images/test_extend.py::test_a_package_on_top_of_a_virtual_environment",
        "tests/images/test_extend.py::test_a_base_alone_is_a_sif_too",
        "tests/examples/test_example_powerai.py", "examples/summit-containers/README.md",
    ),
    "bench.md#2": (
        "tests/study/test_bench_here.py::test_a_variant_that_changes_is_another_study",
        "tests/study/test_bench_here.py::test_a_plain_environment_runs_its_own_python",
        "tests/study/test_bench_slurm.py::test_a_study_that_is_killed_three_times_repeats_and_loses_nothing",
    ),
    "bench.md#3": (
        "tests/study/slurm_bed.py",
        "tests/study/test_bench_slurm.py::test_each_repeat_of_a_size_is_a_job_of_its_own",
    ),
    "bindings.md#1": (
        "tests/images/test_host_mpi_slurm.py", "tests/images/test_detect.py", "tests/images/test_check.py",
    ),
    "bindings.md#2": ("tests/images/test_bindings_module.py",),
    "bindings.md#3": ("tests/images/test_host_mpi_slurm.py",),
    "board.md#1": ("tests/board/test_board.py::test_tensorboard_of_a_stack_shows_a_run",),
    "board.md#3": (
        "tests/board/test_board_slurm.py::test_a_board_in_a_batch_job_names_its_node_and_ends_with_the_job",
        "tests/board/test_board_slurm.py::test_a_board_of_salloc_on_the_login_node_ends_with_the_job_too",
    ),
    "collectives.md#1": ("tests/study/test_collectives.py::test_all_operations_over_gloo",),
    "compiled-packages.md#1": ("tests/horovod/test_horovod_long.py", "tests/support/torchstack.py"),
    "containers.md#6": ("tests/images/test_oci_stack.py::test_a_recipe_gives_the_same_files_elsewhere",),
    "imports.md#1": (
        "tests/study/test_imports_nodes.py::test_more_nodes_and_more_ranks_on_each_are_measured_in_an_allocation",
        "tests/study/test_imports_nodes.py::test_prefix_image_and_staged_image_are_shown_side_by_side",
    ),
    "install-for-everybody.md#1": ("tests/cli/test_install_for_everybody.py",),
    "install-for-everybody.md#2": (
        "tests/cli/test_install_for_everybody.py::test_another_account_deploys_with_the_module",
    ),
    "jupyter.md#1": (
        "tests/expose/test_kernel.py::test_a_notebook_runs_inside_a_revision",
        "tests/examples/test_example_jupyterlab.py",
    ),
    "launch.md#2": (
        "tests/launch/test_own_starters.py::test_once_per_node_with_its_own_options",
    ),
    "profile.md#1": ("tests/study/test_hta.py", "tests/launch/test_profilers.py"),
    "profile.md#2": (
        "tests/launch/test_profile_run.py::test_an_unchanged_program_under_a_shell",
    ),
    "profile.md#3": ("tests/study/test_hta.py", "tests/study/test_profiles.py"),
    "regression.md#2": ("tests/study/test_references.py::test_reframe_lists_dry_runs_and_runs_it",),
    "remove.md#1": ("tests/upkeep/test_bases_kept.py",),
    "tune.md#1": ("tests/study/test_tune_slurm.py", "tests/study/test_tune_here.py", "tests/study/tunebed.py"),
    "tune.md#2": ("tests/study/test_tune_slurm.py", "tests/study/test_tune_ray.py"),
    "users-conda.md#1": (
        "tests/deploy/test_users_conda.py::test_conda_lists_what_the_site_has_published",
        "tests/deploy/test_users_conda.py::test_a_user_clones_a_revision_without_a_download",
    ),
    "wrap.md#3": (
        "tests/images/test_wrap_python.py::test_an_environment_on_top_starts_outside_and_inside",
    ),
}  # fmt: skip
