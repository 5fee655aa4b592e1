"""Writes `enclave/wire/generated` from `protos/`: `python -m enclave.wire.generate`.

Needs the development extra (grpcio-tools, mypy-protobuf) and a source checkout.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib import resources
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = "enclave.wire.generated"
_IMPORT = re.compile(r"^(from|import) doubleblind\.v1", re.MULTILINE)
_SERVICE = re.compile(r"^class \w+Stub\b", re.MULTILINE)


def generate_wire_code(protos: Path, destination: Path) -> tuple[Path, ...]:
    """Generate modules and type stubs of every `.proto` under `protos`; returns the files.

    `destination` becomes the package `enclave.wire.generated`.
    """
    from grpc_tools import protoc  # type: ignore[import-untyped]

    sources = sorted(path.relative_to(protos) for path in protos.rglob("*.proto"))
    if not sources:
        raise SystemExit(f"no .proto file under {protos}")
    destination.mkdir(parents=True, exist_ok=True)
    scripts = Path(sysconfig.get_path("scripts"))
    arguments = [
        "protoc",
        f"--proto_path={protos}",
        f"--proto_path={resources.files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--python_out={destination}",
        f"--grpc_python_out={destination}",
        f"--mypy_out=quiet:{destination}",
        *(str(source) for source in sources),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    written = []
    for source in sources:
        for suffix in ("_pb2.py", "_pb2_grpc.py", "_pb2.pyi"):
            path = destination / source.with_name(source.stem + suffix)
            text = path.read_text()
            if suffix == "_pb2_grpc.py" and _SERVICE.search(text) is None:
                path.unlink()  # no service in this file
                continue
            path.write_text(_IMPORT.sub(rf"\1 {_PACKAGE}.doubleblind.v1", text))
            written.append(path)
    for folder in (Path(), *{part for source in sources for part in source.parents}):
        package = destination / folder / "__init__.py"
        package.write_text("")
        if package not in written:
            written.append(package)
    return tuple(sorted(written))


def main() -> None:
    """Regenerate in place."""
    for path in generate_wire_code(_ROOT / "protos", Path(__file__).parent / "generated"):
        sys.stdout.write(f"{path.relative_to(_ROOT)}\n")


if __name__ == "__main__":
    main()
