"""A session's documents and what is computed from them: the only room that knows folders."""

from haytham.session.session import SessionDocuments

__all__ = ["SessionDocuments"]
