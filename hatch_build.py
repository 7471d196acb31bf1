"""Compile the C sources when the package is installed, and put `conf` into a wheel."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):
    """Rebuild the libraries for every wheel and editable install; a wheel that holds one is of this
    platform.

    Without a compiler or libjpeg the installation goes on without them. An editable install reads
    the checkout's `conf`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiling = runpy.run_path(str(Path(self.root, "src/rectifiers/runtime/compiling.py")))
        for warning in compiling["compile_all"]():
            self.app.display_warning(warning)
        made = [each.path for each in (compiling["JPEG"], compiling["PRELU"]) if each.path.exists()]
        if made:
            build_data["artifacts"] += [str(path.relative_to(self.root)) for path in made]
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        if version != "editable":
            build_data["force_include"][str(Path(self.root, "conf"))] = "rectifiers/conf"
