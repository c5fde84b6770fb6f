"""`python -m gymctl` is `gymctl`."""

from gymctl.cli.entry import gymctl

if __name__ == "__main__":
    gymctl()
