"""`python -m zetamix`, which is how torchrun starts it."""

from zetamix_lab.cli import main

if __name__ == "__main__":
    main()
