"""Entry point of `python -m rl_teacher`."""

import sys

from rl_teacher.cli import main

if __name__ == "__main__":
    sys.exit(main())
