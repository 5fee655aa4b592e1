"""The clients' side of the channel: certificate bootstrap, calls, resumable upload."""
