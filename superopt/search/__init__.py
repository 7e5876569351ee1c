"""From rules to a candidate that is verified, and whether it is taken."""
