"""One tenant misbehaves in many ways while another calls at a steady rate: `make isolation`."""
