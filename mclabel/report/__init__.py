"""What a person looks at: the terminal, pictures."""
