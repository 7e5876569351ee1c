"""From chosen terms back to nodes, in the model they came from."""
