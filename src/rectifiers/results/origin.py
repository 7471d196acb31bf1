"""What made the numbers of a record: the source, and the machine."""

from rectifiers.runs.record import Record


def code_of(record: Record) -> str:
    """Return the fingerprint of the source that trained, or of several in their order."""
    return "+".join(record.codes)


def machine_of(record: Record) -> str:
    """Return the processor with its instructions, or the GPU, and the threads of torch."""
    machine = record.provenance.machine
    processor = f"{machine.cpu} ({machine.instructions})" if machine.instructions else machine.cpu
    device = processor if machine.device == "cpu" else machine.device
    threads = "thread" if machine.threads == 1 else "threads"
    return f"{device}, {machine.threads} {threads}"
