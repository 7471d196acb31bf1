"""The one error that bad input raises."""


class InputError(Exception):
    """The input cannot be used. The message is one sentence with the key, the value and the
    remedy.

    on_all_ranks: whether all processes of a run raise it, so that they can go on to the next run
    together; status: of the process that it ends, 2 for a command line that cannot be read.

    Examples:
        >>> try:
        ...     raise InputError("mode=up is not known; choose one of: forward, backward")
        ... except InputError as error:
        ...     print(error)
        mode=up is not known; choose one of: forward, backward
    """

    def __init__(self, message: str, *, on_all_ranks: bool = False, status: int = 1) -> None:
        # a DataLoader's worker sends an error as its whole traceback, with the sentence at its end
        _, marker, sentence = message.rpartition(f"{type(self).__name__}: ")
        super().__init__(sentence.strip() if marker else message)
        self.on_all_ranks, self.status = on_all_ranks, status
