"""The errors that are the user's to mend."""


class UserError(ValueError):
    """A mistake in what the user gave: its message is one line that says what to do.

    The command line prints that line and exits with code 2; in Python it is an ordinary ValueError.
    """
