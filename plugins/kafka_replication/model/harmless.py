"""The part of a text of others that may be told: what a server says about a record may show its key or its value.

It may do so in any place and form. So nothing is cut out of such a text: what is known to be harmless is taken over,
and the rest is left out. Every error about records takes such texts from here.
"""

from __future__ import annotations

import re
from typing import Final

# Names of fields are needed to correct a mapping. But a JSON object may have data as names, and with a dynamic mapping
# these become fields. So a name is told if it has the form of one: no address, no number of a person or an account.
_NAME: Final = re.compile(r"@timestamp|(?!.*\d{4})[^\W\d][\w.-]{0,99}")
_FIELD: Final = re.compile(  # with this an answer of OpenSearch begins, so that no document can imitate it
    r"(?P<before>failed to parse field |object mapping for |mapper |mapping set to strict, dynamic introduction of )"
    r"\[(?P<name>[^\]]*)\](?P<after> of type \[\w+\]| cannot be changed from type \[\w+\] to \[\w+\]|)"
)
_WORDS: Final = re.compile(
    r"blocked by: \[[A-Z_]+/\d+/[\w ,()./-]+\]"
    r"|^no permissions for \[[\w:/*, -]+(?:\[\w+\])?\]"
    r"|Limit of total fields \[\d+\] has been exceeded"
    r"|one immense term in field"
    r"|(?<=AccessDeniedException: )Insufficient permissions.{,300}?action=\w+"
    r"|exceeds limit of \d{1,9}(?!\d)|KeyValue size too large|Internal error processing \w+"
    r"|(?<![\w.])(?:java|javax|org\.apache)\.[\w.$]+(?:Exception|Error)\b"
)


def field(name: str) -> str:
    """The name of a field in brackets; ``[...]`` if it may be data."""
    return f"[{name}]" if _NAME.fullmatch(name) else "[...]"


def harmless(text: str) -> str:
    """The parts of a text that show nothing of a record; empty if there is none."""
    found = [part.rpartition(".")[2] if part.startswith(("java", "org.")) else part for part in _WORDS.findall(text)]
    if begin := _FIELD.match(text):
        found.insert(0, f"{begin['before']}{field(begin['name'])}{begin['after']}")
    return "; ".join(dict.fromkeys(found))


def with_reason(kind: str, text: object) -> str:
    """The class of an error, with the parts of its text that may be told."""
    return ": ".join(filter(None, (kind, harmless(str(text)))))
