"""`mclabel eval processbench`: scorers and judges by ProcessBench's metric."""
