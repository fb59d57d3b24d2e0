"""Did training make predictions sharper? Entropy of the next token, base against descendant."""
