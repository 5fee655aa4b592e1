"""Asks for memory where the launcher is no root."""

import json

from enclave.core.errors import Refusal
from enclave.workload.launcher.client import LauncherClient

try:
    LauncherClient.from_environment().mount_memory("ab" * 16, 4096)
except Refusal as refusal:
    print(json.dumps({"code": refusal.code}))
