"""What a benchmark card measures besides the runs of its tasks: theory, the start, what trains, and
the cost."""
