"""OAuth sign-in of `gatehouse stdio` to its gateway, for users without an API key."""
