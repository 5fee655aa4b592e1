"""What confines a compartment: Landlock, seccomp, limits, and the stage that applies them."""
