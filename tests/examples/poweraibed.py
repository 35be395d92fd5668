"""A stand-in of IBM's PowerAI image for this machine, as `docker save` writes it: its directories, scripts and faults.

A conda environment in /opt/anaconda2; frameworks in /opt/DL, each with a script that activates it and ends with status
9 until the licence is accepted; Spectrum MPI, whose place MPICH 4.3.2 takes; and SnapML, with an RPATH to it. Compilers
are in it, since Horovod is compiled in it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from textwrap import dedent

from images import hostmpi
from images.basebed import config
from stackyard.host.files.hashing import sha256_file
from support import images
from support.channel import PLACEHOLDER, Link, Package
from support.pythonpkg import SITE_PACKAGES, VERSION, python_package
from support.testbed import kept, wheels

WHEELS = Path(__file__).parents[1] / "support/wheels.txt"
CONDA, DL, SPECTRUM = "opt/anaconda2", "opt/DL", "opt/ibm/spectrum_mpi"
NCCL = "usr/lib/powerpc64le-linux-gnu"
TAG = "ibmcom/powerai:1.5.3-all-ubuntu16.04"
LICENCE = f"{DL}/license/lap_se/license"
SYSTEM = ("bash", "binutils", "coreutils", "dash", "findutils", "gcc", "grep", "libc6-dev", "sed")
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CUDA_VERSION=9.2.148")

ACCEPTED = f"""\
if ! grep -qs '^Status=9' /{LICENCE}/status.dat && [ "${{IBM_POWERAI_LICENSE_ACCEPT:-no}}" != yes ]; then
    echo "The PowerAI licence is not accepted: run /{DL}/license/bin/accept-powerai-license.sh" >&2
    exit 9
fi
"""
ACTIVATE = {
    "tensorflow": f'export PYTHONPATH=/{DL}/tensorflow/lib/python:"$PYTHONPATH"\n',
    "pytorch": f'export PYTHONPATH=/{DL}/pytorch/lib/python:"$PYTHONPATH"\n',
    "tensorboard": f"export PATH=/{DL}/tensorboard/bin:$PATH\n",
    "mldl-spectrum": f"export PATH=/{SPECTRUM}/bin:$PATH LD_LIBRARY_PATH=/{SPECTRUM}/lib:$LD_LIBRARY_PATH\n",
}
ACCEPT = f"""\
#!/bin/bash
cat /{LICENCE}/LA_en
[ "${{IBM_POWERAI_LICENSE_ACCEPT:-no}}" = yes ] && echo Status=9 >> /{LICENCE}/status.dat
"""
INSTALL_MODELS = f"""\
#!/bin/bash
cp -r /{DL}/tensorflow-performance-models/scripts/. "${{1:?a directory}}"
"""
BENCHMARK = """\
import sys
import horovod.tensorflow as hvd
import tensorflow
hvd.init()
total = hvd.allreduce(hvd.rank() + 1)
print(f"rank {hvd.rank()} of {hvd.size()}: sum {total}, tensorflow {tensorflow.__version__}, "
      f"{hvd.library()}, hook {hvd.hooked()}, {' '.join(sys.argv[1:])}", flush=True)
hvd.shutdown()
"""
SNAPML = """\
#include <mpi.h>
int snap_world(int *rank, int *size, char *version) {
  int length, ready;
  MPI_Initialized(&ready);
  if (!ready) MPI_Init(0, 0);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  return MPI_Get_library_version(version, &length);
}
int snap_end(void) { return MPI_Finalize(); }
"""
SNAPML_PYTHON = """\
import ctypes
import pathlib
_library = ctypes.CDLL(str(pathlib.Path(__file__).with_name("libsnapmlmpi3.so")))


def world():
    rank, size, version = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(8192)
    _library.snap_world(ctypes.byref(rank), ctypes.byref(size), version)
    return rank.value, size.value, " ".join(version.value.decode().split()[:3])


def end():
    _library.snap_end()
