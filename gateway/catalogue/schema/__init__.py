"""Input schemas, checked and compiled once: a hostile one is refused here or made harmless, never fetched for.

A pattern that the linear-time engine cannot run (look-around, back-references), or only on text too long for it, is
left to the backend: the schema is then checked without it.
"""

from gateway.catalogue.schema.check import compile_check
from gateway.catalogue.schema.keywords import InvalidSchema, bound

__all__ = ["InvalidSchema", "bound", "compile_check"]
