"""`python -m zetamix_lab` is the command `zetamix`."""

from zetamix_lab.cli import main

if __name__ == "__main__":
    main()
