"""The errors that are the user's to mend."""


class UserError(ValueError):
    """A mistake in what the user gave: its message is one line that says what to do.

    The command line prints that line and exits with code 2; in Python it is an ordinary ValueError.
    """


def one_line(message: object) -> str:
    """What a terminal can show of it, whatever a server or a file has put into it."""
    return "".join(letter for letter in " ".join(str(message).split()) if letter.isprintable())[:200]
