"""The launcher: the one privileged process. It starts compartments and sees them die."""
