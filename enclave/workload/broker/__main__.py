"""`python -m enclave.workload.broker`: started by the launcher, never by hand."""

from __future__ import annotations

import sys

from enclave.workload.broker.process import main

if __name__ == "__main__":
    sys.exit(main())
