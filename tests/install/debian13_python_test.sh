#!/bin/sh
# The Python tests in a bare Debian 13, with its Python 3.13, NumPy and PyTorch; the library and the wheel are those built here. The Debian is made
# once for each list of packages, in ~/.cache/fshard (XDG_CACHE_HOME), as scripts/interop.sh has its Python there.
# usage: debian13_python_test.sh BUILD_DIR SOURCE_DIR
set -eu
build=$1 source=$2
packages=python3,python3-lmdb,python3-numpy,python3-pil,python3-pip,python3-torch,python3-zstandard,libcmocka0,libdeflate0,libjansson4,libjpeg62-turbo,liblmdb0,libxxhash0,libzstd1
leave_out() {
    echo "debian13_python_test: left out: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || leave_out "a Debian in a folder needs root"
for program in mmdebstrap unshare; do
    command -v "$program" >/dev/null || leave_out "no $program"
done
unshare --mount true 2>/dev/null || leave_out "no mounts of its own here"
# From where this machine has its own packages.
# shellcheck disable=SC1091 # its own form
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt fills it in
mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $codename" | sort -u | head -n 1)
[ -n "$mirror" ] || leave_out "this machine's apt has no $codename"
kept=${XDG_CACHE_HOME:-$HOME/.cache}/fshard
image=$kept/debian13-$(echo "$packages" | sha256sum | cut -c1-12)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ ! -e "$image/complete" ]; then
    echo "debian13_python_test: making a Debian 13 in $image"
    rm -rf "$image"
    mkdir -p "$kept"
    mmdebstrap --variant=apt --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io --include="$packages" trixie "$image" \
        "deb $mirror trixie main" >"$log" 2>&1 || {
        rm -rf "$image"
        leave_out "no Debian 13 from here: $(grep -v '^I: ' "$log" | tail -n 3)"
    }
    touch "$image/complete"
fi
work=$(mktemp -d "$image/tmp/fshard-XXXXXX")
trap 'rm -rf "$work" "$log"' EXIT
inside=${work#"$image"}
mkdir -p "$work/tests" "$work/docs"
cp -r "$source/python" "$source/CMakeLists.txt" "$work"
cp "$source/docs/python.md" "$work/docs"
cp "$source/tests/formats/python_test.py" "$source/tests/trainer/python_loader_test.py" "$build/tests/write_dataset" "$build/tests/python_peer" \
    "$build/bin/fpack" "$work/tests"
cp "$build/lib/libfshard_loader.so" "$work/tests"
# shellcheck disable=SC2016 # of the inner shell
unshare --mount --pid --fork sh -ec '
image=$1 inside=$2
mount -t proc proc "$image/proc"
mount --rbind /dev "$image/dev"
exec chroot "$image" sh -ec "
cd $inside/tests
export PYTHONDONTWRITEBYTECODE=1 HOME=$inside TMPDIR=$inside
python3 -c \"import sys; assert sys.version_info[:2] == (3, 13), sys.version\"
python3 python_test.py $inside ./write_dataset ./python_peer
python3 python_loader_test.py $inside $inside/tests/fpack $inside/tests/libfshard_loader.so
mkdir wheel
cd $inside/python
FSHARD_LOADER=$inside/tests/libfshard_loader.so python3 -m pip wheel -q --no-index --no-deps -w $inside/tests/wheel .
cd /
PYTHONPATH=\$(echo $inside/tests/wheel/*.whl) python3 -c \"import fshard; print(fshard.__version__)\"
"' sh "$image" "$inside"
# shellcheck disable=SC2016 # dpkg fills it in
echo "debian13_python_test: $(chroot "$image" python3 --version), PyTorch $(chroot "$image" dpkg-query -W -f '${Version}' python3-torch)"
