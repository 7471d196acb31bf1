"""The one error that a user's input raises."""


class InputError(Exception):
    """What the user gave cannot be used. The message is one sentence with the key, the value and the remedy."""

    of_all = False  # whether all processes of a run have it, and can go on together with the next run

    def __init__(self, message: str) -> None:
        # A loader's worker hands an error over as its whole traceback; the sentence is all that the user needs.
        _, marker, sentence = message.rpartition(f"{type(self).__name__}: ")
        super().__init__(sentence.strip() if marker else message)
