"""Compiles the C sources when the package is installed. Without a compiler or libjpeg the install goes on without."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):
    """Makes the libraries anew for every wheel and editable install; a wheel that holds one is of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiling = runpy.run_path(str(Path(self.root, "src/rectifiers/runtime/compiling.py")))
        for fault in compiling["compile_all"]():
            self.app.display_warning(fault)
        made = [each.path for each in (compiling["JPEG"], compiling["KERNELS"]) if each.path.exists()]
        if made:
            build_data["artifacts"] += [str(path.relative_to(self.root)) for path in made]
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
