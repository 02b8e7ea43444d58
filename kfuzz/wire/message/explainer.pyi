from typing import Any, Literal

# (offset, size, path, part, value): of a field its value, or the length, count or presence in front of it; of a struct
# its tag count and the tags, and of a tagged field its size. A length, count or size of bytes is as it is read there.
Place = tuple[int, int, str, Literal["value", "length", "count", "presence", "tag-count", "tag", "tag-size"], Any]
