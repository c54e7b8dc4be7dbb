#!/usr/bin/env bash
# clang-format and clang-tidy over every C file of the project; prints what is wrong and exits 1.
# Needs clang-format and clang-tidy (Debian: apt-get install clang-format clang-tidy); ./run test does not.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
for tool in clang-format clang-tidy; do
    command -v $tool >/dev/null || {
        echo "lint: $tool is not installed: apt-get install $tool" >&2
        exit 1
    }
done
[ -f build/compile_commands.json ] || ./run build
scripts/layout.sh --headers
mapfile -t sources < <(git ls-files '*.c' | grep -v -e '^python/' -e '^tests/install/')
mapfile -t headers < <(git ls-files '*.h')
clang-format --dry-run -Werror "${sources[@]}" "${headers[@]}"
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build --quiet 2> >(grep -v 'warnings generated' >&2)
echo "lint: ${#sources[@]} sources and ${#headers[@]} headers are clean"
