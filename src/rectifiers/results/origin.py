"""What a run's name leaves out: the code that ran it, and the machine."""

from rectifiers.runs.record import Record


def code_of(record: Record) -> str:
    """Return the fingerprint of the source that trained, 12 hex digits; of several, in the order of
    their epochs."""
    return "+".join(record.codes)


def machine_of(record: Record) -> str:
    """Return the processor with its instructions, where known, or the GPU, with the threads of
    torch."""
    machine = record.provenance.machine
    processor = f"{machine.cpu} ({machine.instructions})" if machine.instructions else machine.cpu
    device = processor if machine.device == "cpu" else machine.device
    return f"{device}, {machine.threads} thread{'s' * (machine.threads != 1)}"
