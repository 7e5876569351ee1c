"""The e-graph and its saturation; ``egraph`` alone knows egglog."""
