import unittest

from agentenv_host import faults
from agentenv_host.tracked import Tracked


class Faults(unittest.TestCase):
    def test_one_line(self):
        class Odd(Exception):
            def __str__(self):
                raise ValueError

            __repr__ = __str__

        for error, want in [
            (ValueError("a\n  b\tc"), "a b c"),
            (ValueError(), "raised ValueError without a message"),
            (KeyError("x"), "has no 'x'"),
            (SystemExit(), "called sys.exit()"),
            (SystemExit(2), "called sys.exit(2)"),
            (Odd(), "raised Odd without a message"),
            (RuntimeError("x" * 10_000), "x" * faults.MAX_MESSAGE + "…"),
        ]:
            self.assertEqual(faults.one_line(error), want)
        self.assertEqual(faults.safe_repr(Odd()), "<Odd>")

    def test_infra(self):
        import urllib.error

        self.assertTrue(faults.is_infra(ConnectionResetError()))
        self.assertTrue(faults.is_infra(urllib.error.URLError("x")))
        self.assertFalse(faults.is_infra(RuntimeError("connection refused")))
        self.assertFalse(faults.is_infra(urllib.error.HTTPError("http://x", 500, "no", {}, None)))
        self.assertFalse(faults.is_infra(TimeoutError()))

    def test_our_own_code_is_no_place_of_a_plugin(self):
        try:
            faults.safe_repr.nothing
        except AttributeError as e:
            place = faults.place_of(e)
        self.assertRegex(place, r"(^|/)test_faults\.py:\d+$")


class TrackedDocuments(unittest.TestCase):
    def test_reading_is_noted(self):
        def one(d):
            return d["a"]

        def get(d):
            return d.get("a")

        def contains(d):
            return "a" in d

        def pop(d):
            return d.pop("a")

        for read in (one, get, contains, pop):
            d = Tracked({"id": "x", "type": "t", "a": 1, "b": 2, "always": True})
            read(d)
            self.assertEqual(d.unread(), ["b"], read.__name__)

    def test_reading_all_is_noted(self):
        def spread(d):
            return {**d}

        def call(d):
            return dict(**d)

        def make(d):
            return dict(d)

        def loop(d):
            return list(d)

        def items(d):
            return list(d.items())

        def copy(d):
            return d.copy()

        for read in (spread, call, make, loop, items, copy):
            d = Tracked({"a": 1, "b": 2})
            read(d)
            self.assertEqual(d.unread(), [], read.__name__)
