"""GPUs: their models' peaks, health, idle time, who lags behind whom."""
