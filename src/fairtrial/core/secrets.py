"""Keep secrets out of files: recognize credentials, move them to environment variables, and find them in files.

A credential in an option, such as `--token ghp_…` in the arguments of `command`, is recorded as
`{env:FAIRTRIAL_SECRET_TOKEN}`, and its value is stored in that environment variable of this process. Jobs inherit the
variable and insert its value when they start the program. The value is not part of a fingerprint, so a new token does
not create a different run. Users may also write `{env:NAME}` to keep the value off the command line.

A value counts as a secret if it has the format of a well-known credential, if it has a secret name (`password`,
`api_key`, `--auth-token`), if it was named with `--secret`, or if it is the value of an environment variable with such
a name. Hashes, commits, paths and ordinary numbers do not match.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from fairtrial.core.errors import Interrupted, UserError, unknown

PREFIX = "FAIRTRIAL_SECRET_"
"""Prefix of the environment variables that hold values removed from options."""
REFERENCE = re.compile(r"(?<!\{)\{env:([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")
REDACTED = "(redacted)"
SHORTEST_KNOWN = 8
"""Minimum length in characters for the value of an environment variable to be searched for in options."""


# Formats of credentials

_STRONG = (
    "password", "passwd", "passphrase", "api_key", "apikey", "secret_key", "access_key", "private_key",
    "client_secret", "auth_token", "access_token", "api_token",
)  # fmt: skip
"""Values with such a name are always secret."""
_WEAK = ("token", "secret", "credential", "credentials", "pwd")
"""Values with such a name are secret only if they look like a credential: language models have tokens, too."""

_EDGE = r"(?<![A-Za-z0-9])"
_QUOTE = r"\\?[\"']"
_SIGN = r"[A-Za-z0-9/+_=-]"
_END = r"(?![A-Za-z0-9(.\[])"
_NO_NAME = r"(?!(?i:(?:[a-z0-9]+[_.-])+(?:token|key|key_?id|secret|password))(?![A-Za-z0-9_.-]))"
"""Excludes values that are themselves names, as in `token=entity2_token`."""
_ANY = (
    _NO_NAME
    + r"(?![A-Z_]+(?:[\s\"'\\,;)]|$))(?!(?i:none|null|true|false)\b)[^\s\"'\\{}<>$*/~.()\[\],;-][^\s\"'\\{}<>$*]{3,}"
)
"""The value of a secret name; excludes paths, placeholders and words such as PASSWORD."""


def _mixed(least: int) -> str:
    """Return a pattern of at least `least` characters with both letters and digits, not a path."""
    return rf"{_NO_NAME}(?![/~.])(?={_SIGN}*[0-9])(?={_SIGN}*[A-Za-z]){_SIGN}{{{least},}}"


@dataclass(frozen=True)
class Kind:
    """The format of one kind of credential. Every match begins with one of `hints`, which are fast to search for.

    If the pattern has a group, the group is the secret; otherwise the whole match is.
    """

    name: str
    hints: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


def _kind(name: str, hints: str, pattern: str) -> Kind:
    return Kind(name, tuple(hint.encode() for hint in hints.split("|")), re.compile(pattern.encode()))


FORMATS = (
    _kind("private-key", "-----BEGIN ",
          r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[^-]*-----END [A-Z0-9 ]+-----)?"),
    _kind("aws-access-key", "AKIA|ASIA", rf"{_EDGE}(?:AKIA|ASIA)[A-Z2-7]{{16}}(?![A-Za-z0-9])"),
    _kind("github-token", "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_",
          rf"{_EDGE}(?:gh[pousr]_[A-Za-z0-9]{{36,}}|github_pat_[A-Za-z0-9_]{{40,}})"),
    _kind("gitlab-token", "glpat-", rf"{_EDGE}glpat-[A-Za-z0-9_-]{{20,}}"),
    _kind("huggingface-token", "hf_|api_org_", rf"{_EDGE}(?:hf_|api_org_)[A-Za-z0-9]{{30,}}(?![A-Za-z0-9_])"),
    _kind("anthropic-key", "sk-ant-", rf"{_EDGE}sk-ant-[A-Za-z0-9_-]{{20,}}"),
    _kind("openai-key", "sk-",
          rf"{_EDGE}sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{{20,}}|[A-Za-z0-9]{{32,}}(?![A-Za-z0-9]))"),
    _kind("slack-token", "xox|hooks.slack.com/",
          rf"{_EDGE}(?:xox[abeoprs]-[A-Za-z0-9-]{{10,}}"
          r"|hooks\.slack\.com/services/T[A-Za-z0-9]+/B[A-Za-z0-9]+/[A-Za-z0-9]{16,})"),
    _kind("wandb-key", "wandb_v1_|local-",
          rf"{_EDGE}(?:wandb_v1_[A-Za-z0-9_-]{{20,}}|local-[0-9a-f]{{40}}(?![A-Za-z0-9]))"),
    _kind("google-key", "AIza|ya29.", rf"{_EDGE}(?:AIza[A-Za-z0-9_-]{{35}}|ya29\.[A-Za-z0-9_-]{{20,}})"),
    _kind("pypi-token", "pypi-Ag", rf"{_EDGE}pypi-Ag[A-Za-z0-9_-]{{50,}}"),
    _kind("npm-token", "npm_", rf"{_EDGE}npm_[A-Za-z0-9]{{36}}(?![A-Za-z0-9])"),
    _kind("stripe-key", "sk_live_|rk_live_", rf"{_EDGE}[sr]k_live_[A-Za-z0-9]{{20,}}"),
    _kind("jwt", "eyJ", rf"{_EDGE}eyJ[A-Za-z0-9_-]{{10,}}\.eyJ[A-Za-z0-9_-]{{10,}}\.[A-Za-z0-9_-]{{10,}}"),
    _kind("signed-url", "X-Amz-Signature=|X-Amz-Security-Token=|X-Goog-Signature=|?sig=|&sig=|?Signature=|&Signature=",
          r"(?:X-(?:Amz|Goog)-(?:Signature|Security-Token)|[?&](?:sig|Signature))=([A-Za-z0-9%/+_=-]{16,})"),
    _kind("url-password", "://", r"://[^\s/:@\"'\\<>{}]{0,256}:([^\s/:@\"'\\<>{}$*]{1,256})@"),
)  # fmt: skip
"""The formats of credentials of well-known services."""
NAMED, HEADER = "named-secret", "authorization-header"
KIND_NAMES = (*(kind.name for kind in FORMATS), HEADER, NAMED)

_HEADERS = tuple(
    (hint, re.compile(pattern.encode(), re.IGNORECASE))
    for hint, pattern in (
        (b"authorization", rf"authorization(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?(?:bearer|basic|token)\s+({_mixed(8)})"),
        (b"bearer ", rf"{_EDGE}bearer ({_mixed(20)})"),
    )
)
_STEMS = (
    (b"pass", re.compile(rb"pass(?:word|wd|phrase)"), None),
    (b"key", re.compile(rb"key"), re.compile(rb"(?:api[_-]?|(?:secret|access|private)[_-])$")),
    (b"token", re.compile(rb"token"), re.compile(rb"(?:auth|access|api)[_-]$")),
    (b"secret", re.compile(rb"secret"), re.compile(rb"client[_-]$")),
    (b"credential", re.compile(rb"credentials?"), None),
    (b"pwd", re.compile(rb"pwd"), None),
)
"""How secret names are found: a common stem, the pattern of the name from the stem on, and the pattern before it."""
_WEAK_STEMS = (b"token", b"secret", b"credential", b"pwd")
_NAMED = {
    strong: re.compile(
        (
            rf"(?:{_QUOTE})?\s*[=:]\s*(?:{_QUOTE}({_ANY})\\?[\"']|({_mixed(6)}){_END})"
            if strong
            else rf"(?:{_QUOTE})?\s*[=:]\s*(?:{_QUOTE})?({_mixed(8)}){_END}"
        ).encode()
    )
    for strong in (True, False)
}
"""What follows a name: an assignment operator and the value."""
_AFTER_FLAG = {
    strong: re.compile(rf"(?:{_QUOTE}\s*,\s*{_QUOTE}|[ =])({_ANY if strong else _mixed(8) + _END})".encode())
    for strong in (True, False)
}
"""What follows a flag, in one string or as the next item of a list."""
_FLAG = re.compile(rb"--(?:[A-Za-z0-9]+[_-])*$")
_LONGEST_FLAG = 64
LONGEST_SECRET = 8192
"""Maximum length in bytes; longer secrets, such as large private keys, are recognized by their beginning."""


@dataclass(frozen=True)
class CredentialMatch:
    """A credential in some content: its kind and its position."""

    kind: str
    start: int
    end: int


def find_secrets(content: bytes) -> list[CredentialMatch]:
    """Return every credential in the content, in order and without overlaps."""
    credential_matches = []
    for kind in FORMATS:
        for hint in kind.hints:
            for at in _places(content, hint):
                if match := kind.pattern.match(content, at):
                    credential_matches.append(_credential_match(kind.name, match))
    if b"\0" not in content:  # names have no meaning in binary files such as checkpoints or images
        credential_matches += _find_named(content, content.lower())
    credential_matches.sort(key=lambda each: (each.start, -each.end))
    apart: list[CredentialMatch] = []
    for one in credential_matches:
        if not apart or one.start >= apart[-1].end:
            apart.append(one)
    return apart


def _places(content: bytes, hint: bytes) -> Iterator[int]:
    at = content.find(hint)
    while at >= 0:
        yield at
        at = content.find(hint, at + len(hint))


def _credential_match(kind: str, match: re.Match[bytes]) -> CredentialMatch:
    group = match.lastindex or 0
    return CredentialMatch(kind, match.start(group), match.end(group))


def _find_named(content: bytes, lower: bytes) -> Iterator[CredentialMatch]:
    """Yield values that a header or a name marks as secret. Names match in upper and lower case."""
    for hint, pattern in _HEADERS:
        for at in _places(lower, hint):
            if match := pattern.match(content, at):
                yield _credential_match(HEADER, match)
    for stem, rest, before in _STEMS:
        for at in _places(lower, stem):
            name = rest.match(lower, at)
            if name is None or lower[name.end() : name.end() + 1].isalnum():
                continue
            earlier = before.search(lower, max(0, at - _LONGEST_FLAG), at) if before else None
            begin = earlier.start() if earlier else at
            if (stem == b"key" and not earlier) or lower[begin - 1 : begin].isalnum():
                continue
            strong = earlier is not None or stem not in _WEAK_STEMS
            match = _NAMED[strong].match(content, name.end())
            if match is None and _FLAG.search(content, max(0, begin - _LONGEST_FLAG), begin):
                match = _AFTER_FLAG[strong].match(content, name.end())
            if match:
                yield _credential_match(NAMED, match)


BLOCK = 1 << 20


def scan(file: BinaryIO) -> Iterator[tuple[int, CredentialMatch, bytes]]:
    """Yield every credential in a file of any size, read in blocks: its line number, its position, and its bytes."""
    kept, offset, line, from_here = b"", 0, 1, 0
    while True:
        block = file.read(BLOCK)
        content = kept + block
        safe = max(0, len(content) - LONGEST_SECRET) if block else len(content)
        for each in find_secrets(content):
            if block and each.start >= safe:
                break  # it may continue in the next block, which starts before it
            if offset + each.start >= from_here:
                place = CredentialMatch(each.kind, offset + each.start, offset + each.end)
                from_here = place.end
                yield line + content.count(b"\n", 0, each.start), place, content[each.start : each.end]
        if not block:
            return
        from_here = max(from_here, offset + safe)
        cut = max(0, safe - _LONGEST_FLAG)  # keep the text before a name, because it determines the match
        line += content.count(b"\n", 0, cut)
        kept, offset = content[cut:], offset + cut


def masked(kind: str, secret: bytes) -> str:
    """Return the part of a secret that may be shown: the prefix of its format, but nothing that a user chose."""
    chosen = kind in ("signed-url", "url-password", NAMED, HEADER)
    return "…" if chosen else secret[:4].decode(errors="replace") + "…"


def names_secret(name: str, value: str) -> bool:
    """Return whether an option with this name and value is secret because of its name."""
    plain = name.lstrip("-").lower().replace("-", "_")
    value = value.strip()
    if not value or value.lower() in ("none", "null", "true", "false") or value.startswith(("/", "./", "~/")):
        return False
    if any(plain == each or plain.endswith(f"_{each}") for each in _STRONG):
        return True
    if any(plain == each or plain.endswith(f"_{each}") for each in _WEAK):
        return re.fullmatch(_mixed(SHORTEST_KNOWN), value) is not None
    return False


def _may_be_secret(name: str) -> bool:
    """Return whether an option with this name is secret for some values."""
    return names_secret(name, "x1234567")


# Removing secrets from options


_taken: dict[str, str] = {}
"""Values that this process removed from options or inserted into arguments, by environment variable."""


@dataclass
class Concealer:
    """Replaces secrets in options by references to environment variables, and stores their values there.

    `declared` are names that the user declared secret: of options, placeholders, flags of the program, or variables.
    """

    declared: Iterable[str] = ()
    environment: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    values: dict[str, str] = field(default_factory=dict)
    """Removed values, by environment variable."""
    seen: set[str] = field(default_factory=set)
    """All names that occurred, so that a misspelled declared name can be reported."""

    def __post_init__(self) -> None:
        self._declared = {_plain(name) for name in self.declared}
        self._known = {
            value: name
            for name, value in self.environment.items()
            if not name.startswith(PREFIX)
            and (
                (_plain(name) in self._declared and value)
                or (len(value) >= SHORTEST_KNOWN and names_secret(name, value))
            )
        }

    def mapping(self, values: Mapping[Any, Any], where: str = "") -> dict[Any, Any]:
        """Return options without secrets, including values in nested mappings and lists."""
        words = next((value for key, value in values.items() if key == "argv" and isinstance(value, list | tuple)), ())
        self._declared |= _names_after_flags(words)
        return {key: self._value(value, str(key), where) for key, value in values.items()}

    def words(self, words: Sequence[Any], where: str = "") -> list[Any]:
        """Return the arguments of a program without secrets; a value after a flag such as --password is secret."""
        done: list[Any] = []
        flag = ""
        for number, word in enumerate(words, 1):
            if not isinstance(word, str):
                done.append(word)
                flag = ""
                continue
            name, equals, value = word.partition("=")
            if flag and not word.startswith("--") and self._is_secret(flag, word):
                done.append(self._take(word, flag, where))
                flag = ""
            elif equals and name.startswith("-") and " " not in name and self._is_secret(name, value):
                done.append(f"{name}={self._take(value, name, where)}")
                flag = ""
            else:
                flag = word if word.startswith("-") and not equals else ""
                self.seen.add(_plain(name))
                done.append(self._text(word, f"argument_{number}", where))
        return done

    def unknown_names(self, declared: Iterable[str]) -> list[str]:
        """Return declared names that match no option, flag or environment variable."""
        return [
            name
            for name in declared
            if _plain(name) not in self.seen and not any(_plain(name) == _plain(each) for each in self.environment)
        ]

    def _value(self, value: Any, name: str, where: str) -> Any:
        self.seen.add(_plain(name))
        if isinstance(value, Mapping):
            return self.mapping(value, where)
        if isinstance(value, list | tuple):
            return self.words(value, where)
        if _plain(name) in self._declared and isinstance(value, int | float) and not isinstance(value, bool):
            return self._take(str(value), name, where)
        if not isinstance(value, str):
            return value
        return self._take(value, name, where) if self._is_secret(name, value) else self._text(value, name, where)

    def _is_secret(self, name: str, value: str) -> bool:
        self.seen.add(_plain(name))
        if not value or REFERENCE.search(value) or _PLACEHOLDER.search(value):
            return False
        return _plain(name) in self._declared or names_secret(name, value)

    def _text(self, text: str, name: str, where: str) -> str:
        """Return the text with each credential in it replaced by a reference."""
        for value, variable in self._known.items():
            if value in text:
                text = text.replace(value, f"{{env:{variable}}}")
                _taken[variable] = value
        content = text.encode(errors="surrogatepass")
        for credential_match in reversed(find_secrets(content)):
            secret = content[credential_match.start : credential_match.end].decode(errors="surrogatepass")
            if not REFERENCE.search(secret) and not _PLACEHOLDER.search(secret):
                reference = self._take(secret, name if _may_be_secret(name) else credential_match.kind, where)
                content = content[: credential_match.start] + reference.encode() + content[credential_match.end :]
        return content.decode(errors="surrogatepass")

    def _take(self, value: str, name: str, where: str) -> str:
        known = self._known.get(value)
        if known is not None:
            return f"{{env:{known}}}"
        value = value.replace("{{", "{").replace("}}", "}")
        stem = PREFIX + re.sub(r"[^A-Z0-9]+", "_", f"{where} {name}".upper()).strip("_")
        variable, number = stem, 1
        while self.values.get(variable, value) != value:
            number += 1
            variable = f"{stem}_{number}"
        self.values[variable] = self.environment[variable] = _taken[variable] = value
        return f"{{env:{variable}}}"


_PLACEHOLDER = re.compile(r"(?<!\{)\{[A-Za-z_][A-Za-z0-9_]*\}(?!\})")


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def _names_after_flags(words: Sequence[Any]) -> set[str]:
    """Return placeholders in the position of a secret, as in `--password {pw}`: their values are secret."""
    names = set()
    pairs = [(flag, word) for flag, word in itertools.pairwise(words) if str(flag).startswith("--")]
    pairs += [(str(word).partition("=")[0], str(word).partition("=")[2]) for word in words]
    for flag, word in pairs:
        placeholder = _PLACEHOLDER.fullmatch(str(word))
        if placeholder and _may_be_secret(str(flag)):
            names.add(_plain(placeholder[0].strip("{}")))
    return names


def conceal_study(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a study without secrets, and move the secrets to environment variables."""
    options, variants, declared = values.get("options"), values.get("variants"), values.get("secrets") or ()
    if not isinstance(declared, list | tuple) or not all(isinstance(name, str) for name in declared):
        declared = ()  # the Study model reports the error
    concealer = Concealer(declared)
    done = dict(values)
    if isinstance(options, Mapping):
        done["options"] = concealer.mapping(options)
    if isinstance(variants, Mapping):
        done["variants"] = {
            name: concealer.mapping(own, str(name)) if isinstance(own, Mapping) else own
            for name, own in variants.items()
        }
    refuse_unknown(concealer, declared)
    return done


