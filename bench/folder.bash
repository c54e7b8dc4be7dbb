# shellcheck shell=bash
# Sourced by benchmarks that run on a folder of images.

die() {
    printf 'bench: %s\n' "$*" >&2
    exit 1
}

# check_folder MOST ARGUMENT…: where they are none, more than MOST, or the first is no folder, the caller's usage and status 2.
check_folder() {
    local most=$1
    shift
    if [ $# -lt 1 ] || [ $# -gt "$most" ] || [ ! -d "$1" ]; then
        sed -n 's/^# usage\(.*\); DIR.*/usage\1/p' "$0" >&2
        exit 2
    fi
}
