"""Answers, for each line of JSON on standard input, what Python's packaging says, as a line of JSON."""
import json
import sys

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


def version(case):
    try:
        v = Version(case["a"])
    except InvalidVersion:
        return {"valid": False}
    out = {"valid": True, "text": str(v), "public": v.public, "order": None}
    try:
        w = Version(case["b"])
        out["order"] = (v > w) - (v < w)
    except InvalidVersion:
        pass
    return out


def applies(marker, env, extra):
    if marker is None:
        return True
    try:
        return marker.evaluate({**env, "extra": extra})
    except (UndefinedComparison, UndefinedEnvironmentName):
        return None


def requirement(case):
    text = case["text"]
    try:
        r = Requirement(text)
    except InvalidRequirement:
        return {"valid": False, "printable": text.isprintable()}
    return {
        "valid": True,
        "printable": text.isprintable(),
        "name": r.name,
        "canonical": canonicalize_name(r.name),
        "extras": sorted(r.extras),
        "url": r.url or "",
        "specifiers": sorted({s.operator + s.version for s in r.specifier}),
        "applies": [applies(r.marker, env, extra) for env in case["environments"] for extra in ("", case["extra"])],
        "contains": [r.specifier.contains(v, prereleases=True) for v in case["versions"]],
    }


for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(version(case) if "a" in case else requirement(case)))