def refuse_unknown(concealer: Concealer, declared: Iterable[str]) -> None:
    for name in concealer.unknown_names(declared):
        raise ValueError(f"secrets: {unknown('name', name, concealer.seen)}")


def conceal(values: Mapping[str, Any], declared: Iterable[str] = ()) -> dict[str, Any]:
    """Return option values without secrets, and move the secrets to environment variables."""
    concealer = Concealer(declared)
    done = concealer.mapping(values)
    try:
        refuse_unknown(concealer, declared)
    except ValueError as error:
        raise UserError(str(error)) from None
    return done


# Restoring secrets


def references(value: Any) -> list[str]:
    """Return the variables that options refer to as {env:NAME}, in order."""
    if isinstance(value, str):
        return REFERENCE.findall(value)
    if isinstance(value, Mapping):
        return list(dict.fromkeys(name for item in value.values() for name in references(item)))
    if isinstance(value, list | tuple):
        return list(dict.fromkeys(name for item in value for name in references(item)))
    return []


def redacted_names(value: Any) -> list[str]:
    """Return the user-facing names of removed values: `token` for FAIRTRIAL_SECRET_TOKEN."""
    return [name.removeprefix(PREFIX).lower() for name in references(value) if name.startswith(PREFIX)]


def require_variables(options: Iterable[Mapping[str, Any]], *, here: str = "") -> None:
    """Raise an error, before any run starts, if options refer to an environment variable that is not set."""
    missing = [name for name in references(list(options)) if name not in os.environ]
    if missing:
        raise UserError(*_missing(missing[0], here)[:1], hint=_missing(missing[0], here)[1])


