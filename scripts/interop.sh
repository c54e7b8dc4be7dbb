#!/usr/bin/env bash
# Makes the Python environment of `./run test --interop`, once for each list of packages, and prints the path of its Python.
# It lies in ~/.cache/fshard (XDG_CACHE_HOME), so that later runs and other clones find it there.
set -euo pipefail
[ $# -eq 0 ] || { sed -n 's/^# //p' "$0" >&2; exit 2; }
list=$(dirname "$(readlink -f "$0")")/interop-requirements.txt
python=/usr/bin/python3 # Debian's, for its PyTorch is in Debian's packages
kept=${XDG_CACHE_HOME:-$HOME/.cache}/fshard
home=$kept/interop-$({ "$python" --version; cat "$list"; } | sha256sum | cut -c1-12)
if [ ! -e "$home/complete" ]; then
    echo "interop: installing $(grep -c '^[^#]' "$list") Python packages into $home" >&2
    mkdir -p "$kept"
    rm -rf "$home"
    log=$(mktemp)
    if ! { "$python" -m venv --system-site-packages "$home" && "$home/bin/pip" install --quiet -r "$list"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -rf "$home"
        echo "interop: the packages could not be installed; the whole log is in $log" >&2
        exit 1
    fi
    rm -f "$log"
    touch "$home/complete"
fi
echo "$home/bin/python"
