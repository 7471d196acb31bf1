import torch

from rectifiers.evaluation.views import center, ten_view


def test_ten_views_of_an_odd_sized_image_are_ten_hand_cut_crops() -> None:
    image = torch.arange(3 * 37 * 45).remainder(251).to(torch.uint8).view(3, 37, 45)
    top, left = (37 - 32) // 2, round((45 - 32) / 2)  # 2 and 6
    corners = [(0, 0), (0, 13), (5, 0), (5, 13), (top, left)]
    cut = [image[:, y : y + 32, x : x + 32] for y, x in corners]
    views = ten_view(image, 32)
    assert views.shape == (10, 3, 32, 32)
    assert all(torch.equal(views[i], cut[i]) for i in range(5))
    assert all(torch.equal(views[5 + i], cut[i].flip(-1)) for i in range(5))


def test_the_centre_is_one_view() -> None:
    image = torch.arange(36 * 40).remainder(251).to(torch.uint8).view(1, 36, 40)
    assert torch.equal(center(image, 32), image[None, :, 2:34, 4:36])
