"""Speed and size, as ratios within one run on one machine."""
