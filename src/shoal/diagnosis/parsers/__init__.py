"""Evidence to facts: a parser per form of text, message tables per layer. Start at `reading`."""
