"""`mclabel eval best-of-n`: measures how well scorers choose one of N solutions."""
