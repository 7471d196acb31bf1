"""Testing: protocols, exact error counts, calibration and ensembles."""
