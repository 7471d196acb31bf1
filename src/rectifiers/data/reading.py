"""A split's images, planned, into a batch's buffer: by the C library where the image is a JPEG that it handles."""

from collections.abc import Callable, Sequence

from torch import Tensor

from rectifiers.data import jpeg
from rectifiers.data.sources import Split
from rectifiers.data.transforms import Plan, follow
from rectifiers.runtime.errors import InputError

PlanFor = Callable[[tuple[int, int]], Plan]  # from an image's height and width


class Reader:
    """Reads views of a split's images; the pixels are the same with the C library and without."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.encoded = None if jpeg.fault() else getattr(split, "encoded", None)

    def read(self, indices: Sequence[int], plans_for: Sequence[PlanFor], out: Tensor) -> list[Plan | InputError]:
        """Write a view of each image into `out`, uint8 [N, C, side, side]; return the plans that made them.

        An image that cannot be read has its error in the plan's place, and anything in its view's.
        """
        # Files and plans first, and then all pixels: Python and C each work on in a warm cache, a tenth faster.
        opened = [self._open(index, plan_for) for index, plan_for in zip(indices, plans_for, strict=True)]
        results: list[Plan | InputError] = []
        for view, index, plan_for, (encoded, plan) in zip(out, indices, plans_for, opened, strict=True):
            if plan is None or not jpeg.crop(encoded, plan.size, plan.corner, plan.mirrored, view):
                results.append(self._read_by_pillow(index, plan_for, view))
            else:
                results.append(plan)
        return results

    def _open(self, index: int, plan_for: PlanFor) -> tuple[bytes, Plan | None]:
        try:
            encoded = b"" if self.encoded is None else self.encoded(index)
            shape = jpeg.measure(encoded) if encoded else None
            return encoded, None if shape is None else plan_for(shape)
        except InputError:  # which reading it once more will tell
            return b"", None

    def _read_by_pillow(self, index: int, plan_for: PlanFor, view: Tensor) -> Plan | InputError:
        try:
            image = self.split.image(index)
        except InputError as fault:
            return fault
        try:
            plan = plan_for((image.shape[-2], image.shape[-1]))
        except InputError as fault:
            return InputError(f"image {index} cannot be used: {fault}")
        view.copy_(follow(plan, image))
        return plan
