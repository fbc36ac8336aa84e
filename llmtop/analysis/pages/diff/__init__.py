"""What became better or worse between two reports, by how much, and why: pure, of any two traces."""
