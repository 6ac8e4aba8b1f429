"""Training a policy by reinforcement: TRL trains, our engine samples, credit goes to steps."""
