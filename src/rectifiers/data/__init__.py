"""Images: sources, transforms, reading, shuffling and preprocessing."""
