"""`busway docs`: the documentation of this version, without a network."""

import sys
from typing import Annotated

import typer

_MOST_LINES = 30


def docs(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="A page, a section or a link (runbook#alert-held); otherwise words to search for."),
    ] = None,
) -> None:
    """
    Print a page, a section, or the lines with some words.

    Without an argument it prints the list of pages. An error in quotes finds the lines about it, each with its section
    for the next call: `busway docs "receiver with a higher epoch"`. Exit code 1: nothing was found.
    """
    from cli.output import print_wrapped
    from cli.pages import longest_found, pages, text_of
    from shared.errors import ConfigError, Problem
    from shared.remedies import OTHERWISE, remedy_for

    asked = " ".join(words or [])
    known = pages()
    text = text_of(asked, known)
    if text is not None and sys.stdout.isatty():
        # As a terminal can show it.
        from rich.markdown import Markdown

        from cli.output import console

        console().print(Markdown(text, hyperlinks=False))
        return
    if text is not None:
        typer.echo(text, nl=False)
        return
    remedy = remedy_for(asked)
    if remedy is not OTHERWISE:
        print_wrapped(f"What to do: {remedy.text}.")
    lines = [line for page in known for line in page.lines()]
    part = longest_found(asked, lines)
    if part is None:
        raise ConfigError([Problem("docs", f"no page, section or line has {asked!r}", "busway docs lists the pages")])
    if part != asked.lower():
        print_wrapped(f"No line has all of it. Those with {part!r}:", err=True)
    found = [line for line in lines if part in line[1].lower()]
    for place, line in found[:_MOST_LINES]:
        print_wrapped(f"{place}: {line}")
    if len(found) > _MOST_LINES:
        typer.echo(f"and {len(found) - _MOST_LINES} more lines: add words", err=True)
