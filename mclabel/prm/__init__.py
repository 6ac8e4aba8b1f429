"""Process reward models: encode, train, score, aggregate."""
