"""Networks, described by rows."""
