"""What the HTTP servers share: where they listen, who may ask, how much, and how they end."""
