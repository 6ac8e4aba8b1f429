"""A server of the chat completions interface that answers with searched solutions."""
