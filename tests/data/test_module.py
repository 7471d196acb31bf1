import pytest
import torch

from rectifiers.data.module import ImageData
from rectifiers.data.sources import digits
from rectifiers.data.transforms import Geometry


def batches(workers: int, epoch: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = ImageData(digits(), Geometry(10, 8, True), global_batch=128, seed=3, workers=workers)
    data.batches.set_epoch(epoch)
    return list(data.train_dataloader())


def test_the_number_of_workers_changes_no_pixel() -> None:
    for one, two in zip(batches(0, 1), batches(2, 1), strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])


def test_the_epoch_may_be_set_after_the_iterator_was_made() -> None:
    """Lightning does it in this order when a run is resumed with workers."""
    data = ImageData(digits(), Geometry(10, 8, True), global_batch=128, seed=3, workers=2)
    iterator = iter(data.train_dataloader())
    data.batches.set_epoch(5)
    assert torch.equal(next(iterator)[0], batches(0, 5)[0][0])


def test_validation_sees_every_image_once_in_order() -> None:
    data = ImageData(digits(), Geometry(10, 8, True), global_batch=128, seed=3, workers=0)
    labels = torch.cat([y for _, y in data.val_dataloader()])
    assert labels.tolist() == list(digits().val.labels)


def test_an_unreadable_image_stays_one_sentence_across_a_workers_border(tmp_path) -> None:
    from PIL import Image

    from rectifiers.config import InputError
    from rectifiers.data.sources import folder

    for part in ("train", "val"):
        for group in "ab":
            (tmp_path / part / group).mkdir(parents=True)
            for i in range(3):
                Image.new("RGB", (9, 9)).save(tmp_path / part / group / f"{i}.png")
    (tmp_path / "train" / "a" / "1.png").write_bytes(b"broken")
    data = ImageData(folder(str(tmp_path)), Geometry(9, 8, True), global_batch=6, seed=0, workers=2)
    with pytest.raises(InputError) as raised:
        list(data.train_dataloader())
    assert str(raised.value).startswith(str(tmp_path / "train" / "a" / "1.png"))
    assert "Traceback" not in str(raised.value)
