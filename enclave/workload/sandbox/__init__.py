"""The sandbox's trusted runtime: reads a bundle, runs its entry, sends one result frame."""
