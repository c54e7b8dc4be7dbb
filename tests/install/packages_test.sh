#!/bin/sh
# The Debian packages hold what their names say, lintian finds nothing in them where it is installed, and their programs run from where dpkg puts
# them.
# usage: packages_test.sh BUILD_DIR
set -eu
unset FSHARD_PLUGINS
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "packages_test: $*" >&2
    exit 1
}
for program in dpkg-deb dpkg-shlibdeps fakeroot; do
    command -v "$program" >/dev/null || {
        echo "packages_test: left out: no $program" >&2
        exit 77
    }
done
DEBFULLNAME="fshard test" DEBEMAIL=test@fshard.invalid cmake -S "$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")" -B "$build" >/dev/null
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" >"$work/log" 2>&1 || fail "cpack: $(tail -n 20 "$work/log")"
rm -rf "$work/_CPack_Packages"
# holds PACKAGE PATH…
holds() {
    package=$1
    shift
    dpkg-deb -x "$work/$package"_*.deb "$work/$package" || fail "no package $package"
    for path; do [ -e "$work/$package/usr/$path" ] || fail "$package has no $path"; done
    [ -s "$work/$package/usr/share/doc/$package/copyright" ] || fail "$package has no copyright"
    [ ! -e "$work/$package/usr/share/man/man1/fpack.1" ] || fail "$package has man pages that are not compressed"
}
holds fshard bin/fresize bin/fpack bin/fverify bin/ftrain lib/fshard/libfshard-cpu.so share/man/man1/fpack.1.gz \
    share/bash-completion/completions/fpack share/fish/vendor_completions.d/fpack.fish
holds libfshard0
holds libfshard-loader0
holds libfshard-dev include/fshard/fshard.h include/fshard/fshard_loader.h share/man/man5/fshard.5.gz
holds python3-fshard
[ ! -e "$build/lib/libfshard-vips.so" ] || holds fshard-vips lib/fshard/libfshard-vips.so
[ ! -e "$build/lib/libfshard-cuda.so" ] || holds fshard-cuda lib/fshard/libfshard-cuda.so
[ ! -e "$work/fshard/usr/lib/fshard/libfshard-vips.so" ] || fail "fshard has the plugin of fshard-vips"
dpkg-deb -f "$work"/libfshard-dev_*.deb Depends | grep -q '^libfshard0 (= ' || fail "libfshard-dev does not want its libfshard0"
dpkg-deb -f "$work"/fshard_*.deb Depends | grep -q libdnnl || fail "fshard does not want its libraries"
dpkg-deb -f "$work"/fshard_*.deb Depends | grep -q vips && fail "fshard wants libvips"
if command -v lintian >/dev/null; then
    # This build is for /usr/local, which has no folder for each architecture as the preset debian has.
    lintian --suppress-tags pkg-config-unavailable-for-cross-compilation "$work"/*.deb >"$work/lintian" 2>&1 ||
        fail "lintian: $(cat "$work/lintian")"
    grep -E '^[EW]:' "$work/lintian" && fail "lintian"
else
    echo "packages_test: lintian is left out: it is not installed"
fi
"$build/bin/make-photos" --count 4 --edge-min 40 --edge-max 64 "$work/photos" >/dev/null 2>&1 || fail "make-photos"
bin=$work/fshard/usr/bin
"$bin/fpack" --split 0.5 "$work/photos" "$work/set" >"$work/log" 2>&1 || fail "fpack: $(cat "$work/log")"
"$bin/fverify" --decode "$work/set" >"$work/log" 2>&1 || fail "fverify: $(cat "$work/log")"
"$bin/ftrain" --dry-run --device cpu --model conv8 "$work/set" "$work/run" >"$work/log" 2>&1 || fail "ftrain: $(cat "$work/log")"
echo "packages_test: $(cd "$work" && ls -- *.deb | wc -l) packages"
