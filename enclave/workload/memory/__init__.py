"""Memory that holds opened secrets: never swapped where possible, read-only once written, wiped."""
