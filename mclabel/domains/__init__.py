"""Problems made by programs, with their exact truth and bundled models."""
