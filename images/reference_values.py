"""Emit a reference-values document: `python -m images.reference_values --kind simulated`.

Kinds of measured images (sev-snp) come with the image builder, which computes
them from the image; no value is taken from a running machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attestation.collect import reference_values_for_simulated

EMITTERS = {"simulated": reference_values_for_simulated}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the canonical document to a file or to standard output."""
    parser = argparse.ArgumentParser(prog="images.reference_values", description=__doc__)
    parser.add_argument("--kind", choices=sorted(EMITTERS), required=True)
    parser.add_argument("--output", type=Path, help="file to write; standard output if absent")
    chosen = parser.parse_args(arguments)
    document = EMITTERS[chosen.kind]()
    if chosen.output is None:
        sys.stdout.buffer.write(document)
    else:
        chosen.output.write_bytes(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
