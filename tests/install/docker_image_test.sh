#!/bin/sh
# The last stage of examples/docker/Dockerfile without Docker: its install.sh in a bare Debian 12, which is then under 200 MB, and runs the chain.
# usage: docker_image_test.sh BUILD_DIR
set -eu
unset FSHARD_PLUGINS
build=$1
fail() {
    echo "docker_image_test: $*" >&2
    exit 1
}
leave_out() {
    echo "docker_image_test: left out: $*" >&2
    exit 77
}
[ "$(id -u)" -eq 0 ] || leave_out "a Debian in a folder needs root"
for program in mmdebstrap dpkg-deb dpkg-shlibdeps fakeroot; do
    command -v "$program" >/dev/null || leave_out "no $program"
done
# From where this machine has its own packages.
release=bookworm
# shellcheck disable=SC2016 # apt fills it in
mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $release" | sort -u | head -n 1)
[ -n "$mirror" ] || leave_out "this machine's apt has no $release"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages" -D CPACK_COMPONENTS_ALL=programs >"$work/log" 2>&1 ||
    fail "cpack: $(tail -n 20 "$work/log")"
image=$work/image
# With usr-is-merged, as debootstrap and debian:12-slim have it: usrmerge, which mmdebstrap would choose, brings 50 MB of Perl.
mmdebstrap --variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged --dpkgopt=force-unsafe-io \
    "$release" "$image" "deb $mirror $release main" >"$work/log" 2>&1 || fail "mmdebstrap: $(tail -n 20 "$work/log")"
mkdir "$image/from"
cp "$work"/packages/fshard_*.deb "$(dirname "$0")/../../examples/docker/install.sh" "$image/from"
for file in resolv.conf hosts; do cp "/etc/$file" "$image/etc/$file"; done
chroot "$image" sh -c 'sh /from/install.sh /from/fshard_*.deb' >"$work/log" 2>&1 || fail "install.sh: $(tail -n 20 "$work/log")"
rm -r "$image/from"

bytes=$(du -s --block-size=1 "$image" | cut -f 1)
[ "$bytes" -lt 200000000 ] || fail "$bytes bytes, and not under 200 MB"
[ ! -e "$image/usr/share/man/man1/fpack.1.gz" ] || fail "man pages are in the image"
[ -s "$image/usr/share/doc/fshard/copyright" ] || fail "the copyright of fshard is not in the image"
"$build/bin/make-photos" --count 8 --edge-min 64 --edge-max 80 "$image/data/photos" >"$work/log" 2>&1 || fail "make-photos: $(cat "$work/log")"
chroot "$image" sh -ec 'cd /data
fresize -q --max-size 48 photos small
fpack -q --split 0.5 small shards
fverify --decode shards
ftrain --device cpu --model conv8 --train-crop-size 32 --epochs 1 --batch-size 2 shards run' >"$work/log" 2>&1 || fail "the chain: $(cat "$work/log")"
[ -s "$image/data/run/last.safetensors" ] || fail "no weights: $(cat "$work/log")"
[ -z "${FSHARD_TRANSCRIPT:-}" ] || cat "$work/log" >>"$FSHARD_TRANSCRIPT"
echo "docker_image_test: $bytes bytes"
