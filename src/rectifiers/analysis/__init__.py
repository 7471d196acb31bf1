"""What theory says of signals, gains and information, and what is measured: functions from networks
to numbers."""
