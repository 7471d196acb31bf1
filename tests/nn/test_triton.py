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
from rectifiers.nn.kernels import cuda

constants = {cuda._maps: {"block": 4 * cuda.BLOCK}, cuda._last: {"rows": 4 * cuda.BLOCK // 128, "block": 128}}
for kernel, values in constants.items():
    for number in ("fp32", "bf16"):
        pointers = {"slopes": "*fp32", "sums": "*fp32", **dict.fromkeys(("v", "grad", "grad_input"), f"*{number}")}
        types = {name: pointers.get(name, "constexpr" if name in values else "i32") for name in kernel.arg_names}
        whole = {*pointers, "channels", "inner"}  # multiples of 16, as Triton finds out when it is called
        facts = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if name in whole}
        source = ASTSource(kernel, types, constexprs=values, attrs=facts)
        made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
        print(kernel.__name__, number, len(made.asm["cubin"]))
        print(made.asm["ptx"])
        print("END")
"""


@pytest.mark.process
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_every_kernel_compiles_with_wide_loads_and_without_atomic_sums(capability: int, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="torch for the CPU comes without Triton")
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability)], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    codes = done.stdout.split("END\n")[:-1]
    assert [code.split()[:2] for code in codes] == [[k, n] for k in ("_maps", "_last") for n in ("fp32", "bf16")]
    for code in codes:
        assert int(code.split()[2]) > 0
        assert re.search(rf"\.target sm_{capability}", code)
        assert "ld.global.v4.b32" in code  # 16 bytes at once
        assert "st.global.v4.b32" in code
        assert not re.search(r"\b(atom|red)\.", code)  # whose order, and so whose bits, would vary
