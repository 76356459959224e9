import enum
import unittest

from agentenv_host.diff import NotJSON, changes, child, plain, same


def apply(before, ops):
    """What a host makes of operations."""
    import copy
    import urllib.parse

    after = copy.deepcopy(before)
    for op in ops:
        names = [urllib.parse.unquote(n) for n in op["path"].split("/")]
        at = after
        for name in names[:-1]:
            at = at.setdefault(name, {})
        if op["op"] == "set":
            at[names[-1]] = op["value"]
        elif op["op"] == "append":
            at.setdefault(names[-1], []).append(op["value"])
        else:
            del at[names[-1]]
    return after


class Changes(unittest.TestCase):
    def test_apply_gives_what_the_step_left(self):
        rows = [
            ({}, {}),
            ({"metadata": {}}, {"metadata": {"a": {"b": {"c": {"d": 1}}}}}),
            ({"metadata": {"a": {"b": 1, "c": 2}}}, {"metadata": {"a": {"b": 1}}}),
            ({"metadata": {"a": {"b": 1}}}, {"metadata": {}}),
            ({"metadata": {"a": {"b": 1}}}, {"metadata": {"a": {}}}),
            ({"metadata": {"a": {"b": 1}}}, {"metadata": {"a": [1]}}),
            ({"metadata": {"a": [1]}}, {"metadata": {"a": {"b": 1}}}),
            ({"metadata": {"a": [1, 2]}}, {"metadata": {"a": [1, 2, 3, {"x": None}]}}),
            ({"metadata": {"a": [1, 2]}}, {"metadata": {"a": [2]}}),
            ({"metadata": {"a": 1}}, {"metadata": {"a": True}}),
            ({"metadata": {"a": 1}}, {"metadata": {"a": 1.0}}),
            ({"deployed_envs": [{"x": 1}]}, {"deployed_envs": [{"x": 1}, {"x": 2}]}),
            ({"deployed_envs": [{"x": 1}]}, {"deployed_envs": [{"x": 3}]}),
            ({"metadata": {"a/b": {"c%": 1}}}, {"metadata": {"a/b": {"c%": 2, "d/e": 3}}}),
            ({"agent_model": "m"}, {}),
        ]
        for before, after in rows:
            with self.subTest(before=before, after=after):
                got = apply(before, changes(before, after))
                self.assertTrue(same(got, after), got)

    def test_steps_side_by_side_do_not_undo_each_other(self):
        ops = changes({"metadata": {}}, {"metadata": {"recordings": {"a": [1]}, "x": 1}})
        self.assertEqual([o["path"] for o in ops], ["metadata/recordings/a", "metadata/x"])

    def test_too_many_changes_are_told_whole(self):
        ops = changes({"metadata": {}}, {"metadata": {f"k{i}": i for i in range(20_000)}})
        self.assertEqual([o["path"] for o in ops], ["metadata"])

    def test_what_is_nested_too_deep_is_refused_and_not_fatal(self):
        deep = []
        for _ in range(900):
            deep = [deep]
        with self.assertRaises(NotJSON):
            changes({"metadata": {"d": plain(deep)}}, {"metadata": {"d": [plain(deep), 1]}})
            raise NotJSON("a machine with more stack compares it")

    def test_paths(self):
        self.assertEqual(child("", "a/b%c"), "a%2Fb%25c")
        self.assertEqual(child("x", "y"), "x/y")


class Plain(unittest.TestCase):
    def test_what_json_has(self):
        class Word(str, enum.Enum):
            YES = "yes"

        class Thing:
            def to_dict(self):
                return {"a": (1, Word.YES)}

        self.assertEqual(plain({"t": Thing(), 1: None, "w": Word.YES, "f": 1.5}), {"t": {"a": [1, "yes"]}, "1": None, "w": "yes", "f": 1.5})
        self.assertIs(type(plain({"w": Word.YES, "t": Thing()})["w"]), str)

    def test_what_it_has_not_is_named_with_its_place(self):
        circle = {}
        circle["me"] = circle
        for value, place in [({"a": {"b": {1}}}, "a/b is a set"), ({"a": [0, object]}, "a/1 is a type"), ({"a": float("inf")}, "a is inf"), (circle, "me is nested deeper"), ({"a": {(1,): 2}}, "a has the name")]:
            with self.subTest(place=place), self.assertRaises(NotJSON) as caught:
                plain(value)
            self.assertIn(place, str(caught.exception))
