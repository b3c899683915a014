"""Text and value: what a document kind is, how a value becomes Markdown, and how Markdown becomes that value again.

Pure: nothing here reads or writes session data, and no content is ever run through a Markdown parser. Each kind is
compiled once from its schema: `renderer` writes the canonical form, `canonical` reads it, `parser` reads any other.
"""