def _missing(name: str, here: str) -> tuple[str, str]:
    if name.startswith(PREFIX):
        what = name.removeprefix(PREFIX).lower()
        return (
            f"the secret '{what}' was not recorded, and the environment variable {name} is not set{here}",
            f"Use the same command line as before, or set {name} to the value.",
        )
    return f"the environment variable {name} is not set{here}, which {{env:{name}}} needs", f"Set it: export {name}=…"


def reveal(value: Any, *, here: str = "") -> Any:
    """Return options with every {env:NAME} replaced by its value. A variable missing in a job interrupts its run."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda match: _filled(match[1], here), value)
    if isinstance(value, Mapping):
        return {key: reveal(item, here=here) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(reveal(item, here=here) for item in value)
    return value


def _filled(name: str, here: str) -> str:
    value = os.environ.get(name)
    if value is None:
        message, hint = _missing(name, here)
        raise Interrupted(message, hint=hint)
    _taken[name] = value
    return value


# Redacting text


def redact(text: str) -> str:
    """Return text without secrets: those that this process removed or inserted, and anything that looks like one."""
    for value in sorted(_taken.values(), key=len, reverse=True):
        if len(value) >= 4 and value in text:
            text = text.replace(value, REDACTED)
    content = text.encode(errors="surrogatepass")
    for credential_match in reversed(find_secrets(content)):
        content = content[: credential_match.start] + REDACTED.encode() + content[credential_match.end :]
    return content.decode(errors="surrogatepass")


def redact_all(value: Any, redacted: Callable[[str], str] = redact) -> Any:
    """Return the document with `redact` applied to every string in it."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redact_all(item, redacted) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(item, redacted) for item in value]
    return value


