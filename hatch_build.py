"""Compiles the C sources when the package is installed. Without a compiler or libjpeg the install goes on without."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):
    """Makes the library anew for every wheel and editable install; a wheel that holds it is of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = runpy.run_path(str(Path(self.root, "src/rectifiers/data/native/build.py")))
        why_not = build["compile_library"]()
        if why_not:
            self.app.display_warning(f"The fast JPEG decoder was not built ({why_not}); images are read by Pillow.")
            return
        build_data["artifacts"].append(str(build["LIBRARY"].relative_to(self.root)))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
