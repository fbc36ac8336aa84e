"""The roofline of a live server: ceilings, points, efficiency, phase."""
