"""Entry point of `python -m rl_teacher`."""

from rl_teacher.cli import main

if __name__ == "__main__":
    main()
