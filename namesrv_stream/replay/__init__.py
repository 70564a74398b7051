"""The log folded once more: to prove that the tables say what it says, and to make them anew where they are lost."""
