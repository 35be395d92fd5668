"""``python -m stackyard``: the same as ``stackyard``."""

from stackyard.cli.entry import main

if __name__ == "__main__":
    main()
