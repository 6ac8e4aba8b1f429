"""A server of rewards and step credits for trainers."""
