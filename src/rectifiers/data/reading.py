"""A split's images, planned, into a batch's buffer: by the C library where the image is a JPEG that it handles."""

from collections.abc import Callable

from torch import Tensor

from rectifiers.data import native
from rectifiers.data.sources import Split
from rectifiers.data.transforms import Plan, follow


class Reader:
    """Reads views of a split's images; the pixels are the same with the C library and without."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.encoded = None if native.fault() else getattr(split, "encoded", None)

    def read(self, index: int, plan_for: Callable[[tuple[int, int]], Plan], out: Tensor) -> Plan:
        """Write one view into `out`, uint8 [C, side, side], and return the plan that made it.

        plan_for: called with the image's height and width.

        Raises:
            InputError: where the image cannot be read.
        """
        if self.encoded is not None:
            jpeg = self.encoded(index)
            shape = native.measure(jpeg)
            if shape is not None:
                plan = plan_for(shape)
                if native.crop(jpeg, plan.size, plan.corner, plan.mirrored, out):
                    return plan
        image = self.split.image(index)
        plan = plan_for((image.shape[-2], image.shape[-1]))
        out.copy_(follow(plan, image))
        return plan
