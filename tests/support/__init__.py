"""What tests share: worlds to run in, servers, faults, checks."""
