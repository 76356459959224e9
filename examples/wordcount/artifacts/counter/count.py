"""Counts the words below a folder; run_code calls run() inside the sandbox."""

import collections
import pathlib
import re


def run(inputs):
    args = inputs["args"]
    counts = collections.Counter()
    files = sorted(pathlib.Path(args["folder"]).rglob("*.txt"))
    for path in files:
        counts.update(re.findall(r"[a-z]+", path.read_text(encoding="utf-8").lower()))
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    out = pathlib.Path(args["output"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(f"{n} {word}\n" for word, n in ranked), encoding="utf-8")
    return {"files": len(files), "words": sum(counts.values()), "most": ranked[0][0]}
