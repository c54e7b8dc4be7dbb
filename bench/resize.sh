#!/usr/bin/env bash
# fresize, Pillow, vipsthumbnail and ImageMagick on the same photographs, in turn, on the same core; input in page cache, output
# to memory. All do the same job: short edge at most SIZE, never enlarged, JPEG of quality 90 with colours 4:2:0, no metadata.
# usage: ./run bench resize DIR [SIZE] [ROUNDS]; DIR: class folders of photographs, for example ImageNet's
#   FSHARD_BENCH_BIN    where fresize and resize_floor lie (build/bin)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
. bench/folder.bash
check_folder 3 "$@"
bin=${FSHARD_BENCH_BIN:-build/bin}
photographs=$(readlink -f "$1") size=${2:-160} rounds=${3:-3}
[[ $size =~ ^[1-9][0-9]*$ && $rounds =~ ^[1-9][0-9]*$ ]] || die "SIZE and ROUNDS are whole numbers from 1"

[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target resize_floor >/dev/null # not part of a usual build

install_peers() {
    local name missing=()
    if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then return; fi
    while read -r name; do
        dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
    done < <(sed -e 's/#.*//' -e 's/[[:space:]].*//' -e '/^$/d' bench/packages.txt)
    [ ${#missing[@]} -eq 0 ] && return
    echo "bench: installing ${missing[*]}" >&2
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
        >/dev/null 2>&1 || echo "bench: not all of them could be installed" >&2
}
install_peers
python=/usr/bin/python3 # Debian's: Pillow lies there
helper=bench/resize_helper.py
"$python" -c 'import PIL, numpy' 2>/dev/null || die "Pillow and numpy make the reference: apt-get install python3-pil python3-numpy"

work=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work"' EXIT
mkdir "$work/outputs"
read -r -a cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2])')
memory=()
[ -x /usr/bin/time ] && memory=(/usr/bin/time -q -a -o "$work/peaks" -f %M)
export VIPS_CONCURRENCY=1 MAGICK_THREAD_LIMIT=1 OMP_NUM_THREADS=1

# ---- the contenders: run_NAME SOURCE LISTS OUT; $pin says on which cores ----

run_fresize() { "${pin[@]}" "${memory[@]}" "$bin/fresize" -q -j1 --max-size "$size" "$1" "$3"; }
run_exact() { "${pin[@]}" "${memory[@]}" "$bin/fresize" -q -j1 --exact --max-size "$size" "$1" "$3"; }
run_jobs1() { run_fresize "$@"; }
run_jobs2() { "${pin[@]}" "${memory[@]}" "$bin/fresize" -q -j2 --max-size "$size" "$1" "$3"; }
run_pillow() { "${pin[@]}" "$python" bench/pillow_resize.py "$1" "$3" "$size" 1; }
# Its --size bounds width, height or both, never the short edge: so one command for wide photographs and one for tall ones.
run_vips() {
    local list box
    for list in "$2"/wide.* "$2"/tall.*; do
        [ -f "$list" ] || continue
        box="x$size>"
        [[ $list == */tall.* ]] && box="${size}x>"
        "${pin[@]}" "${memory[@]}" xargs -0 -a "$list" vipsthumbnail --size "$box" -o "$3/${list##*.}/%s$vips_format" || return 1
    done
}
run_magick() {
    local list
    for list in "$2"/all.*; do
        "${pin[@]}" "${memory[@]}" xargs -0 -a "$list" \
            mogrify "${magick_format[@]}" -strip -resize "${size}x$size^>" -path "$3/${list##*.}" || return 1
    done
}
vips_format='.jpg[Q=90,subsample_mode=on,strip]' magick_format=(-quality 90 -sampling-factor 4:2:0)

# fresh_output NAME LISTS: an empty folder for the contender's output, as it wants to find it; its path in $output.
fresh_output() {
    output=$work/outputs/$1
    rm -rf "$output"
    case $1 in
    vips* | magick*)
        local list
        for list in "$2"/all.*; do mkdir -p "$output/${list##*.}"; done
        ;;
    esac
}

# measure ROUND NAME [AS SOURCE LISTS]: a timed run of run_NAME; a line in measures.tsv under the name AS. False if it failed.
TIMEFORMAT='%R %U %S'
measure() {
    local round=$1 name=$2 as=${3:-$2} source=${4:-$photographs} lists=${5:-$work/lists} times peak=-
    fresh_output "$as" "$lists"
    : >"$work/peaks"
    if ! times=$({ time "run_$name" "$source" "$lists" "$output" >/dev/null 2>"$work/log"; } 2>&1); then
        printf '%s\t%s\tfailed\tfailed: %s\n' "$round" "$as" "$(grep -v '^$' "$work/log" | tail -n 1 | tr '\t' ' ')" >>"$work/measures.tsv"
        return 1
    fi
    [ -s "$work/peaks" ] && peak=$(sort -n "$work/peaks" | tail -n 1)
    awk -v round="$round" -v as="$as" -v peak="$peak" '{ printf "%s\t%s\t%s\t%.3f\t%s\n", round, as, $1, $2 + $3, peak }' \
        <<<"$times" >>"$work/measures.tsv"
}

