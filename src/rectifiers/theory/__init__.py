"""Predictions without training: variance propagation and the Fisher information."""
