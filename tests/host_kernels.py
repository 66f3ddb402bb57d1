"""
CUDA kernels on a CPU: `HostKernel` stands in for `cupy.RawKernel`, and compiles the source by g++.

Where the packages nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12 are installed, which need no GPU, CUDA's own
compiler compiles each kernel too.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

COMPILER = shutil.which("g++")
_NVIDIA = [Path(folder) for folder in getattr(find_spec("nvidia"), "submodule_search_locations", [])]
NVRTC, *_ = *(file for folder in _NVIDIA for file in folder.glob("**/libnvrtc.so.*")), None
HEADERS, *_ = *(file.parent for folder in _NVIDIA for file in folder.glob("**/cuda_fp16.h")), None
_TYPES = {np.int64: ctypes.c_int64, np.uint32: ctypes.c_uint32, np.uint64: ctypes.c_uint64}


class HostKernel:
    """A kernel that runs its threads one after the other, on arrays in the memory of the CPU."""

    launches = 0
    """The number of calls of all kernels so far."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        """Take the source, the name of the kernel and options of CUDA's compiler, which must forbid fused products."""
        if NVRTC and HEADERS:  # the formula has no product that is fused with a difference
            assert ".entry rotate" in (text := ptx(code, *options)) and not re.search(r"\bfma\.", text)
        assert "--fmad=false" in options
        if COMPILER is None:
            pytest.skip("there is no g++, which compiles the kernel here")
        self.run = _compiled(code, name)

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[object, ...]) -> None:
        """Run the kernel for a grid of blocks of threads; arrays are passed by their addresses."""
        HostKernel.launches += 1
        given = [_TYPES[type(x)](x) if type(x) in _TYPES else ctypes.c_void_p(x.data.ptr) for x in args]
        self.run(ctypes.c_uint(*grid), ctypes.c_uint(*block), *given)


@cache
def _compiled(code: str, name: str):
    """Return a kernel as a function ``(grid, block, *arguments)``."""
    parameters = re.search(rf"{name}\((.*?)\) \{{", code, re.DOTALL)[1]
    names = ", ".join(parameter.split()[-1] for parameter in parameters.split(","))
    loop = f"""
    extern "C" void run(unsigned grid, unsigned block, {parameters}) {{
        blockDim.x = block;
        for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) {name}({names});
    }}"""
    folder = Path(tempfile.mkdtemp(prefix="rope-any-kernel-"))
    (folder / "kernel.cpp").write_text(code + loop)
    options = ["-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    headers = f"-I{Path(__file__).parent}/cuda_on_host"
    subprocess.run([COMPILER, headers, *options], cwd=folder, check=True)
    run = ctypes.CDLL(str(folder / "kernel.so")).run
    shutil.rmtree(folder)
    return run


@cache
def ptx(code: str, *options: str) -> str:
    """Return what CUDA's compiler makes of a source: PTX, the assembly language of GPUs."""
    nvrtc, program, size = ctypes.CDLL(str(NVRTC)), ctypes.c_void_p(), ctypes.c_size_t()
    given = [option.encode() for option in (*options, f"-I{HEADERS}", "-arch=compute_80")]
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None)
    failed = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    wanted = "ProgramLog" if failed else "PTX"
    getattr(nvrtc, f"nvrtcGet{wanted}Size")(program, ctypes.byref(size))
    getattr(nvrtc, f"nvrtcGet{wanted}")(program, text := ctypes.create_string_buffer(size.value))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    assert not failed, text.value.decode()
    return text.value.decode()
