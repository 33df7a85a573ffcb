"""Lines of a log that arrives in pieces, over several connections."""

from __future__ import annotations

import codecs
import re

#: Escape sequences of a terminal (ECMA-48), and control characters.
_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def plain(line: str) -> str:
    """Returns a line without colors, and without what a progress bar has written over."""
    return _CONTROL.sub("", line.rstrip("\r").rsplit("\r", 1)[-1])


class LogLines:
    """Lines of one log, each once. A connection that begins at the start again repeats nothing."""

    def __init__(self) -> None:
        #: Bytes of the log that have arrived.
        self._position = 0
        self._skip = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        #: True after the first connection.
        self.is_opened = False
        #: True if the last connection ended by itself.
        self.is_whole = False

    def reopened(self) -> None:
        """Notes that the next piece is the start of the log."""
        self._skip = self._position
        self.is_opened = True

    def add(self, piece: bytes) -> list[str]:
        """Returns the lines that a piece completes."""
        fresh = piece[self._skip :]
        self._skip -= len(piece) - len(fresh)
        self._position += len(fresh)
        *lines, self._rest = (self._rest + self._decoder.decode(fresh)).split("\n")
        return lines

    def end(self) -> list[str]:
        """Returns the last line if it has no end."""
        rest = self._rest + self._decoder.decode(b"", final=True)
        return [rest] if rest else []
