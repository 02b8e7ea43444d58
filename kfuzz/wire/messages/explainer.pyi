from typing import Any, Literal

# (offset, size, path, part, value). A field has a place for its value, and one for a length, count or presence before
# it. A struct has places for its tag count and its tags, and a tagged field one for its size. The value of a length or
# count is the number that it means: for a compact one, that is 1 less than the number sent.
Place = tuple[int, int, str, Literal["value", "length", "count", "presence", "tag-count", "tag", "tag-size"], Any]
