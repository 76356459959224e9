"""What servers answer, by attribute."""

# Fields that an answer may leave out and callers read all the same.
OPTIONAL = {"nextCursor", "structuredContent", "description", "title", "annotations", "outputSchema", "meta", "instructions"}
# Fields whose value is data of the server's own and stays as it is.
RAW = {"structuredContent", "inputSchema", "outputSchema", "arguments", "data"}


class Result:
    """An object of an answer. model_dump() is the object as a dict."""

    def __init__(self, fields):
        self.__dict__["_fields"] = fields

    def __getattr__(self, name):
        fields = self.__dict__["_fields"]
        if name == "meta":
            name = "_meta" if "_meta" in fields else name
        if name in fields:
            return fields[name] if name in RAW else wrap(fields[name])
        if name in OPTIONAL:
            return None
        raise AttributeError(name)

    def __repr__(self):
        return "Result(%r)" % (self._fields,)

    def __eq__(self, other):
        return isinstance(other, Result) and self._fields == other._fields

    def model_dump(self, **_):
        return self._fields


def wrap(value):
    if isinstance(value, dict):
        return Result(value)
    if isinstance(value, list):
        return [wrap(v) for v in value]
    return value
