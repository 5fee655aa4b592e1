"""`python -m enclave.workload.launcher [options] -- BROKER ARGUMENTS...`."""

from __future__ import annotations

import argparse
import sys

from enclave.core.errors import Refusal
from enclave.workload.launcher.process import launch_workload


def main() -> int:
    """Parse the command line and become the launcher."""
    parser = argparse.ArgumentParser(prog="python -m enclave.workload.launcher")
    parser.add_argument("--run-directory", required=True)
    parser.add_argument("--state-directory", required=True)
    parser.add_argument("--readable", action="append", default=[], metavar="PATH")
    parser.add_argument("--insecure-show-stderr", action="store_true")
    parser.add_argument("broker", nargs="+", metavar="BROKER")
    options = parser.parse_args()
    try:
        return launch_workload(
            options.broker,
            run_directory=options.run_directory,
            state_directory=options.state_directory,
            readable=options.readable,
            insecure_show_stderr=options.insecure_show_stderr,
        )
    except Refusal as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 70


if __name__ == "__main__":
    sys.exit(main())
