"""The headless Godot engine: sandboxed processes, the pool of warm engines and the parser of their output."""
