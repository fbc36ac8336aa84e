"""Whether the server lives: its processes, its endpoint, and whether its work goes on. Facts only, no causes."""
