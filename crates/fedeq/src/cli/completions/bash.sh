# Bash splits words at `=` and `:` as well, so that it sees `--set data = ci`. Here they are put together again, as far as the cursor.
_fedeq_words() {
    local rest=${COMP_LINE:0:COMP_POINT} blank word at
    words=()
    for ((at = 0; at <= COMP_CWORD; at++)); do
        blank=${rest%%[![:space:]]*}
        rest=${rest:${#blank}}
        word=${COMP_WORDS[at]}
        if ((at == COMP_CWORD)); then
            word=$rest
        fi
        rest=${rest:${#word}}
        if ((${#words[@]} > 0)) && [[ -z $blank && ($word == [=:]* || ${words[${#words[@]} - 1]} == *[=:]) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done
}

_fedeq() {
    local IFS=$'\013' words current before='' at
    _fedeq_words
    current=${words[${#words[@]} - 1]//[\"\']/}
    words[${#words[@]} - 1]=$current
    # What bash is going to replace is only the end of it: replies must not repeat what stands before.
    if [[ $current == *"$2" ]]; then
        before=${current%"$2"}
    fi
    COMPREPLY=($(
        VARIABLE=bash \
        _CLAP_IFS="$IFS" \
        _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) \
        COMPLETER -- "${words[@]}" 2> /dev/null
    ))
    for at in "${!COMPREPLY[@]}"; do
        COMPREPLY[at]=${COMPREPLY[at]#"$before"}
    done
    # After a key or a folder there is more to come.
    if [[ ${COMPREPLY-} != *[=/:] ]]; then
        compopt +o nospace 2> /dev/null
    fi
}

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)); then
    complete -o nospace -o bashdefault -o nosort -F _fedeq fedeq
else
    complete -o nospace -o bashdefault -F _fedeq fedeq
fi
