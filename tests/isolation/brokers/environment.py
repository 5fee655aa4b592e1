"""Prints what a broker was given, keeps a file in its directory, ends with 7."""

import json
import os
import sys
from pathlib import Path

status = dict(
    line.split(":\t")
    for line in Path("/proc/self/status").read_text().splitlines()
    if ":\t" in line
)
Path("kept").write_text("kept")
print(
    json.dumps(
        {
            "argv": sys.argv[1:],
            "environment": dict(os.environ),
            "no_new_privs": status["NoNewPrivs"],
            "capabilities": [status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")],
            "groups": os.getgroups(),
            "descriptors": len(os.listdir("/proc/self/fd")),
        }
    )
)
sys.exit(7)
