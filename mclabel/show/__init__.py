"""Output for people: tables, plots, progress bars, and solutions in the terminal."""
