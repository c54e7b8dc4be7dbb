#!/usr/bin/env bash
# bash, zsh and fish, as far as they are installed, complete the programs' options, choices and names of files, and offer exactly the options
# that --help-options lists.
# usage: completion_test.sh BIN_DIR COMPLETIONS_DIR
set -euo pipefail
bin=$1 completions=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/a folder" "$work/folder2"
touch "$work/labels.csv"
cd "$work"
failed=0

# expect SHELL LINE GOT WANTED: compares what is offered, a word a line.
expect() {
    [ "$3" = "$4" ] && return
    printf '%s: "%s" is completed to\n%s\nnot to\n%s\n' "$1" "$2" "$3" "$4" >&2
    failed=1
}

options_of() { "$bin/$1" --help-options | tr ', ' '\n\n' | grep '^--' | LC_ALL=C sort; }

# in_bash LINE: what bash offers at the end of the line, of which = is a word of its own as in COMP_WORDBREAKS.
in_bash() {
    bash --norc -c '
        . "$1/bash/$2"
        read -ra COMP_WORDS <<<"${3//=/ = }"
        [[ $3 != *[\ =] ]] || COMP_WORDS+=("")
        [[ $3 != *= ]] || unset "COMP_WORDS[-1]"
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "_$2" "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf "%s\n" "${COMPREPLY[@]}" | LC_ALL=C sort' bash "$completions" "${1%% *}" "$1"
}
# in_fish LINE: fish tells it itself, with the help after a tab.
in_fish() {
    XDG_CONFIG_HOME=$work/config XDG_DATA_HOME=$work/data PATH=$bin:$PATH \
        fish --no-config -c "source $completions/fish/${1%% *}.fish; complete -C '$1'" | cut -f 1 | LC_ALL=C sort
}
# in_zsh LINE: the line after a press of Tab in a zsh on a terminal of its own.
in_zsh() { ZDOTDIR=$work PATH=$bin:$PATH zsh -f "$here/press_tab.zsh" "$completions/zsh" "$1"; }

shells=(bash)
for shell in zsh fish; do
    if command -v $shell >/dev/null; then shells+=($shell); else echo "completion_test: $shell is left out: it is not installed"; fi
done
for shell in "${shells[@]}"; do
    case $shell in
    bash | fish)
        for program in fresize fpack fverify ftrain; do
            expect $shell "$program --" "$("in_$shell" "$program --" | grep '^--')" "$(options_of $program)"
        done
        expect $shell "fpack --lab" "$("in_$shell" "fpack --lab")" --labels
        expect $shell "fpack --format " "$("in_$shell" "fpack --format ")" "$(printf 'lmdb\nshards\ntar')"
        expect $shell "fpack --labels lab" "$("in_$shell" "fpack --labels lab")" labels.csv
        expect $shell "ftrain --shards fo" "$("in_$shell" "ftrain --shards fo" | sed 's|/$||')" folder2
        expect $shell "ftrain --model resnet18" "$("in_$shell" "ftrain --model resnet18" | head -n 1)" resnet18
        expect $shell "ftrain --recipe rsb-a" "$("in_$shell" "ftrain --recipe rsb-a")" "$(printf 'rsb-a2\nrsb-a3')"
        expect $shell "ftrain --device a" "$("in_$shell" "ftrain --device a")" auto
        ;;&
    bash) expect bash "fpack --format=ta" "$(in_bash "fpack --format=ta")" tar ;;
    fish) expect fish "fpack --format=ta" "$(in_fish "fpack --format=ta")" --format=tar ;;
    zsh)
        expect zsh "fpack --lab" "$(in_zsh "fpack --lab")" "fpack --labels="
        expect zsh "fpack --format ta" "$(in_zsh "fpack --format ta")" "fpack --format tar "
        expect zsh "fpack --format=lm" "$(in_zsh "fpack --format=lm")" "fpack --format=lmdb "
        expect zsh "fpack --labels lab" "$(in_zsh "fpack --labels lab")" "fpack --labels labels.csv "
        expect zsh "ftrain --shards fold" "$(in_zsh "ftrain --shards fold")" "ftrain --shards folder2/"
        expect zsh "ftrain -m deit_ti" "$(in_zsh "ftrain -m deit_ti")" "ftrain -m deit_tiny_patch16 "
        expect zsh "fverify --no-o" "$(in_zsh "fverify --no-o")" "fverify --no-overlap "
        for program in fresize fpack fverify ftrain; do
            expect zsh "the options of $program" "$(grep -oE -- '(\)|\*)--[a-z0-9-]+' "$completions/zsh/_$program" | sed 's/^.//' | LC_ALL=C sort)" \
                "$(options_of $program)"
        done
        ;;
    esac
done
[ $failed -eq 0 ] && echo "completion_test: ${shells[*]}: well"
exit $failed
