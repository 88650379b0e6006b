"""How it is said that something cannot be served."""


class LoadError(Exception):
    """What cannot be served, and why: one line that begins with the setting it is about, such as `backends.x.url: `."""

    @property
    def at(self) -> tuple[str, ...]:
        """That setting, part by part."""
        return tuple(str(self).partition(": ")[0].split("."))
