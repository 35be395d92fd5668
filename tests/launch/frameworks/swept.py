"""A sweep of two jobs, which Hydra's launcher for submitit submits and waits for."""

import glob

import hydra


@hydra.main(version_base=None, config_path=None)
def main(config) -> None:
    with open(f"ran-{config.x}", "w") as file:
        file.write("done")


if __name__ == "__main__":
    main()
    print("jobs", ", ".join(sorted(glob.glob("ran-*"))), flush=True)
