"""Compiles input schemas into argument checks. A hostile schema is rejected or made harmless; nothing is fetched.

Patterns that the linear-time engine cannot run (look-around, back-references), or not on text of that length, are left
to the backend: the arguments are then checked without them.
"""

from gateway.catalogue.schema.check import compile_check
from gateway.catalogue.schema.keywords import InvalidSchema, encode_bounded

__all__ = ["InvalidSchema", "compile_check", "encode_bounded"]
