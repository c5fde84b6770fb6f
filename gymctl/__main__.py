"""`python -m gymctl` is `gymctl`."""

from gymctl.cli.main import main

if __name__ == "__main__":
    main()