"""


def archive() -> Path:
    """The image as `docker save` would write it; its tag is that of IBM's.

    Raises:
        MissingError: a package or a wheel that it is made of cannot be had.
    """
    system = images.system_directory("powerai-system", SYSTEM)
    prefix = hostmpi.mpich("of-image")

    def build(scratch: Path) -> None:
        root = scratch / "root"
        root.mkdir()
        _conda(root / CONDA)
        _frameworks(root)
        shutil.copytree(prefix, root / SPECTRUM, symlinks=True)
        for program in (root / SPECTRUM / "bin").iterdir():
            program.chmod(0o755)
        _snapml(root)
        _compiler(root)
        layers = [_tar(directory, scratch / f"{number}.tar") for number, directory in enumerate((system, root))]
        _save(scratch / "powerai.tar", layers)
        for left in (*layers, root):
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    return kept("powerai", [Path(__file__), Path(images.__file__)], build) / "powerai.tar"


def sources() -> Path:
    """A directory with the source of a small ``horovod``, and what it is compiled with."""
    return kept("powerai-horovod", [Path(__file__)], _sources)


def spectrum(directory: Path) -> Path:
    """Spectrum MPI of the machine: MPICH 5.0.2 as files of one directory, and libpami_cudahook.so; its ``lib``."""
    target = directory / SPECTRUM / "lib"
    target.mkdir(parents=True)
    for path in (hostmpi.mpich("of-host") / "lib").rglob("*.so*"):
        if path.is_file() and path.name != "libmpi.so":
            os.link(path, target / path.name)
    _library(target / "libpami_cudahook.so", "int pami_cudahook(void) { return 1; }")
    return target


def _tar(directory: Path, file: Path) -> Path:
    with tarfile.open(file, "w") as tar:
        tar.add(directory, arcname=".")
    return file


def _save(file: Path, layers: list[Path]) -> None:
    """The archive that `docker save` writes; its layers are large, so they stay on the disk."""
    about = json.loads(config([], Env=ENVIRONMENT))
    about["rootfs"]["diff_ids"] = [f"sha256:{sha256_file(each)}" for each in layers]
    names = [f"{sha256_file(each)}/layer.tar" for each in layers]
    listed = [{"Config": "config.json", "RepoTags": [TAG], "Layers": names}]
    with tarfile.open(file, "w") as tar:
        for name, value in (("manifest.json", listed), ("config.json", about)):
            data = json.dumps(value).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, layer in zip(names, layers, strict=True):
            tar.add(layer, arcname=name)


def _conda(target: Path) -> None:
    """A conda environment with Python and pip; without venv, as its Python 2 is."""
    with tempfile.TemporaryDirectory() as work:
        _put(target, python_package(Path(work)))
    shutil.rmtree(target / f"lib/python{VERSION}/venv")
    (pip,) = wheels(WHEELS).glob("pip-*.whl")
    with zipfile.ZipFile(pip) as archive:
        archive.extractall(target / SITE_PACKAGES)
    (target / "conda-meta").mkdir()
    (target / "conda-meta/history").write_text("==> 2018-09-24 12:00:00 <==\n")
    (target / f"conda-meta/python-{VERSION}.0-0.json").write_text("{}")


def _put(target: Path, package: Package) -> None:
    for name, given in package.files.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        content, mode = given if isinstance(given, tuple) else (given, 0)
        if isinstance(content, Link):
            place.symlink_to(content.target)
        elif isinstance(content, Path):
            shutil.copy2(content, place)
        else:
            data = content.encode() if isinstance(content, str) else content
            place.write_bytes(data.replace(PLACEHOLDER.encode(), f"/{CONDA}".encode()))
        if mode:
            place.chmod(mode)


def _frameworks(root: Path) -> None:
    texts = {
        f"{LICENCE}/LA_en": "International License Agreement for Non-Warranted Programs: a stand-in\n",
        f"{LICENCE}/status.dat": "#Mon Sep 24 12:00:00 UTC 2018\nStatus=3\n",
        f"{DL}/license/bin/accept-powerai-license.sh": ACCEPT,
        f"{DL}/tensorflow/lib/python/tensorflow.py": "__version__ = '1.10.0'\n",
        f"{DL}/pytorch/lib/python/torch.py": "__version__ = '0.4.1'\n",
        f"{NCCL}/libnccl.so.2": "",
        f"{DL}/tensorboard/bin/tensorboard": "#!/bin/bash\necho TensorBoard 1.10.0 $*\n",
        f"{DL}/tensorflow-performance-models/bin/tensorflow-install-models": INSTALL_MODELS,
        f"{DL}/tensorflow-performance-models/scripts/tf_cnn_benchmarks.py": BENCHMARK,
        f"{DL}/snap-ml-mpi/lib/snap_ml_mpi/__init__.py": SNAPML_PYTHON,
        **{f"{DL}/{name}/bin/{name}-activate": ACCEPTED + text for name, text in ACTIVATE.items()},
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(0o755 if "/bin/" in name else 0o644)


def _compiler(root: Path) -> None:
    """The name by which MPI's wrappers call the compiler; in Debian it is made when a package is installed."""
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/cc").symlink_to("gcc")


def _snapml(root: Path) -> None:
    """Linked as IBM's was: its RPATH leads to the image's own MPI."""
    prefix = root / SPECTRUM
    _library(
        root / f"{DL}/snap-ml-mpi/lib/snap_ml_mpi/libsnapmlmpi3.so", SNAPML, f"-I{prefix}/include",
        f"{prefix}/lib/libmpi.so.12", f"-Wl,-rpath,/{SPECTRUM}/lib", "-Wl,--disable-new-dtags",
    )  # fmt: skip


