"""What the backends of the Gox contract share: actions, their envelope, and the log of their runs."""
