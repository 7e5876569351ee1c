"""The bodies of If, Loop and Scan: optimized like the graph around them, or written into it."""
