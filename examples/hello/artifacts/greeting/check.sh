#!/bin/sh
# Run by the task inside the sandbox, in the folder that the greeting was loaded into.
grep -q '^hello' hello.txt
