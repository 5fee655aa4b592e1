"""`python -m enclave.workload.model_host FD`: serve the inherited control socket FD."""

from __future__ import annotations

import socket
import sys

from enclave.workload.model_host.serve import run


def main() -> int:
    """Run with the control socket whose descriptor number is the only argument."""
    return run(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
