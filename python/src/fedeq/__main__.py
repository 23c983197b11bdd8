"""The command `fedeq`, as the Rust program of that name."""

import signal
import sys

from fedeq import _native


def main() -> None:
    """Run a command and end with its exit code."""
    # Rust handles Ctrl-C where there is something to finish; elsewhere it ends the process, as that of any command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.main(sys.argv[1:], [sys.executable, "-m", "fedeq"]))


if __name__ == "__main__":
    main()
