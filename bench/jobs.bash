# shellcheck shell=bash
# Sourced by benchmarks that run jobs of a table by name.

# check_jobs KNOWN NAME…: where a name is none of KNOWN (separated by spaces), the caller's usage and status 2.
check_jobs() {
    local known=$1 name
    shift
    for name in "$@"; do
        if [[ " $known " != *" $name "* ]]; then
            sed -n 's/^# usage/usage/p' "$0" >&2
            echo "bench: no job '$name': $known" >&2
            exit 2
        fi
    done
}
