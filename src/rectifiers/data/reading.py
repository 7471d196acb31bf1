"""Reading views of a split's images into a batch's buffer, by the C decoder for the JPEG files that
it supports."""

from collections.abc import Callable, Sequence

from torch import Tensor

from rectifiers.data import jpeg
from rectifiers.data.sources import Split
from rectifiers.data.transforms import Plan, apply_plan
from rectifiers.runtime.errors import InputError

PlanFor = Callable[[tuple[int, int]], Plan]  # from an image's height and width


class Reader:
    """Reads views of a split's images; the pixels are the same with the C decoder and without."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.encoded = None if jpeg.unavailable_reason() else getattr(split, "encoded", None)

    def read(
        self, indices: Sequence[int], plans_for: Sequence[PlanFor], out: Tensor
    ) -> list[Plan | InputError]:
        """Write a view of each image into `out`, uint8 [N, C, side, side]; return the plans of the
        views.

        For an image that cannot be read, its error takes the plan's place, and its view is
        undefined."""
        # First all files and plans, then all pixels: each part stays in the cache, which is a tenth
        # faster.
        opened = [
            self._open(index, plan_for) for index, plan_for in zip(indices, plans_for, strict=True)
        ]
        results: list[Plan | InputError] = []
        for view, index, plan_for, (encoded, plan) in zip(
            out, indices, plans_for, opened, strict=True
        ):
            if (
                plan is None
                or plan.pad_px
                or not jpeg.crop(encoded, plan.size, plan.corner, plan.mirrored, view)
            ):
                results.append(self._read_by_pillow(index, plan_for, view))
            else:
                results.append(plan)
        return results

    def _open(self, index: int, plan_for: PlanFor) -> tuple[bytes, Plan | None]:
        try:
            encoded = b"" if self.encoded is None else self.encoded(index)
            shape = jpeg.read_size(encoded) if encoded else None
            return encoded, None if shape is None else plan_for(shape)
        except InputError:  # _read_by_pillow raises it again
            return b"", None

    def _read_by_pillow(self, index: int, plan_for: PlanFor, view: Tensor) -> Plan | InputError:
        try:
            image = self.split.image(index)
        except InputError as error:
            return error
        try:
            plan = plan_for((image.shape[-2], image.shape[-1]))
        except InputError as error:
            return InputError(f"image {index} cannot be used: {error}")
        view.copy_(apply_plan(plan, image))
        return plan
