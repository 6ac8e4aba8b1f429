"""What is printed: tables, solutions with their values, progress."""
