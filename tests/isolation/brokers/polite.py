"""Waits for SIGTERM, says so, ends with 5."""

import json
import signal
import sys
import time


def stop(*_):
    print(json.dumps({"stopped": True}), flush=True)
    sys.exit(5)


signal.signal(signal.SIGTERM, stop)
print(json.dumps({"ready": True}), flush=True)
time.sleep(60)
