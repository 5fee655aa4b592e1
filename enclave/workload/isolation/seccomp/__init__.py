"""seccomp filters: one reviewed text file a compartment, assembled here to classic BPF."""
