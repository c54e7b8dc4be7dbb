"""What pip calls to make a wheel of this folder (PEP 517, PEP 660): the standard library is enough for it.

Where libfshard_loader is found (fshard/library_places.py: a build, an installed tree, $FSHARD_LOADER) the wheel has it
inside. ctypes loads it, so that one wheel, py3-none-linux_x86_64, serves every Python; it needs the system's
libjpeg-turbo, libdeflate, LMDB, zstd, xxHash and jansson, whose names are the same in Debian 12 and 13. Without it the
wheel is py3-none-any.

Nothing is written into the folder, which is root's and read-only where fshard is installed; setuptools would put build/
and fshard.egg-info there. No other module is fetched to build with.
"""

import base64
import hashlib
import os
import re
import runpy
import sysconfig
import tarfile
import zipfile

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "fshard"
_TIME = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel
_PLACES = os.path.join("fshard", "library_places.py")


def _read(*parts):
    with open(os.path.join(_FOLDER, *parts), encoding="utf-8") as stream:
        return stream.read()


def _version():
    return re.search(r'^__version__ = "([^"]+)"', _read(_PACKAGE, "__init__.py"), re.MULTILINE).group(1)


def _sources():
    """Names of the package's files, relative to the folder."""
    names = sorted(os.listdir(os.path.join(_FOLDER, _PACKAGE)))
    return [f"{_PACKAGE}/{name}" for name in names if name.endswith(".py") or name == "py.typed"]


def _library():
    """The path of libfshard_loader; None: there is none."""
    return runpy.run_path(os.path.join(_FOLDER, _PLACES))["find"]()


def _tag(library):
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{platform}" if library else "py3-none-any"


def _metadata():
    # pyproject.toml says the same for readers; there is no parser of TOML before Python 3.11.
    lines = ["Metadata-Version: 2.1", f"Name: {_PACKAGE}", f"Version: {_version()}"]
    lines += ["Summary: Read fshard datasets with Python and NumPy", "License: Apache-2.0"]
    lines += ["Requires-Python: >=3.9", "Requires-Dist: numpy"]
    extras = {"images": ["pillow"], "checksums": ["google-crc32c", "xxhash"], "torch": ["torch"]}
    for extra, modules in extras.items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {module}; extra == "{extra}"' for module in modules]
    return "\n".join(lines) + "\n"


def _info_files(library):
    pure = "false" if library else "true"
    wheel = f"Wheel-Version: 1.0\nGenerator: {_PACKAGE}\nRoot-Is-Purelib: {pure}\nTag: {_tag(library)}\n"
    return {"METADATA": _metadata(), "WHEEL": wheel}


def _write_wheel(folder, contents, library=None):
    """contents: bytes by name. library: that is among them. Returns the wheel's name."""
    info = f"{_PACKAGE}-{_version()}.dist-info"
    contents = {**contents, **{f"{info}/{name}": text.encode() for name, text in _info_files(library).items()}}
    record = []
    name = f"{_PACKAGE}-{_version()}-{_tag(library)}.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in contents.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
            _add(wheel, path, data)
        _add(wheel, f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode())
    return name


def _add(wheel, path, data):
    entry = zipfile.ZipInfo(path, _TIME)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, data)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    contents = {name: _read(name).encode() for name in _sources()}
    library = _library()
    if library:
        with open(library, "rb") as stream:
            contents[f"{_PACKAGE}/libfshard_loader.so.0"] = stream.read()
    return _write_wheel(wheel_directory, contents, library)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that leads to this folder instead of holding its files."""
    return _write_wheel(wheel_directory, {f"{_PACKAGE}.pth": (_FOLDER + "\n").encode()})


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = f"{_PACKAGE}-{_version()}.dist-info"
    os.mkdir(os.path.join(metadata_directory, name))
    for file, text in _info_files(_library()).items():
        with open(os.path.join(metadata_directory, name, file), "w", encoding="utf-8") as stream:
            stream.write(text)
    return name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    base = f"{_PACKAGE}-{_version()}"
    name = f"{base}.tar.gz"
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in [*_sources(), "pyproject.toml", os.path.basename(__file__)]:
            archive.add(os.path.join(_FOLDER, path), f"{base}/{path}", recursive=False)
        information = os.path.join(sdist_directory, "PKG-INFO")
        with open(information, "w", encoding="utf-8") as stream:
            stream.write(_metadata())
        archive.add(information, f"{base}/PKG-INFO")
        os.remove(information)
    return name
