"""Compile the C sources when the package is installed, and put `conf` into a wheel, without
the claims and this machine's own defaults."""

import re
import runpy
import sysconfig
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
        paths = [compiling[name].path for name in ("JPEG", "PRELU")]
        if built := [path for path in paths if path.exists()]:
            build_data["artifacts"] += [str(path.relative_to(self.root)) for path in built]
            build_data["pure_python"] = False
            # called through ctypes, so that one wheel serves every Python of its platform
            platform = re.sub(r"\W", "_", sysconfig.get_platform())
            build_data["tag"] = f"py3-none-{platform}"
        if version != "editable":
            conf = Path(self.root, "conf")
            for path in conf.rglob("*.yaml"):
                # the claims' records are the checkout's, and conf/local is this machine's
                if not {conf / "claim", conf / "local"} & set(path.parents):
                    place = Path("rectifiers", path.relative_to(conf.parent))
                    build_data["force_include"][str(path)] = str(place)
