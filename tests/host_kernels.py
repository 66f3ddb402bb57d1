"""CUDA kernels on a CPU: `HostKernel` stands in for `cupy.RawKernel`, and compiles the source by g++."""

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

COMPILER = shutil.which("g++")

_PRELUDE = """
#include <cstring>
#define __global__
#define __device__ static
static struct { unsigned x; } blockIdx, blockDim, threadIdx;
"""
# The two half precisions convert to float32 and back, rounded to nearest, as CUDA's own classes.
_HALF = """
#include <immintrin.h>
struct __half {
    unsigned short bits;
    operator float() const { return _cvtsh_ss(bits); }
    __half& operator=(float value) { bits = _cvtss_sh(value, 0); return *this; }
};
"""
_BFLOAT16 = """
struct __nv_bfloat16 {
    unsigned short bits;
    operator float() const {
        unsigned wide = (unsigned)bits << 16; float value; memcpy(&value, &wide, 4);
        return value;
    }
    __nv_bfloat16& operator=(float value) {
        unsigned wide; memcpy(&wide, &value, 4);
        bits = value != value ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
        return *this;
    }
};
"""
_TYPES = {np.int64: ctypes.c_int64, np.uint32: ctypes.c_uint32, np.uint64: ctypes.c_uint64}


class HostKernel:
    """A kernel that runs its threads one after the other, on arrays in the memory of the CPU."""

    launches = 0
    """The number of calls of all kernels so far."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        """Take the source, the name of the kernel and options of CUDA's compiler, which must forbid fused products."""
        assert "--fmad=false" in options
        self.run = _compiled(code, name)

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[object, ...]) -> None:
        """Run the kernel for a grid of blocks of threads; arrays are passed by their addresses."""
        HostKernel.launches += 1
        given = [_TYPES[type(x)](x) if type(x) in _TYPES else ctypes.c_void_p(x.data.ptr) for x in args]
        self.run(ctypes.c_uint(*grid), ctypes.c_uint(*block), *given)


@cache
def _compiled(code: str, name: str):
    """Return a kernel as a function ``(grid, block, *arguments)``."""
    code = re.sub(r"#include <cuda_\w+\.h>", "", code)
    parameters = re.search(rf"{name}\((.*?)\) \{{", code, re.DOTALL)[1]
    names = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
    loop = f"""
    extern "C" void run(unsigned grid, unsigned block, {parameters}) {{
        blockDim.x = block;
        for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) {name}({names});
    }}"""
    folder = Path(tempfile.mkdtemp(prefix="rope-any-kernel-"))
    classes = _HALF * ("__half" in code) + _BFLOAT16 * ("__nv_bfloat16" in code)
    (folder / "kernel.cpp").write_text(_PRELUDE + classes + code + loop)
    options = ["-O1", "-mf16c", "-ffp-contract=off", "-w", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run([COMPILER, *options], cwd=folder, check=True)
    run = ctypes.CDLL(str(folder / "kernel.so")).run
    shutil.rmtree(folder)
    return run
