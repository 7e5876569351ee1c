"""Models, real and made up, and what is measured on them."""
