"""The completion scripts of bash, zsh and fish, and how each shell passes the line and reads the candidates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

OPEN_ENDED = ("/", ":", "=", "-")
"""Candidates that end like this are incomplete themselves, so no space follows them."""
Find = Callable[[Sequence[str], str], list[tuple[str, str]]]

BASH = r"""# fairtrial completion for bash
_fairtrial_completion() {
    local line nospace=1
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line:1}")
        [[ ${line:0:1} == + ]] || nospace=0
    done < <(_FAIRTRIAL_COMPLETE=bash "$1" "$COMP_LINE" "$COMP_POINT" "$COMP_WORDBREAKS" 2>/dev/null)
    if ((nospace)); then compopt -o nospace; fi
}
complete -o nosort -F _fairtrial_completion fairtrial
"""
ZSH = r"""#compdef fairtrial
# fairtrial completion for zsh
_fairtrial() {
    local kind value text label
    local -a open open_text closed closed_text
    while IFS=$'\t' read -r kind value text; do
        label="$value${text:+  -- $text}"
        label="${label[1,COLUMNS-1]}"
        if [[ $kind == + ]]; then
            open+=("$value") open_text+=("$label")
        else
            closed+=("$value") closed_text+=("$label")
        fi
    done < <(_FAIRTRIAL_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    (( $#closed )) && compadd -l -d closed_text -a closed
    (( $#open )) && compadd -l -S '' -d open_text -a open
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _fairtrial "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _fairtrial fairtrial
fi
"""
FISH = r"""# fairtrial completion for fish
function __fairtrial_complete
    set -l words (commandline -opc)
    _FAIRTRIAL_COMPLETE=fish $words[1] $words[2..-1] (commandline -ct | string unescape) 2>/dev/null
end
complete -c fairtrial -f -a '(__fairtrial_complete)'
"""


class Shell(NamedTuple):
    """A shell: its script, the line that loads it, and the answer to what the script asks."""

    script: str
    load: str
    startup_file: str
    answer: Callable[[Sequence[str], Find], str]


# bash hands over the raw line, because it splits words at colons and equals signs


def _answer_bash(arguments: Sequence[str], find: Find) -> str:
    line, point, breaks = arguments
    words, raw = _split(line.encode()[: int(point)].decode(errors="ignore"))
    quote = raw[0] if raw[:1] in ("'", '"') else ""
    incomplete = _unquoted(raw)
    done = 0 if quote else _done(raw, breaks)
    lines = []
    for value, _ in find(words[1:], incomplete):
        replacement = value if quote else _escaped(value)[done:]
        lines.append(("+" if value.endswith(OPEN_ENDED) else " ") + replacement)
    return "".join(f"{each}\n" for each in lines)


def _split(line: str) -> tuple[list[str], str]:
    """Split a line into its complete words, without quotes, and the raw last word, which may be empty."""
    words: list[str] = []
    raw, quote, escaped = "", "", False
    for character in line:
        if escaped or quote or not character.isspace():
            raw += character
        elif raw:
            words.append(_unquoted(raw))
            raw = ""
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return words, raw


def _unquoted(raw: str) -> str:
    """Return a word without its quotes, which need not be closed, and without backslashes."""
    for end in ("", "'", '"', "\\"):
        try:
            return "".join(shlex.split(raw + end)) if not raw.endswith("\\") else _unquoted(raw[:-1])
        except ValueError:
            continue
    return raw


def _escaped(value: str) -> str:
    return re.sub(r"([^A-Za-z0-9_@%+=:,./~^-])", r"\\\1", value)


def _done(raw: str, breaks: str) -> int:
    """Return how much of a raw word bash does not replace: everything up to the last unquoted word break."""
    marks = [
        at for at, sign in enumerate(raw) if sign in breaks and sign not in " \t\n\"'" and raw[at - 1 : at] != "\\"
    ]
    return marks[-1] + 1 if marks else 0


# zsh and fish hand over the words, and quote the candidates themselves


def _answer_zsh(arguments: Sequence[str], find: Find) -> str:
    *words, incomplete = arguments
    return "".join(
        f"{'+' if value.endswith(OPEN_ENDED) else '-'}\t{value}\t{text}\n" for value, text in find(words, incomplete)
    )


def _answer_fish(arguments: Sequence[str], find: Find) -> str:
    *words, incomplete = arguments
    return "".join(f"{value}\t{text}\n" for value, text in find(words, incomplete))


SHELLS = {
    "bash": Shell(BASH, 'eval "$(fairtrial completion bash)"', "~/.bashrc", _answer_bash),
    "zsh": Shell(ZSH, 'eval "$(fairtrial completion zsh)"', "~/.zshrc", _answer_zsh),
    "fish": Shell(FISH, "fairtrial completion fish | source", "~/.config/fish/config.fish", _answer_fish),
}
