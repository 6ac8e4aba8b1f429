"""`mclabel eval processbench`: measures scorers, labels and judges by ProcessBench's metric."""
