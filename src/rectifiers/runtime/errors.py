"""The one error that bad input raises."""


class InputError(Exception):
    """The input cannot be used. The message is one sentence with the key, the value and the
    remedy."""

    # whether all processes of a run raise it, so that they can go on to the next run together
    on_all_ranks = False
    # of the process that it ends; 2 for a command line that cannot be read, as programs have it
    status = 1

    def __init__(self, message: str) -> None:
        # A DataLoader's worker sends an error as its whole traceback; only the sentence is for the
        # user.
        _, marker, sentence = message.rpartition(f"{type(self).__name__}: ")
        super().__init__(sentence.strip() if marker else message)
