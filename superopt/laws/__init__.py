"""Whether rules are right: laws drawn from their text, and whole e-graphs checked class by class."""
