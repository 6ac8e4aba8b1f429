"""The networks that score steps: a language model's body with a head."""
