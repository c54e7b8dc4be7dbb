# press_tab.zsh FOLDER LINE: prints the line as it is after Tab is pressed at its end, in a zsh on a terminal of its own that has the completions
# of FOLDER.
zmodload zsh/zpty
zpty -b shell zsh -f -i

# until_says TEXT: reads what the shell prints into $said until TEXT is in it, for 20 seconds at most.
until_says() {
    local piece until=$((SECONDS + 20))
    said=
    while [[ $said != *$1* ]]; do
        zpty -r -t shell piece && said+=$piece || sleep 0.02
        ((SECONDS < until)) || { print -u 2 "press_tab.zsh: no $1 in: $said"; exit 1; }
    done
}

# The line is printed by a key of ours. The quotes keep the words that are waited for out of what the terminal echoes.
zpty -w shell "unset zle_bracketed_paste; PS1=; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; setopt no_beep"
zpty -w shell "tell() { print -rn -- '<''<'\$BUFFER'>''>'; }; zle -N tell; bindkey '^X' tell; print READ''Y"
until_says READY
zpty -n -w shell $2$'\t\x18'
until_says '>>'
said=${said%%'>>'*}
print -r -- ${said##*'<<'}
zpty -d shell
