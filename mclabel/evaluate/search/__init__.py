"""`mclabel eval search`: searches compared at equal cost."""
