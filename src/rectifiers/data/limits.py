"""Bounds on images that several packages check."""

LARGEST_PX = 8192  # of a resized image's shorter side
LARGEST_PIXELS = 89_000_000  # of an image: 270 MB as RGB
