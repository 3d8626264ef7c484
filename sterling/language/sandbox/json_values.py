"""Encode values between the solution and the judge as JSON. Runs in a sandbox's processes."""

from typing import Any


class ValueCodec:
    """Encodes plain values whole, and every other object as a number to ask about."""

    def __init__(self) -> None:
        self.objects: list[Any] = []

    def encode(self, value: Any) -> Any:
        """Return the JSON of a value; only the exact plain types count as plain."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in (list, tuple, set, frozenset):
            return {kind.__name__: [self.encode(each) for each in value]}
        if kind is dict:
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        return self.refer(value)

    def decode(self, data: Any) -> Any:
        """Return the value that :meth:`encode` wrote."""
        if not isinstance(data, dict):
            return data
        ((kind, inner),) = data.items()
        if kind == "object":
            return self.resolve(int(inner))
        if kind == "dict":
            return {self.decode(key): self.decode(value) for key, value in inner}
        if kind == "bytes":
            return bytes.fromhex(inner)
        if kind == "complex":
            return complex(*inner)
        made = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind]
        return made(self.decode(each) for each in inner)

    def refer(self, value: Any) -> Any:
        """Store an object; return the reference to it."""
        self.objects.append(value)
        return {"object": len(self.objects) - 1}

    def resolve(self, number: int) -> Any:
        """Return the object with this number."""
        return self.objects[number]
