"""`mclabel eval best-of-n`: choosing one of N solutions by a scorer."""
