"""Names in double quotes where a value is expected: in this language they are properties, not text."""

from shared.rules.lexer import Kind, Token, tokens_of

_BEFORE_A_VALUE = frozenset(("=", "<>", "!=", "<", "<=", ">", ">=", "+"))


def quoted_values(text: str) -> list[str]:
    """
    Return the names in double quotes that a rule compares with or assigns, as another SQL would text.

    Raises:  RuleSyntaxError for what is no rule and has such a name.

    >>> quoted_values('color = "red" AND "made in" IS NOT NULL')
    ['red']
    """
    if '"' not in text:
        return []
    tokens = tokens_of(text)
    return [
        token.text
        for position, token in enumerate(tokens)
        if token.kind is Kind.NAME and text[token.position] == '"' and _is_value(tokens, position)
    ]


def _is_value(tokens: list[Token], position: int) -> bool:
    if position == 0 or tokens[position + 1].text == ".":
        return False
    before = tokens[position - 1]
    if before.kind is Kind.KEYWORD:
        return before.text in {"LIKE", "ESCAPE"}
    return before.text in _BEFORE_A_VALUE or (before.text in {"(", ","} and _is_in_list(tokens, position))


def _is_in_list(tokens: list[Token], position: int) -> bool:
    """Return whether the parenthesis around *position* opens the list of IN."""
    depth = 0
    for index in range(position - 1, 0, -1):
        if tokens[index].text == ")" and tokens[index].kind is Kind.SYMBOL:
            depth += 1
        elif tokens[index].text == "(" and tokens[index].kind is Kind.SYMBOL:
            if depth == 0:
                return tokens[index - 1].kind is Kind.KEYWORD and tokens[index - 1].text == "IN"
            depth -= 1
    return False
