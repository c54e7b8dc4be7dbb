# shellcheck shell=bash
# Sourced by the scripts that build on a lent machine, from the root: where .deps has Debian's packages (scripts/device_deps.sh), they are
# unpacked, and cmake and pkg-config look there. Sets cmake_options.
cmake_options=()
if compgen -G '.deps/*.deb' >/dev/null; then
    deps=/tmp/fshard-deps
    for package in .deps/*.deb; do dpkg -x "$package" "$deps"; done
    export LD_LIBRARY_PATH=$deps/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export CPATH=$deps/usr/include:$deps/usr/include/x86_64-linux-gnu LIBRARY_PATH=$deps/usr/lib/x86_64-linux-gnu${LIBRARY_PATH:+:$LIBRARY_PATH}
    export PKG_CONFIG_PATH=$deps/usr/lib/x86_64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$deps
    command -v pkg-config >/dev/null || export PKG_CONFIG=$deps/usr/bin/pkgconf
    cmake_options+=("-DCMAKE_PREFIX_PATH=$deps/usr")
fi
