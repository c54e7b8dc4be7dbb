#!/usr/bin/env bash
# Fetches into .deps/ the Debian packages that a lent GPU machine lacks (it can reach no registry): run it here, then name .deps in the
# run's `carry`; scripts/device.sh unpacks them there. About 9 MB; git ignores the folder.
set -euo pipefail
[ $# -eq 0 ] || { sed -n 's/^# //p' "$0" >&2; exit 2; }
cd "$(dirname "$(readlink -f "$0")")/.."
packages=(
    libdnnl-dev libdnnl2 ocl-icd-libopencl1 # oneDNN, and the loader that its library is linked to
    libarchive-dev libarchive13 # configuring asks for it; what is built there does not link it
    libcmocka-dev libcmocka0
    libdeflate-dev libdeflate0
    libjansson-dev libjansson4
    libjpeg62-turbo-dev libjpeg62-turbo
    liblmdb-dev liblmdb0
    libxxhash-dev libxxhash0
    libzstd-dev libzstd1
    pkgconf pkgconf-bin libpkgconf3
)
mkdir -p .deps
cd .deps
rm -f ./*.deb
apt-get update -qq
apt-get download -qq "${packages[@]}" 2> >(grep -v 'unsandboxed' >&2)
debs=(./*.deb)
echo "device_deps: ${#debs[@]} packages, $(du -sh . | cut -f1) in .deps"
