"""What rules do: the steps from a model to the one that was found, and the rule that is guilty of a wrong one."""
