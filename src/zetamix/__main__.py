"""`python -m zetamix`, which is how torchrun starts it."""

from zetamix.cli import main

if __name__ == "__main__":
    main()
