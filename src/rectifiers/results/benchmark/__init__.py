"""The rectifier benchmark: tasks, the results of entries, ranks and cards. docs/benchmark.md is its
protocol."""
