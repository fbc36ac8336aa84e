"""Series of readings over time: rates, histograms, ages, a common grid."""
