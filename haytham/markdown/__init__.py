"""Text and value: what a document kind is, how a value becomes Markdown, and how Markdown becomes that value again.

Pure: nothing here reads or writes session data, and no content is ever run through a Markdown parser. Import the
module you need (`kind`, `parse`, `render`): who only reads need not load what draws.
"""
