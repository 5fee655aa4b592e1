"""The channel's formats: protobuf on one side, domain types on the other.

gRPC's C core reads its environment once, when it is loaded, and has no other
switch for these two.  So they are set here, before any module of this package
imports grpc.
"""

import os

# A TLS 1.2 suite that an ECDSA certificate can not serve: TLS 1.3 is what remains.
# `serve_enclave` tries TLS 1.2 on itself and does not serve if it is accepted.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES256-GCM-SHA384"
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
