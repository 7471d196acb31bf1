"""The rectifier benchmark: tasks, entries, ranks and cards. docs/benchmark.md is its protocol."""
