"""`initialize`: a run finds what the layers of a network read and feed, and fills them for that."""
