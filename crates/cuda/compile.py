#!/usr/bin/env python3
"""Makes ptx/NAME.ARCH.ptx of every kernels/NAME.cu with NVRTC; needs no GPU and no CUDA toolkit.

    python3 -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python compile.py            # writes
    .venv/bin/python compile.py --check    # fails if the committed PTX is not what the sources give
    .venv/bin/python compile.py --report   # registers, shared memory and spills as the assembler sees them

Every source is compiled for compute_80, the oldest architecture with the matrix instructions and copies they use; drivers translate that for every
card since. Sources named *_sm90.cu use what only Hopper has (wgmma) and are compiled for compute_90a, which runs on nothing else.
"""
import argparse
import ctypes
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
KERNELS, PTX = HERE / "kernels", HERE / "ptx"
VERSION = (12, 4)


def architecture(source):
    return "90a" if source.stem.endswith("_sm90") else "80"


def nvrtc():
    """The pinned library, from wherever pip put it."""
    for folder in map(pathlib.Path, sys.path):
        for path in sorted(folder.glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.*")):
            library = ctypes.CDLL(str(path))
            major, minor = ctypes.c_int(), ctypes.c_int()
            library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
            if (major.value, minor.value) == VERSION:
                return library
    sys.exit(f"error: NVRTC {VERSION[0]}.{VERSION[1]} is not installed\nhint: pip install -r {HERE / 'requirements.txt'}")


def compiled(library, source, target, binary=False):
    """The PTX of a source and the compiler's log."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    headers = sorted(KERNELS.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
    names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
    library.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names)
    options = [f"--gpu-architecture={target}", "--std=c++17"] + (["--ptxas-options=-v"] if binary else [])
    failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options]))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    log = log.value.decode()
    if failed:
        sys.exit(f"error: {source.name} does not compile for {target}\n{log}")
    if binary:
        return None, log
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, text)
    # Comments only mark inline assembly and name the compiler's build; without them a file is a fifth shorter.
    return re.sub(r"^\s*//.*\n", "", text.value.decode(), flags=re.M), log


def agrees_again(name):
    """Whether a source gives what is committed after all: about one compilation of gmres.cu in twenty comes out in another order, by run."""
    command = [sys.executable, __file__, "--check", "--once", name.split(".")[0]]
    return (KERNELS / f"{name.split('.')[0]}.cu").exists() and any(subprocess.run(command, capture_output=True).returncode == 0 for _ in range(4))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--once", action="store_true", help="with --check: do not compile again what differs")
    parser.add_argument("names", nargs="*", help="only these sources, without .cu")
    arguments = parser.parse_args()
    library, stale, wanted = nvrtc(), [], set()
    PTX.mkdir(exist_ok=True)
    for source in sorted(KERNELS.glob("*.cu")):
        if arguments.names and source.stem not in arguments.names:
            continue
        arch = architecture(source)
        path = PTX / f"{source.stem}.{arch}.ptx"
        wanted.add(path)
        if arguments.report:
            print(compiled(library, source, f"sm_{'90a' if arch == '90a' else '90'}", binary=True)[1])
            continue
        text, log = compiled(library, source, f"compute_{arch}")
        if log.strip():
            print(log, file=sys.stderr)
        if not arguments.check:
            path.write_text(text)
            print(f"{path.name}: {len(text):,} bytes")
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if arguments.check and not arguments.names:
        stale += [path.name for path in sorted(PTX.glob("*.ptx")) if path not in wanted]
    if not arguments.once:
        stale = [name for name in stale if not agrees_again(name)]
    if stale:
        sys.exit(f"error: not what the sources give: {', '.join(stale)}\nhint: run compile.py and commit the result")


if __name__ == "__main__":
    main()
