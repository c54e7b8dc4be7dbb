#!/bin/sh
# The installed tree works on its own: programs run, libfshard links through pkg-config and CMake, man pages lie where man looks, and the Python
# package can be installed from a folder that nobody may write to, and leaves nothing there.
# usage: install_test.sh BUILD_DIR SOURCE_DIR CC
set -eu
unset FSHARD_PLUGINS
build=$1 source=$2 cc=$3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
fail() {
    echo "install_test: $*" >&2
    exit 1
}
cmake --install "$build" --prefix "$prefix" >/dev/null
for program in fresize fpack fverify ftrain; do
    "$prefix/bin/$program" --version | grep -q "^$program (fshard) [0-9]" || fail "$program --version does not name itself"
    [ -f "$prefix/share/man/man1/$program.1" ] || fail "no man page for $program"
done
for completion in bash-completion/completions/fpack zsh/site-functions/_fpack fish/vendor_completions.d/fpack.fish; do
    [ -s "$prefix/share/$completion" ] || fail "no $completion"
done
for plugin in archive cpu; do
    [ -f "$prefix/lib/fshard/libfshard-$plugin.so" ] || fail "no libfshard-$plugin.so"
done
[ -f "$prefix/share/man/man5/fshard.5" ] || fail "no fshard.5"
[ -f "$prefix/share/fshard/python/fshard/__init__.py" ] || fail "no Python package"
[ -n "$(find "$prefix/lib" -name libfshard_loader.so.0)" ] || fail "no libfshard_loader.so.0"
[ -f "$prefix/include/fshard/fshard_loader.h" ] || fail "no fshard_loader.h"
[ -f "$prefix/share/fshard/python/pyproject.toml" ] || fail "pip cannot install the Python package"
# The installed programs find their plugins beside themselves: libarchive's, which decompresses the tar, and the CPU's, which trains.
work=$prefix/work
"$build/bin/make-photos" --count 2 --edge-min 40 --edge-max 64 "$work/photos" >/dev/null 2>&1 || fail "make-photos does not run"
photo=$(cd "$work/photos" && find . -name '*.jpg' | sort | head -n 1)
tar -C "$work/photos" -czf "$work/one.tar.gz" "$photo"
"$prefix/bin/fresize" --max-size 32 "$work/one.tar.gz" "$work/small" >"$work/log" 2>&1 || fail "fresize of a tar: $(cat "$work/log")"
[ "$(find "$work/small" -name '*.jpg' | wc -l)" -eq 1 ] || fail "fresize of a tar of one image left no image"
"$prefix/bin/fpack" --split 0.5 "$work/photos" "$work/set" >"$work/log" 2>&1 || fail "fpack: $(cat "$work/log")"
"$prefix/bin/ftrain" --dry-run --device cpu "$work/set" "$work/run" >"$work/log" 2>&1 || fail "ftrain --dry-run: $(cat "$work/log")"
config=$(dirname "$(find "$prefix" -name fshard.pc)")
flags=$(PKG_CONFIG_PATH=$config pkg-config --cflags --libs fshard)
# shellcheck disable=SC2086 # flags are words
"$cc" -std=c11 -Wall -Werror -o "$prefix/consumer" "$source/tests/install/consumer.c" $flags
status=0
output=$(LD_LIBRARY_PATH=$(dirname "$config") "$prefix/consumer" "$prefix/nothing-here") || status=$?
[ "$status" -eq 1 ] || fail "the consumer's exit status is $status, not 1"
case $output in
"not found: "*) ;;
*) fail "the consumer printed '$output'" ;;
esac
# The same through CMake, from a tree that was moved.
mv "$prefix" "$prefix.moved"
trap 'rm -rf "$prefix.moved"' EXIT
prefix=$prefix.moved
cat >"$prefix/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(fshard 0.1 REQUIRED)
add_executable(consumer ${CONSUMER})
target_link_libraries(consumer fshard::fshard)
CMAKE
cmake -S "$prefix" -B "$prefix/consumer.build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCONSUMER="$source/tests/install/consumer.c" \
    >"$prefix/log" 2>&1 && cmake --build "$prefix/consumer.build" >>"$prefix/log" 2>&1 || fail "find_package(fshard): $(cat "$prefix/log")"
"$prefix/consumer.build/consumer" "$prefix/nothing-here" >"$prefix/log" || true
grep -q '^not found: ' "$prefix/log" || fail "the consumer of CMake printed '$(cat "$prefix/log")'"
# A wheel, as pip asks for it (PEP 517): by an ordinary user where this one is root, by pip itself where there is one.
python=$prefix/share/fshard/python
find "$python" | sort >"$prefix/before"
mkdir -m 777 "$prefix/wheel"
chmod 755 "$prefix"
user=
if [ "$(id -u)" -eq 0 ]; then user="setpriv --reuid 65534 --regid 65534 --clear-groups"; fi
(cd "$python" && $user /usr/bin/python3 -c 'import sys, build_wheel; print(build_wheel.build_wheel(sys.argv[1]))' "$prefix/wheel" >"$prefix/log" 2>&1) ||
    fail "no wheel: $(cat "$prefix/log")"
PYTHONPATH=$(echo "$prefix"/wheel/*.whl) /usr/bin/python3 -c 'import fshard; fshard.__version__' || fail "the wheel holds no fshard"
case $(ls "$prefix/wheel") in
*-py3-none-linux_*.whl) ;;
*) fail "the wheel is $(ls "$prefix/wheel"), without the library" ;;
esac
# Unpacked, as pip does it, and elsewhere: for every Python that there is.
mkdir "$prefix/unpacked"
/usr/bin/python3 -m zipfile -e "$prefix"/wheel/*.whl "$prefix/unpacked"
for python3 in /usr/bin/python3.[0-9]*; do
    "$python3" -c 'import numpy' 2>/dev/null || continue # nor python3.11-config
    (cd / && PYTHONPATH=$prefix/unpacked "$python3" -c '
import sys
from fshard import native
from fshard.loader import Loader
assert native.library()._name.startswith(sys.argv[1]), native.library()._name
for images, labels in Loader(sys.argv[2], batch_size=1, size=16):
    assert images.shape == (1, 16, 16, 3)
' "$prefix/unpacked" "$prefix/work/set" >"$prefix/log" 2>&1) || fail "the wheel under $python3: $(cat "$prefix/log")"
done
(cd / && PYTHONPATH=$python PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c 'from fshard import native; native.library()') ||
    fail "the installed package does not find the installed loader"
if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --no-index --no-deps --target "$prefix/site" "$python" >"$prefix/log" 2>&1 || fail "pip: $(cat "$prefix/log")"
    [ -f "$prefix/site/fshard/reader.py" ] || fail "pip installed no fshard"
fi
find "$python" | sort | diff "$prefix/before" - || fail "making the wheel left something in the installed folder"
