"""Turkish: what it has besides the rules of the kit, and its words."""
