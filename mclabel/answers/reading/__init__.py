"""From the text of an answer to what it means."""
