"""A run's folder when a training begins in it."""

from pathlib import Path

from rectifiers.runs.folder import begin
from rectifiers.runtime.files import atomic_file


def test_a_training_removes_what_a_kill_left_half_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "scores").mkdir(parents=True)
    for kept in ("last.ckpt", "scores/center.npz"):
        (folder / kept).write_bytes(b"whole")
        with atomic_file(folder / kept) as file:
            (part,) = (folder / kept).parent.glob("*.part")
            file.write(b"whole")
            half = part.with_name(f"{Path(kept).name}.other-host.1.part")  # of a killed process
            half.write_bytes(b"half")
    begin(folder, rerun=False)
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    assert left == ["last.ckpt", "scores/center.npz"]
