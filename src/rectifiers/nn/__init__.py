"""Activations, initialisers and networks."""
