"""The GPU's kernels compile for every kind of GPU in use, where there is none."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from rectifiers.prelu import cuda

whole = {"unit": 16, "block": 4 * cuda.BLOCK}  # as of 112 x 112
square = {"unit": 4, "block": 256}  # as of 14 x 14
last = {"rows": 4 * cuda.BLOCK // 128, "block": 128}
for kernel, values in ((cuda._maps, whole), (cuda._maps, square), (cuda._last, last)):
    for number in ("fp32", "bf16"):
        pointers = {"slopes": "*fp32", "sums": "*fp32", **dict.fromkeys(("v", "grad", "grad_input"), f"*{number}")}
        types = {name: pointers.get(name, "constexpr" if name in values else "i32") for name in kernel.arg_names}
        even = {*pointers, "channels"}  # multiples of 16, as Triton finds out when it is called
        facts = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if name in even}
        options = {"num_warps": cuda.warps(values["block"])} if "unit" in values else {}
        source = ASTSource(kernel, types, constexprs=values, attrs=facts)
        made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options)
        print(kernel.__name__, values.get("unit", 16), number, len(made.asm["cubin"]))
        print(made.asm["ptx"])
        print("END")
"""  # noqa: E501


@pytest.mark.process
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_kernels_compile_without_atomic_sums(capability: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="torch for the CPU comes without Triton")
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    codes = done.stdout.split("END\n")[:-1]
    kernels = [["_maps", "16"], ["_maps", "4"], ["_last", "16"]]
    assert [code.split()[:3] for code in codes] == [
        [*kernel, n] for kernel in kernels for n in ("fp32", "bf16")
    ]
    for code in codes:
        _, unit, number, size = code.split()[:4]
        assert int(size) > 0
        assert re.search(rf"\.target sm_{capability}", code)
        words = 2 if (unit, number) == ("4", "bf16") else 4  # of 4 bytes
        assert f"ld.global.v{words}.b32" in code
        assert f"st.global.v{words}.b32" in code
        assert not re.search(r"\b(atom|red)\.", code)  # whose order, and so whose bits, would vary
