"""Where the time of steps, ranges, streams and GPUs goes, as rows beside each other."""