def redact_words(words: Sequence[str]) -> list[str]:
    """Return a command line that is safe to record: its secrets are replaced by {env:NAME}, as in a recorded run."""
    declared = [after for word, after in itertools.pairwise(words) if word == "--secret"]
    declared += [word.partition("=")[2] for word in words if word.startswith("--secret=")]
    concealer = Concealer(declared, environment=dict(os.environ))
    concealer.mapping({"argv": list(words)})  # so that {pw} in --password {pw} is known before its value occurs
    done = concealer.words(words)
    return [redact(_without_values(word, concealer)) for word in done]


def _without_values(word: str, concealer: Concealer) -> str:
    """Redact settings that are joined in one argument: `base:lr=1,token=…` of --variant, `token=…` of --values."""
    head, colon, rest = word.partition(":")
    head, rest = (head + colon, rest) if colon and "=" in rest and "=" not in head else ("", word)
    if "=" not in rest or rest.startswith("-"):
        return word
    parts = []
    for part in rest.split(","):
        name, equals, value = part.partition("=")
        parts.append(
            f"{name}={concealer._take(value, name, head)}" if equals and concealer._is_secret(name, value) else part
        )
    return head + ",".join(parts)


def redact_command(command: str) -> str:
    """Return a command line, given as one string, that is safe to record; unchanged if it contains no secret."""
    try:
        words = shlex.split(command)
    except ValueError:
        return redact(command)
    done = redact_words(words)
    return command if done == words else shlex.join(done)


def redact_config(config: Mapping[str, Any], declared: Iterable[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a script that are safe to record, and the names of the redacted ones."""
    concealer = Concealer(declared, environment=dict(os.environ))
    done = concealer.mapping(config)
    try:
        refuse_unknown(concealer, declared)
    except ValueError as error:
        raise UserError(str(error)) from None
    names = [name.removeprefix(PREFIX).lower() for name in references(done)]
    return redact_all(done, lambda text: REFERENCE.sub(REDACTED, text)), names
