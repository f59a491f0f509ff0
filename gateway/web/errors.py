"""Errors of resources, which the HTTP app answers with 404 and 409.

BadRequest
+-- ResourceNotFound
+-- ResourceConflict
"""

from ...tts_engine.errors import BadRequest


class ResourceNotFound(BadRequest):
    """The path names nothing that exists: HTTP 404."""


class ResourceConflict(BadRequest):
    """The resource is in use by another client: HTTP 409."""
