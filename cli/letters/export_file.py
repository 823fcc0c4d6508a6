"""
Messages in a file, one JSON object per line: the encoded message in Base64, and where it was.

`busway try --messages`, `busway demo --file` and `busway dead resend --file` read these files.
"""

import base64
import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from cli.explorer_file import explorer_messages
from cli.files import whole_file
from cli.letters.report import messages, print_unevaluated
from cli.message_file import bytes_in, line_in, lines_of
from cli.output import waits_for
from shared.errors import ConfigError, Problem
from shared.resend.groups import document
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import Place
from shared.resend.selection import Selection

WHERE = "dead_letter"
"""The key of a line with what is known about the message besides its content."""


async def export(place: Place, selection: Selection, path: Path) -> None:
    """Write the selected messages of *place* to a file, and print how many; raises ConfigError."""
    count = 0
    waits_for(str(place))
    try:
        # Nobody may drop messages because of half a file.
        with whole_file(path) as file:
            async with contextlib.aclosing(peek(place, os.environ)) as found:
                async for letter, _ in found:
                    if selection.is_complete:
                        break
                    if selection.takes(letter):
                        raw = base64.b64encode(letter.content).decode()
                        line = {"raw": raw, "partition": None, WHERE: document(letter, place)}
                        file.write(json.dumps(line) + "\n")
                        count += 1
    except OSError as error:
        raise ConfigError([Problem(str(path), f"cannot be written: {error.strerror}")]) from error
    print_unevaluated(selection.unevaluated)
    typer.echo(f"{messages(count)} of {place} in {path}; they stay in the entity")


def exported_keys(file: Path, place: Place) -> set[str]:
    """Return the keys of the messages of *place* in a file that was exported; raises ConfigError."""
    keys = {letter.key for letter in exported_letters(file, place, Selection()) if letter.key is not None}
    if not keys:
        raise ConfigError([Problem(str(file), f"has no messages of {place}", "name the file of an export of it")])
    return keys


def exported_letters(file: Path, place: Place, selection: Selection) -> Iterator[Letter]:
    """Yield the selected messages of *place* in an exported file, in its order; raises ConfigError."""
    wanted = str(place).lower()
    if explorer_messages(file) is not None:
        found = "is a file of ServiceBusExplorer, which has neither the types of messages nor the entity that had them"
        hint = "write one with busway dead export; busway try --messages reads this one"
        raise ConfigError([Problem(str(file), found, hint)])
    for number, line in lines_of(file):
        where = f"{file}: line {number}"
        try:
            content = line_in(line)
            known = content.get(WHERE)
            if not isinstance(known, Mapping) or "raw" not in content:
                hint = "expected a file of busway dead export"
                raise ConfigError([Problem(where, "is not an exported message", hint)])
            if str(known.get("entity")).lower() != wanted:
                continue
            letter = Letter.at(place, bytes_in(content, "raw"))
        except ValueError as error:
            raise ConfigError([Problem(where, str(error))]) from error
        if letter.key is not None and selection.takes(letter):
            yield letter
        if selection.is_complete:
            return
