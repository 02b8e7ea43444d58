from typing import Any, Literal

# (offset, size, path, part, value). A field has a value, with a length, count or presence before it. A struct has a tag
# count and tags, and a tagged field has a size. Lengths, counts and sizes have the value that the reader sees.
Place = tuple[int, int, str, Literal["value", "length", "count", "presence", "tag-count", "tag", "tag-size"], Any]
