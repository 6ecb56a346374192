"""Makes the Python modules of the .proto files beside this one, in each build of the package: a wheel, or ``pip install
-e``. So a wheel holds them, and nobody has to make them by hand."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError

PROTOS, STUBS = Path("protos"), Path("migrator/rpc/stubs")


class BuildStubs(build_py):
    """``build_py`` of setuptools, which runs in the project's folder; the stubs first."""

    def run(self) -> None:
        """Make the stubs, then collect what a wheel holds.

        :raises ExecError: a .proto file is wrong; protoc has said where.
        """
        for old in STUBS.glob("*_pb2*"):
            old.unlink()
        outputs = [f"--{kind}_out=." for kind in ("python", "pyi", "grpc_python")]
        includes = [f"-I{STUBS}={PROTOS}", f"-I{files('grpc_tools') / '_proto'}"]
        sources = sorted(map(str, PROTOS.glob("*.proto")))
        if protoc.main(["protoc", *includes, *outputs, *sources]) != 0:
            raise ExecError(f"protoc could not make {STUBS} from {', '.join(sources)}")
        super().run()
