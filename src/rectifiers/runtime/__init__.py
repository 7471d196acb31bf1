"""What every process of a run needs: errors, console, ranks, signals, seeds and files. No
science."""
