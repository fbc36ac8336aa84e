"""The live screen and the explorer."""
