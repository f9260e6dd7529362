"""`python -m fedhv`."""

from fedhv.cli import main

if __name__ == "__main__":
    main()
