"""Episodes: decisions, problems, solutions and other moments of conversations."""
