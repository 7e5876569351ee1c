"""Whether two models agree, and how far each is from the truth."""