absent() { printf -- '-\t%s\tfailed\tnot installed: apt-get install %s\n' "$1" "$2" >>"$work/measures.tsv"; }

# ---- before the clock ----

"$python" "$helper" plan "$photographs" "$size" "$work/lists"
one=$(cat "$work/lists/one")
mkdir -p "$work/one/class"
cp "$one" "$work/one/class/"
"$python" "$helper" plan "$work/one" "$size" "$work/one.lists"
cat "$work"/lists/all.* | xargs -0 cat >/dev/null # into the page cache
count=$(wc -l <"$work/lists/places.tsv")

contenders=(fresize exact pillow)
if command -v vipsthumbnail >/dev/null; then contenders+=(vips); else absent vips libvips-tools; fi
if command -v mogrify >/dev/null; then contenders+=(magick); else absent magick imagemagick; fi

printf '%s photographs of %s, short edge at most %s pixels, JPEG quality 90, 4:2:0; median of %s round(s), one core\n' \
    "$count" "$photographs" "$size" "$rounds"
printf '%s; %s; %s; %s; Pillow %s\n' "$(date -u +%F)" "$("$bin/fresize" --version | head -n 1)" \
    "$(vipsthumbnail --vips-version 2>/dev/null || echo no libvips)" \
    "$(mogrify -version 2>/dev/null | sed -n 's/^Version: \(ImageMagick [^ ]*\).*/\1/p')" \
    "$("$python" -c 'import PIL; print(PIL.__version__)')"

# ---- rounds ----

failed=" "
for round in $(seq "$rounds"); do
    echo "bench: round $round of $rounds" >&2
    pin=(taskset -c "${cores[0]}")
    if [ -x "$bin/resize_floor" ]; then
        "${pin[@]}" "$bin/resize_floor" "$photographs" "$size" 2>"$work/log" >"$work/floor" || die "$(cat "$work/log")"
        awk -v round="$round" -v OFS='\t' '{ print round, $1, $2 }' "$work/floor" >>"$work/floor.tsv"
    fi
    for name in "${contenders[@]}"; do
        [[ $failed == *" $name "* ]] && continue
        pin=(taskset -c "${cores[0]}")
        if ! measure "$round" "$name" || ! measure "$round" "$name" "$name.start" "$work/one" "$work/one.lists"; then
            [ "$name" = fresize ] && die "fresize failed: $(cat "$work/log")"
            failed+="$name "
        fi
        # One job and two, between the contenders: what else the machine does should not meet all of these runs.
        [ "${#cores[@]}" -eq 2 ] || continue
        pin=(taskset -c "${cores[0]},${cores[1]}")
        for jobs in jobs1 jobs2; do
            measure "$round" $jobs || die "fresize failed: $(cat "$work/log")"
        done
    done
done

# ---- after it: memory of Pillow's processes, pixels before JPEG encoding, quality ----

fresh_output jobs1 "$work/lists"
"$bin/fresize" -q --report "$work/report.jsonl" --max-size "$size" "$photographs" "$output" || die "fresize --report failed"
if [[ $failed != *" pillow "* ]]; then
    fresh_output pillow "$work/lists"
    peak=$("$python" "$helper" watch taskset -c "${cores[0]}" "$python" bench/pillow_resize.py "$photographs" "$output" "$size" 1)
    awk -v OFS='\t' -v peak="$peak" '$2 == "pillow" { $5 = peak } { print }' FS='\t' "$work/measures.tsv" >"$work/measures.new"
    mv "$work/measures.new" "$work/measures.tsv"
fi
pin=() memory=()
if grep -q -- '--format' <<<"$("$bin/fresize" --help)"; then
    fresh_output fresize.png "$work/lists"
    "$bin/fresize" -q --icc ignore --format png --max-size "$size" "$photographs" "$output" || die "fresize --format png failed"
    fresh_output exact.png "$work/lists"
    "$bin/fresize" -q --exact --icc ignore --format png --max-size "$size" "$photographs" "$output" || die "fresize --format png failed"
fi
for name in vips magick; do
    [[ " ${contenders[*]} " == *" $name "* && $failed != *" $name "* ]] || continue
    vips_format='.png[compression=1]' magick_format=(-format png -quality 11)
    fresh_output "$name.png" "$work/lists"
    "run_$name" - "$work/lists" "$output" >/dev/null 2>"$work/log" || die "$name failed: $(tail -n 1 "$work/log")"
done
rm -rf "$work"/outputs/*.start "$work"/outputs/jobs?
"$python" "$helper" score "$photographs" "$work"
"$python" "$helper" table "$work"
