"""Input schemas as model APIs take them: no oneOf, anyOf, allOf, if, not or dependentSchemas at the root.

The flattened schema accepts all that the exact one accepts; what it can no longer refuse, it says in words.
"""

from gateway.catalogue.flatten.form import flatten

__all__ = ["flatten"]