def _library(target: Path, text: str, *words: str) -> None:
    argv = ["gcc", "-shared", "-fPIC", "-xc", "-", "-xnone", "-o", target, "-Wl,--allow-shlib-undefined", *words]
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True)


# --------------------------------------------------------------------------- Horovod, in small

SETUP = """\
import os
import pathlib
import subprocess
from setuptools import Extension, setup

# the variables of Horovod that this small one has, and what its own setup.py would look for
assert os.environ["HOROVOD_GPU_ALLREDUCE"] == "NCCL" and os.environ["HOROVOD_WITH_PYTORCH"] == "1"
assert pathlib.Path(os.environ["HOROVOD_NCCL_HOME"]).is_dir()
import torch
shown = subprocess.run(["mpicxx", "-show"], check=True, capture_output=True, text=True).stdout.split()
os.environ["CC"] = os.environ["LDSHARED"] = "mpicc"
os.environ["LDSHARED"] = "mpicc -shared"
built = Extension("horovod.mpi_lib", ["horovod/mpi_lib.c"])
setup(name="horovod", version="0.15.2", packages=["horovod"], ext_modules=[built], scripts=["bin/horovodrun"])
"""
MPI_LIB = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <mpi.h>
#include <cuda_runtime.h>
static PyObject *init(PyObject *m, PyObject *a) {
  int on;
  MPI_Initialized(&on);
  if (!on) MPI_Init(0, 0);
  Py_RETURN_NONE;
}
static PyObject *rank(PyObject *m, PyObject *a) { int n; MPI_Comm_rank(MPI_COMM_WORLD, &n); return PyLong_FromLong(n); }
static PyObject *size(PyObject *m, PyObject *a) { int n; MPI_Comm_size(MPI_COMM_WORLD, &n); return PyLong_FromLong(n); }
static PyObject *allreduce(PyObject *m, PyObject *a) {
  double mine, sum;
  if (!PyArg_ParseTuple(a, "d", &mine)) return 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return PyFloat_FromDouble(sum);
}
static PyObject *library(PyObject *m, PyObject *a) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING]; int length;
  MPI_Get_library_version(text, &length);
  return PyUnicode_FromString(text);
}
static PyObject *hooked(PyObject *m, PyObject *a) { return PyBool_FromLong(dlsym(RTLD_DEFAULT, "pami_cudahook") != 0); }
static PyObject *shutdown(PyObject *m, PyObject *a) { MPI_Finalize(); Py_RETURN_NONE; }
static PyMethodDef methods[] = {
  {"init", init, METH_NOARGS, 0}, {"rank", rank, METH_NOARGS, 0}, {"size", size, METH_NOARGS, 0},
  {"allreduce", allreduce, METH_VARARGS, 0}, {"library", library, METH_NOARGS, 0}, {"hooked", hooked, METH_NOARGS, 0},
  {"shutdown", shutdown, METH_NOARGS, 0}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "mpi_lib", 0, -1, methods};
PyMODINIT_FUNC PyInit_mpi_lib(void) { PyObject *made = PyModule_Create(&module);
  PyModule_AddIntConstant(made, "CUDA", CUDART_VERSION); return made; }
"""
OF_A_FRAMEWORK = """\
from horovod.mpi_lib import allreduce, hooked, init, rank, shutdown, size
from horovod import mpi_lib


def library():
    return " ".join(mpi_lib.library().split()[:3])
"""
HOROVODRUN = """\
#!/usr/bin/env python
import horovod.mpi_lib
print("Available Frameworks:\\n    [X] PyTorch\\n\\nAvailable Controllers:\\n    [X] MPI\\n")
print("Available Tensor Operations:\\n    [X] NCCL\\n    [X] MPI")
"""


def _sources(scratch: Path) -> None:
    name = "horovod-0.15.2"
    files = {
        "setup.py": SETUP, "horovod/mpi_lib.c": MPI_LIB, "horovod/__init__.py": "", "bin/horovodrun": HOROVODRUN,
        "horovod/torch.py": OF_A_FRAMEWORK, "horovod/tensorflow.py": OF_A_FRAMEWORK,
        "PKG-INFO": "Metadata-Version: 1.0\nName: horovod\nVersion: 0.15.2\n",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as work, tarfile.open(scratch / f"{name}.tar.gz", "w:gz") as tar:
        for path, text in files.items():
            target = Path(work, name, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(dedent(text))
        tar.add(Path(work, name), arcname=name)
    for wheel in wheels(WHEELS).glob("*.whl"):
        if wheel.name.startswith(("setuptools-", "wheel-")):
            shutil.copy(wheel, scratch)


def cuda(directory: Path) -> Path:
    """What the module ``cuda`` of the machine names: a directory with a header."""
    header = directory / "targets/ppc64le-linux/include/cuda_runtime.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define CUDART_VERSION 9020\n")
    return directory
