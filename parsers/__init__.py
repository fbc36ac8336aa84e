"""File formats, one a file or folder, listed in `registry`."""
