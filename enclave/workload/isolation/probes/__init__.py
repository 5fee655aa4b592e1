"""Probes: harmless attempts of hostile code, run inside a real compartment beforehand."""
