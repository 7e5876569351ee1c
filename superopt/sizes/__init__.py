"""What a model computes of its own sizes, known as far as symbols allow, and written as constants."""
