"""kolla-build again and again in one process. A job is an object with `arguments`, `environment` and `room`, one for each
line of standard input; its exit code is a line of standard output, what it says is in its room.

What Kolla does over and over with the same result (compiling templates, reading its YAML) is remembered. Each job runs in a
process of its own, so that none sees what another left behind.
"""

import functools
import json
import os
import pickle
import sys
import traceback

import jinja2.sandbox
import yaml

from kolla.cmd.build import main


def remembered(load):
    known = {}

    def loaded(stream):
        text = stream if isinstance(stream, (str, bytes)) else stream.read()
        if text not in known:
            known[text] = pickle.dumps(load(text))
        return pickle.loads(known[text])

    return loaded


class Compiled(jinja2.FileSystemBytecodeCache):
    """Templates by their text, wherever a job has put them."""

    def get_bucket(self, environment, name, filename, source):
        return super().get_bucket(environment, name, source, source)


def run(job):
    os.chdir(job["room"])
    for number, name in [(1, "stdout"), (2, "stderr")]:
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = ["kolla-build"] + job["arguments"]
    return main()


def started(job):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = run(job)
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


cache = Compiled(sys.argv[1])
jinja2.sandbox.SandboxedEnvironment = functools.partial(jinja2.sandbox.SandboxedEnvironment, bytecode_cache=cache)
yaml.safe_load = remembered(yaml.safe_load)

for line in sys.stdin:
    _, status = os.waitpid(started(json.loads(line)), 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
