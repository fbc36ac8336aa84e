"""Make ncu_rep_pb2.py and its stub from ncu_rep.proto: `python parsers/ncu_rep/generate.py`.

The oldest protobuf that llmtop accepts must be able to load the result, and newer ones load what older ones made.
So this is run with the grpcio-tools of that oldest protobuf (1.73 for 6.31), in an environment of its own:
`pip install 'grpcio-tools==1.73.*'`. A test compares the descriptors, whatever version made them.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent


def main() -> int:
    """Write both files beside this one; returns protoc's exit status."""
    well_known = files("grpc_tools") / "_proto"
    return int(
        protoc.main(
            ["protoc", f"-I{HERE}", f"-I{well_known}", f"--python_out={HERE}", f"--pyi_out={HERE}", "ncu_rep.proto"]
        )
    )


if __name__ == "__main__":
    sys.exit(main())
