"""x."""

import os
from typing import Any


def run(*, control: Any, settings: Any) -> int:
    print(os.getuid(), os.getpid(), settings, flush=True, file=__import__("sys").stderr)
    return 3
