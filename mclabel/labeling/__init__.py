"""Label problems: the scheduler keeps an engine full, the job hands blocks to engines."""
