# (code, field, at, record, header, found, allowed, count); record and header are -1 where they do not apply
Note = tuple[str, str, int, int, int, int, int, int]

CODES: dict[int, str]
FIELDS: dict[int, str]
